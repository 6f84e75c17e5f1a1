"""Who may use the hub over HTTP, as the settings say it: with which tokens, or with tokens of which issuer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from emceepee.errors import SettingsError

__all__ = ["AccessSettings", "OAuthSettings", "is_token"]


@dataclass(frozen=True, slots=True)
class OAuthSettings:
    """An issuer whose access tokens are good here, if they were issued for us."""

    issuer: str
    resource: str = ""
    """Our own URL as clients know it; empty for the address that we listen on."""
    audience: str = ""
    """What has to stand in a token's `aud`; empty for the resource."""
    scopes: tuple[str, ...] = ()
    introspection_url: str = ""
    """Where to ask about tokens; without it they have to be JWTs that the issuer signed."""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """Tokens are secrets: they are in no `repr`."""

    token: str = field(default="", repr=False)
    token_file: str = ""
    tokens: Mapping[str, str] = field(default_factory=dict, repr=False)
    """By the name of who has it."""
    oauth: OAuthSettings | None = None
    token_file_key: str = field(default="token_file", compare=False)
    """What `token_file` is called where it was set."""

    @property
    def is_guarded(self) -> bool:
        """Whether a client has to say who it is."""
        return bool(self.token or self.token_file or self.tokens or self.oauth)

    def read_token(self) -> str:
        """The token that needs no name; empty if there is none.

        Raises:
            SettingsError: it is to be found in a file, and is not.
        """
        if not self.token_file:
            return self.token
        path = Path(self.token_file).expanduser().absolute()
        try:
            token = path.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise SettingsError(self.token_file_key, f"{path} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            token = ""
        if not is_token(token):
            raise SettingsError(self.token_file_key, f"expected a token and nothing else in {path}")
        return token


def is_token(text: str) -> bool:
    """Whether an `Authorization` header can carry it."""
    return bool(text) and text.isascii() and text.isprintable() and " " not in text
