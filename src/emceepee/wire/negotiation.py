"""Which era and version a server speaks: the modern one first, then the handshake versions.

Only a server's own word that it is modern makes it so. Every other answer to the probe, and none at all, leads to the
handshake: servers that know nothing of 2026-07-28 refuse it in many ways, and a few of them exit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND, SERVER_INFO_META_KEY, UNSUPPORTED_PROTOCOL_VERSION

from emceepee.errors import ConnectFailed, ConnectionLost, PeerError, RequestTimedOut, SessionGone
from emceepee.protocol import meta_of
from emceepee.wire.era import (
    HANDSHAKE_PROTOCOL_VERSIONS,
    LATEST_HANDSHAKE_VERSION,
    Era,
    HandshakeEra,
    Identity,
    ModernEra,
)
from emceepee.wire.peer import Peer
from emceepee.wire.transport import HTTP_STATUS, is_passing_refusal

__all__ = ["EraChoice", "Negotiated", "ServerSession", "negotiate", "take_up"]

EraChoice: TypeAlias = Literal["auto", "handshake", "handshake_first", "modern"]

PROBE_TIMEOUT = 10.0
"""Seconds for `server/discover`: enough for a server that is just starting, bearable for one that ignores the probe."""

LAST_TIMEOUT = 60.0
"""Seconds for what nothing is tried after: `npx` and `uvx` download a server before they run it."""


@dataclass(frozen=True, slots=True)
class Negotiated:
    """What server and client agreed on; `answer` is the server's own, untouched."""

    era: Era
    answer: Mapping[str, Any]

    @property
    def capabilities(self) -> Mapping[str, Any]:
        capabilities = self.answer.get("capabilities")
        return capabilities if isinstance(capabilities, Mapping) else {}

    @property
    def server_info(self) -> Mapping[str, Any]:
        """The server's name and version, which the modern era keeps in `_meta`."""
        info = self.answer.get("serverInfo") or meta_of(self.answer).get(SERVER_INFO_META_KEY)
        return info if isinstance(info, Mapping) else {}


@dataclass(frozen=True, slots=True)
class ServerSession:
    """A session at a server, as a later connection can take it up: `answer` is the server's own to `initialize`."""

    session_id: str
    answer: Mapping[str, Any]


async def take_up(peer: Peer, session: ServerSession) -> Negotiated:
    """Go on in a session that an earlier connection negotiated, once the server has shown that it still knows it.

    Raises:
        SessionGone: it does not, or does not want us in it.
        ConnectFailed: a gateway answered, which cannot say.
        PeerError, RequestTimedOut, ConnectionLost: as for any request.
    """
    peer.avoid_used_ids()
    negotiated = _adopt(peer, HandshakeEra(str(session.answer.get("protocolVersion"))), session.answer)
    try:
        await peer.request("ping", timeout=PROBE_TIMEOUT)
    except ConnectionLost as lost:
        if lost.was_taken:
            raise
        raise SessionGone(peer.transport.target) from None
    except PeerError as error:
        # An error in an answer that came through is a sign of life as well; a gateway's error page is none.
        if is_passing_refusal(error.data):
            raise ConnectFailed(peer.transport.target, error.message) from None
        if isinstance(error.data, Mapping) and HTTP_STATUS in error.data:
            raise SessionGone(peer.transport.target) from None
    return negotiated


async def negotiate(peer: Peer, identity: Identity, choice: EraChoice = "auto") -> Negotiated:
    """Agree with the server and have `peer` speak accordingly.

    Raises:
        ConnectFailed: there is no version that both sides speak, or the answer makes no sense.
        PeerError, RequestTimedOut, ConnectionLost: as for any request.
    """
    if choice == "modern":
        return await _discover(peer, identity, timeout=LAST_TIMEOUT)
    if choice == "auto" and (negotiated := await _probe(peer, identity)) is not None:
        return negotiated
    try:
        return await _handshake(peer, identity)
    except PeerError as error:
        # A slow server can answer the probe after we gave up on it, and is modern from then on.
        if choice == "handshake" or error.code not in (UNSUPPORTED_PROTOCOL_VERSION, METHOD_NOT_FOUND):
            raise
    return await _discover(peer, identity, timeout=PROBE_TIMEOUT)


async def _discover(peer: Peer, identity: Identity, *, timeout: float) -> Negotiated:
    era = ModernEra(identity)
    answer = await peer.request("server/discover", {}, era=era, timeout=timeout)
    versions = answer.get("supportedVersions")
    if not isinstance(versions, list) or era.version not in versions:
        raise ConnectFailed(peer.transport.target, f"it does not speak {era.version}, but {versions}")
    return _adopt(peer, era, answer)


async def _probe(peer: Peer, identity: Identity) -> Negotiated | None:
    """`_discover`, with None for a server that may still speak a handshake version."""
    try:
        return await _discover(peer, identity, timeout=PROBE_TIMEOUT)
    except (RequestTimedOut, ConnectFailed):
        return None
    except PeerError as error:
        if _speaks_only_other_versions(error):
            raise ConnectFailed(peer.transport.target, f"no protocol version in common: {error}") from None
        return None


def _speaks_only_other_versions(error: PeerError) -> bool:
    supported = error.data.get("supported") if isinstance(error.data, Mapping) else None
    return (
        error.code == UNSUPPORTED_PROTOCOL_VERSION
        and isinstance(supported, list)
        and not any(version in HANDSHAKE_PROTOCOL_VERSIONS for version in supported)
    )


async def _handshake(peer: Peer, identity: Identity) -> Negotiated:
    params = {
        "protocolVersion": LATEST_HANDSHAKE_VERSION,
        "capabilities": identity.capabilities,
        "clientInfo": identity.info,
    }
    answer = await _initialize(peer, params)
    version = answer.get("protocolVersion")
    if version not in HANDSHAKE_PROTOCOL_VERSIONS:
        known = ", ".join(HANDSHAKE_PROTOCOL_VERSIONS)
        raise ConnectFailed(peer.transport.target, f"it answered with protocol version {version!r}; we speak {known}")
    negotiated = _adopt(peer, HandshakeEra(str(version)), answer)
    await peer.notify("notifications/initialized")
    return negotiated


async def _initialize(peer: Peer, params: dict[str, Any]) -> Mapping[str, Any]:
    """Offer our newest handshake version, and after a refusal the older ones that the server names."""
    try:
        return await peer.request("initialize", params, timeout=LAST_TIMEOUT)
    except PeerError as error:
        supported = error.data.get("supported") if isinstance(error.data, Mapping) else None
        if error.code != INVALID_PARAMS or not isinstance(supported, list):
            raise
        common = [version for version in reversed(HANDSHAKE_PROTOCOL_VERSIONS) if version in supported]
        if not common:
            raise
    return await peer.request("initialize", {**params, "protocolVersion": common[0]}, timeout=LAST_TIMEOUT)


def _adopt(peer: Peer, era: Era, answer: Mapping[str, Any]) -> Negotiated:
    peer.adopt(era)
    return Negotiated(era, answer)
