"""Access tokens of an issuer: which ones let a client in, and as whom."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import Iterator
from typing import Any

import anyio
import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from starlette.types import Scope

from emceepee.config import AccessSettings, HttpSettings, OAuthSettings
from emceepee.errors import SettingsError
from emceepee.front.gate import Gate
from emceepee.front.gates import gate_for
from emceepee.front.issuer import FRESH_SECONDS, PAUSE_SECONDS, STALE_SECONDS
from emceepee.front.refusals import Refused
from emceepee.front.verifying import REMEMBERED_SECONDS
from emceepee.testing import FakeClock
from tests.auth.issuer import CLIENT_ID, CLIENT_SECRET, TestIssuer, running_issuer
from tests.process.hub_process import INITIALIZE, HttpClient, own_json, serving

pytestmark = pytest.mark.anyio

LIMIT_S = 180
US = "https://hub.example/mcp"
OPEN = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": INITIALIZE}


@pytest.fixture(scope="module")
def module_issuer() -> Iterator[TestIssuer]:
    with running_issuer() as issuer:
        yield issuer


@pytest.fixture
def issuer(module_issuer: TestIssuer) -> TestIssuer:
    module_issuer.is_down = False
    module_issuer.active = {}
    module_issuer.new_key("first")
    module_issuer.fetches = module_issuer.questions = 0
    return module_issuer


def gate(issuer: TestIssuer, clock: FakeClock | None = None, token: str = "", **settings: Any) -> Gate:
    oauth = OAuthSettings(issuer.url, **{"resource": US, **settings})
    return gate_for(HttpSettings(access=AccessSettings(token, oauth=oauth)), 8080, clock)


def introspecting(issuer: TestIssuer, clock: FakeClock | None = None) -> Gate:
    url = f"{issuer.url}/introspect"
    return gate(issuer, clock, introspection_url=url, client_id=CLIENT_ID, client_secret=CLIENT_SECRET)


def request_with(token: str | None) -> Scope:
    headers = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
    return {"type": "http", "headers": headers, "client": ("127.0.0.1", 1)}


async def principal(gate: Gate, token: str | None) -> str:
    with anyio.fail_after(LIMIT_S):
        return await gate.principal_of(request_with(token))


async def refusal(gate: Gate, token: str | None) -> tuple[int, str, str]:
    """Status, challenge and text."""
    with pytest.raises(Refused) as refused:
        await principal(gate, token)
    headers = dict(refused.value.headers)
    return refused.value.status, headers.get(b"www-authenticate", b"").decode(), refused.value.error.message


async def test_a_token_for_us_stands_for_its_subject_whatever_client_has_it(issuer: TestIssuer) -> None:
    door = gate(issuer)
    alice = f"oauth:{issuer.url} sub:alice"
    assert await principal(door, issuer.token(US)) == alice
    assert await principal(door, issuer.token(US, client_id="another")) == alice
    assert await principal(door, issuer.token(US + "/", "bob")) == f"oauth:{issuer.url} sub:bob"
    assert await principal(door, issuer.token(US, None, client_id="alice")) == f"oauth:{issuer.url} client:alice"
    assert await principal(door, issuer.token([US, "https://other.example"])) == alice  # type: ignore[arg-type]
    assert issuer.fetches == 1


async def test_without_a_token_a_client_is_told_where_to_learn_how_to_get_one(issuer: TestIssuer) -> None:
    door = gate(issuer, scopes=("use",))
    status, challenge, _ = await refusal(door, None)
    place = "https://hub.example/.well-known/oauth-protected-resource/mcp"
    assert (status, challenge) == (401, f'Bearer realm="emceepee", resource_metadata="{place}"')
    assert door.documents["/.well-known/oauth-protected-resource/mcp"] == {
        "resource": US,
        "authorization_servers": [issuer.url],
        "scopes_supported": ["use"],
        "bearer_methods_supported": ["header"],
        "resource_name": "emceepee",
    }
    assert issuer.fetches == 0


async def test_a_token_for_somebody_else_is_refused(issuer: TestIssuer) -> None:
    for audience in ("https://other.example/mcp", "https://hub.example", US + "x"):
        status, challenge, text = await refusal(gate(issuer), issuer.token(audience))
        assert status == 401
        assert 'error="invalid_token"' in challenge
        assert text.endswith("it is for somebody else")


async def test_an_audience_of_its_own_takes_the_place_of_the_url(issuer: TestIssuer) -> None:
    door = gate(issuer, audience="hub")
    assert await principal(door, issuer.token("hub"))
    assert (await refusal(door, issuer.token(US)))[0] == 401


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": int(time.time()) - 60},
        {"exp": None},
        {"nbf": int(time.time()) + 86_400},
        {"iss": "https://other.example"},
        {"iss": None},
        {"aud": None},
        {"sub": ""},
        {"exp": "soon"},
    ],
)
async def test_a_token_that_lacks_something_or_is_not_good_now_is_refused(
    issuer: TestIssuer, claims: dict[str, Any]
) -> None:
    said: dict[str, Any] = {"iss": issuer.url, "aud": US, "exp": int(time.time()) + 600, "sub": "alice", **claims}
    said = {key: value for key, value in said.items() if value is not None}
    token = jwt.encode(said, issuer._key, algorithm="ES256", headers={"kid": issuer.key_id}, sort_headers=False)
    assert (await refusal(gate(issuer), token))[0] == 401


def by_secret(claims: dict[str, Any], secret: bytes, headers: dict[str, str]) -> str:
    """A JWT with an HMAC: by hand, for no library makes one with a public key."""
    parts = [json.dumps(part).encode() for part in ({"alg": "HS256", "typ": "JWT", **headers}, claims)]
    signed = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
    signature = base64.urlsafe_b64encode(hmac.digest(secret, signed, "sha256")).rstrip(b"=")
    return (signed + b"." + signature).decode()


async def test_a_token_that_the_issuer_did_not_sign_is_refused(issuer: TestIssuer) -> None:
    claims = {"iss": issuer.url, "aud": US, "exp": int(time.time()) + 600, "sub": "alice"}
    headers = {"kid": issuer.key_id}
    public = issuer._key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    forged = [
        jwt.encode(claims, ec.generate_private_key(ec.SECP256R1()), algorithm="ES256", headers=headers),
        jwt.encode(claims, rsa.generate_private_key(65537, 2048), algorithm="RS256", headers=headers),
        jwt.encode(claims, "", algorithm="none", headers=headers),
        # With the public key, which everybody has, as if it were a shared secret.
        by_secret(claims, public, headers),
        issuer.token(US)[:-4] + "AAAA",
        "no.jwt.atall",
        "x",
    ]
    for token in forged:
        assert (await refusal(gate(issuer), token))[0] == 401


async def test_a_shared_secret_among_the_published_keys_is_no_key(issuer: TestIssuer) -> None:
    secret = "0123456789abcdef0123456789abcdef"
    key = json.loads(jwt.algorithms.HMACAlgorithm.to_jwk(secret))
    issuer.published.append({**key, "kid": "shared"})
    claims = {"iss": issuer.url, "aud": US, "exp": int(time.time()) + 600, "sub": "alice"}
    token = jwt.encode(claims, secret, algorithm="HS256", headers={"kid": "shared"})
    assert (await refusal(gate(issuer), token))[0] == 401


async def test_a_token_without_the_scopes_is_told_which(issuer: TestIssuer) -> None:
    door = gate(issuer, scopes=("read", "use"))
    status, challenge, _ = await refusal(door, issuer.token(US, scope="read other"))
    assert status == 403
    assert 'error="insufficient_scope", scope="read use"' in challenge
    assert await principal(door, issuer.token(US, scope="use read"))
    assert await principal(door, issuer.token(US, scp=["read", "use"]))


async def test_a_new_key_of_the_issuer_is_found(issuer: TestIssuer, clock: FakeClock) -> None:
    door = gate(issuer, clock)
    old = issuer.token(US)
    await principal(door, old)
    issuer.new_key("second")
    # Not at once: whoever makes up keys must not make us ask for each.
    assert (await refusal(door, issuer.token(US)))[0] == 401
    assert issuer.fetches == 1
    await clock.advance(PAUSE_SECONDS)
    assert await principal(door, issuer.token(US))
    assert issuer.fetches == 2
    assert (await refusal(door, old))[0] == 401


async def test_keys_are_asked_for_again_after_an_hour(issuer: TestIssuer, clock: FakeClock) -> None:
    door = gate(issuer, clock)
    token = issuer.token(US)
    await principal(door, token)
    await clock.advance(FRESH_SECONDS)
    await principal(door, token)
    assert issuer.fetches == 2


async def test_while_the_issuer_is_away_known_keys_are_good_for_a_day(issuer: TestIssuer, clock: FakeClock) -> None:
    door = gate(issuer, clock)
    token = issuer.token(US)
    issuer.is_down = True
    status, _, text = await refusal(door, token)
    assert status == 503
    assert "try again later" in text
    issuer.is_down = False
    await clock.advance(PAUSE_SECONDS)
    await principal(door, token)
    issuer.is_down = True
    await clock.advance(FRESH_SECONDS)
    assert await principal(door, token)
    await clock.advance(STALE_SECONDS)
    assert (await refusal(door, token))[0] == 503


async def test_the_issuer_is_asked_about_tokens_that_are_no_jwts(issuer: TestIssuer, clock: FakeClock) -> None:
    door = introspecting(issuer, clock)
    good = {"active": True, "sub": "alice", "aud": [US], "scope": "use"}
    issuer.active = {
        "good": good,
        "not-ours": {**good, "aud": "https://other.example"},
        "anybodys": {"active": True, "sub": "alice"},
        "other-issuer": {**good, "iss": "https://other.example"},
        "old": {**good, "exp": clock.now() - 60},
        "odd": {**good, "aud": 5, "iss": 5},
        "nobodys": {"active": True, "aud": US},
        "inactive": {**good, "active": "true"},
    }
    assert await principal(door, "good") == f"oauth:{issuer.url} sub:alice"
    for token in (*[token for token in issuer.active if token != "good"], "unknown"):
        assert (await refusal(door, token))[0] == 401


async def test_what_the_issuer_said_is_remembered_for_a_moment(issuer: TestIssuer, clock: FakeClock) -> None:
    door = introspecting(issuer, clock)
    issuer.active = {"good": {"active": True, "sub": "alice", "aud": US}}
    for _ in range(3):
        await principal(door, "good")
    assert issuer.questions == 1
    issuer.active = {}
    await clock.advance(REMEMBERED_SECONDS)
    assert (await refusal(door, "good"))[0] == 401
    issuer.is_down = True
    assert (await refusal(door, "another"))[0] == 503


async def test_a_token_of_the_settings_is_good_beside_those_of_the_issuer(issuer: TestIssuer) -> None:
    door = gate(issuer, token="static")
    assert (await principal(door, "static")).startswith("token:")
    assert (await principal(door, issuer.token(US))).startswith("oauth:")
    assert 'resource_metadata="' in (await refusal(door, "wrong"))[1]


def test_settings_that_make_no_sense_together_are_refused() -> None:
    for settings, host in (
        (OAuthSettings("http://issuer.example"), "127.0.0.1"),
        (OAuthSettings("https://issuer.example", introspection_url="http://issuer.example/i"), "127.0.0.1"),
        (OAuthSettings("https://issuer.example"), "0.0.0.0"),
    ):
        with pytest.raises(SettingsError):
            gate_for(HttpSettings(host=host, access=AccessSettings(oauth=settings)), 1)


async def test_a_hub_with_an_issuer_serves_its_clients_and_nobody_else(issuer: TestIssuer) -> None:
    with anyio.fail_after(LIMIT_S), serving("--oauth-issuer", issuer.url) as (url, hub):
        refused = httpx2.post(
            url, json=OPEN, headers={"accept": "application/json, text/event-stream"}, timeout=LIMIT_S
        )
        assert refused.status_code == 401
        place = refused.headers["www-authenticate"].split('resource_metadata="')[1].rstrip('"')
        assert place == url.replace("/mcp", "/.well-known/oauth-protected-resource/mcp")
        published = httpx2.get(place, timeout=LIMIT_S).json()
        assert (published["resource"], published["authorization_servers"]) == (url, [issuer.url])
        elsewhere = url.replace("/mcp", "/.well-known/oauth-protected-resource")
        assert httpx2.get(elsewhere, timeout=LIMIT_S).json() == published
        alice, bob, stranger = issuer.token(url), issuer.token(url, "bob"), issuer.token("https://other.example")
        async with HttpClient(url, alice) as client:
            assert own_json(await client.call("list_servers")) == {"servers": []}
            ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
            for token, status in ((bob, 404), (stranger, 401), (issuer.token(url, client_id="new"), 200)):
                headers = {"authorization": f"Bearer {token}"}
                assert (await client.http.post(url, json=ping, headers=headers)).status_code == status
    assert not [token for token in (alice, bob, stranger) if token in "".join(hub.lines)]
