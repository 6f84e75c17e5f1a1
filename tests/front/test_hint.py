"""Those who come without being a client: people with browsers, web pages, and whoever watches over the hub."""

from __future__ import annotations

from collections.abc import Mapping

import anyio
import pytest

from emceepee.testing import FakeClock
from tests.front.asgi import PATIENCE, HttpExchange
from tests.front.clients import World, front

pytestmark = pytest.mark.anyio

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


async def got(world: World, path: str, headers: Mapping[str, str], method: str = "GET") -> HttpExchange:
    exchange = world.web.open(method, path, {"host": "127.0.0.1:8080", **headers})
    with anyio.fail_after(PATIENCE):
        await exchange.done.wait()
    return exchange


@pytest.mark.parametrize("accept", ["*/*", BROWSER])
async def test_the_root_says_where_the_doors_are(clock: FakeClock, accept: str) -> None:
    async with front({}, clock=clock) as world:
        hint = await got(world, "/", {"accept": accept})
    assert (hint.status, hint.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    for said in (b"emceepee", b"/mcp ", b"/mcp/all", b"/mcp/server/NAME", b"/healthz", b"/metrics"):
        assert said in hint.body


async def test_a_client_that_posts_to_the_root_is_told_the_endpoint(clock: FakeClock) -> None:
    async with front({}, clock=clock) as world:
        refused = await got(world, "/", {"content-type": "application/json", "accept": "*/*"}, "POST")
        assert await refused.failure() == (404, -32600)


@pytest.mark.parametrize("path", ["/mcp", "/mcp/all"])
async def test_a_browser_at_an_endpoint_gets_the_hint(clock: FakeClock, path: str) -> None:
    async with front({}, clock=clock) as world:
        hint = await got(world, path, {"accept": BROWSER})
    assert (hint.status, hint.headers["content-type"]) == (406, "text/plain; charset=utf-8")
    assert b"MCP client" in hint.body


async def test_a_browser_without_credentials_is_told_that_it_needs_them(clock: FakeClock) -> None:
    async with front({}, clock=clock) as world:
        refused = await got(world, "/mcp", {"accept": BROWSER, "authorization": "Bearer nobody"})
        assert await refused.failure() == (401, -32600)


@pytest.mark.parametrize(
    ("accept", "status"),
    [("text/event-stream", 400), ("text/html, text/event-stream", 400), ("*/*", 400), ("application/json", 406)],
)
async def test_a_client_without_a_session_gets_the_answer_of_the_protocol(
    clock: FakeClock, accept: str, status: int
) -> None:
    async with front({}, clock=clock) as world:
        refused = await got(world, "/mcp", {"accept": accept})
        assert await refused.failure() == (status, -32600)


@pytest.mark.parametrize(
    ("headers", "status"),
    [({"host": "evil.example"}, 421), ({"origin": "https://evil.example"}, 403)],
    ids=["rebinding", "foreign page"],
)
@pytest.mark.parametrize("path", ["/", "/healthz", "/metrics", "/mcp", "/nowhere"])
async def test_no_foreign_page_learns_anything(
    clock: FakeClock, path: str, headers: dict[str, str], status: int
) -> None:
    async with front({}, clock=clock) as world:
        refused = await got(world, path, headers)
        assert await refused.failure() == (status, -32600)
