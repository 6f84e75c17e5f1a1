"""What an authorisation left us with, kept in a file that only its user can read.

A file is for one server, by its URL: whatever else is called by the same name never gets its tokens. It is read again
when it has changed, so that a hub takes up what `emceepee login` wrote while it runs.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
from mcp.shared.auth import OAuthClientInformationFull, OAuthMetadata, OAuthToken, ProtectedResourceMetadata
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from emceepee.errors import SettingsError

__all__ = ["Grant", "MemoryGrants", "TokenFile"]

LOCK_POLL_SECONDS = 0.05


class Grant(BaseModel):
    """Tokens, and all that is needed to refresh them; none of it is in a `repr`."""

    model_config = ConfigDict(frozen=True)

    tokens: OAuthToken | None = Field(default=None, repr=False)
    expires_at: float | None = None
    """Seconds since the epoch; None if the issuer did not say."""
    client: OAuthClientInformationFull | None = Field(default=None, repr=False)
    """As what we are registered there."""
    issuer: OAuthMetadata | None = None
    resource: ProtectedResourceMetadata | None = None

    @property
    def access_token(self) -> str | None:
        return None if self.tokens is None else self.tokens.access_token

    @property
    def can_refresh(self) -> bool:
        return self.tokens is not None and self.tokens.refresh_token is not None and self.client is not None


class MemoryGrants:
    """For what can be had again at any time without asking anybody."""

    def __init__(self) -> None:
        self._grant = Grant()

    def read(self) -> Grant:
        return self._grant

    def write(self, grant: Grant) -> None:
        self._grant = grant

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        yield


class TokenFile:
    """The grant for the server at `url`, in a file of its own in `directory`."""

    def __init__(self, directory: Path, url: str) -> None:
        self._directory = directory
        self._url = url
        host = "".join(letter if letter.isalnum() or letter in ".-" else "_" for letter in urlsplit(url).netloc)
        host = host.rpartition("@")[2][:80]
        self.path = directory / f"{host}-{hashlib.sha256(url.encode()).hexdigest()[:16]}.json"
        self._lock_path = self.path.with_suffix(".lock")
        self._seen: tuple[int, int, int] | None = None
        self._grant = Grant()

    def read(self) -> Grant:
        """What is kept; an empty grant if that is nothing, or nothing that makes sense."""
        try:
            found = os.stat(self.path)
            seen = (found.st_mtime_ns, found.st_ino, found.st_size)
            if seen != self._seen:
                self._grant = self._parsed(self.path.read_bytes())
                self._seen = seen
        except OSError:
            self._seen, self._grant = None, Grant()
        return self._grant

    def write(self, grant: Grant) -> None:
        """
        Raises:
            SettingsError: the directory cannot be used.
        """
        value = {"url": self._url, **grant.model_dump(mode="json", exclude_none=True)}
        unfinished = self.path.with_suffix(f".{os.getpid()}")
        with self._usable_directory():
            unfinished.unlink(missing_ok=True)
            with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                json.dump(value, file)
            # Never half a file, whenever we are killed: a refresh token that is lost cannot be had again.
            unfinished.replace(self.path)

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """No other process is in here meanwhile: of two that use one refresh token, an issuer may refuse both.

        Raises:
            SettingsError: the directory cannot be used.
        """
        with self._usable_directory():
            lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            while not _locked(lock):  # noqa: ASYNC110 (nobody tells us when another process is done)
                await anyio.sleep(LOCK_POLL_SECONDS)
            yield
        finally:
            os.close(lock)

    @contextmanager
    def _usable_directory(self) -> Iterator[None]:
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.chmod(self._directory, 0o700)
            yield
        except OSError as error:
            raise SettingsError("data", f"{self._directory} cannot be used: {error.strerror}") from None

    @property
    def registered_port(self) -> int:
        """That of the redirect URI which the issuer knows us by; 0 if there is none."""
        client = self.read().client
        uris = [] if client is None else client.redirect_uris or []
        return next((uri.port for uri in uris if uri.host == "127.0.0.1" and uri.port), 0)

    def forget(self) -> bool:
        """Delete it; says whether there was anything."""
        self._lock_path.unlink(missing_ok=True)
        try:
            self.path.unlink()
        except FileNotFoundError:
            return False
        return True

    def _parsed(self, text: bytes) -> Grant:
        try:
            value: Any = json.loads(text)
            if not isinstance(value, dict) or value.get("url") != self._url:
                return Grant()
            return Grant.model_validate(value)
        except (ValueError, ValidationError):
            return Grant()


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
