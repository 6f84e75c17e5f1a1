"""Sessions at servers are kept exactly as long as native tasks live in them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from emceepee.client import ServerSession
from emceepee.config import ServerConfig
from emceepee.core.anchors import Anchors
from emceepee.core.tasks import Task
from emceepee.hub.server_sessions import KeptSession, ServerSessions

URL = "http://one.invalid/mcp"
CONFIG = ServerConfig(name="one", url=URL)
SESSION = ServerSession("session-1", {"protocolVersion": "2025-11-25"})
KEPT = KeptSession(URL, SESSION)


def task(task_id: str, *, server: str = "one", server_task_id: str | None = "theirs") -> Task:
    return Task(
        task_id,
        "promoted" if server_task_id is None else "native",
        server,
        "tool",
        {},
        "working",
        None,
        created_at=0,
        last_updated_at=0,
        ttl_ms=1000,
        expires_at=1,
        server_task_id=server_task_id,
    )


def test_the_first_native_task_of_a_server_holds_its_session_and_the_last_one_lets_it_go() -> None:
    anchors = Anchors()
    first, second, other = task("a"), task("b"), task("c", server="two")
    assert [anchors.note(found) for found in (first, first, second, other)] == ["first", None, None, "first"]
    assert anchors.note(replace(first, status="completed")) is None
    assert anchors.hold("one")
    assert anchors.note(replace(second, status="failed")) == "last"
    assert (anchors.hold("one"), anchors.hold("two")) == (False, True)
    assert anchors.note(replace(second, status="failed")) is None


def test_a_promoted_call_holds_nothing() -> None:
    anchors = Anchors()
    assert anchors.note(task("a", server_task_id=None)) is None
    assert not anchors.hold("one")


class Saved:
    def __init__(self) -> None:
        self.log: list[tuple[str, KeptSession | None]] = []
        self.sessions = ServerSessions(lambda server, kept: self.log.append((server, kept)))


@pytest.fixture
def saved() -> Saved:
    return Saved()


def test_nothing_is_written_before_a_native_task_needs_it(saved: Saved) -> None:
    saved.sessions.on_connected(CONFIG, SESSION)
    assert saved.log == []
    saved.sessions.on_task(task("a"))
    saved.sessions.on_task(task("b"))
    assert saved.log == [("one", KEPT)]


def test_it_is_erased_with_the_last_task(saved: Saved) -> None:
    saved.sessions.on_connected(CONFIG, SESSION)
    saved.sessions.on_task(task("a"))
    saved.sessions.on_task(replace(task("a"), status="cancelled"))
    assert saved.log == [("one", KEPT), ("one", None)]
    assert saved.sessions.to_take_up(CONFIG) == SESSION, "the link still goes on in it"


def test_a_new_session_takes_the_place_of_the_one_before(saved: Saved) -> None:
    saved.sessions.on_connected(CONFIG, SESSION)
    saved.sessions.on_task(task("a"))
    saved.sessions.on_connected(CONFIG, SESSION)
    assert saved.log == [("one", KEPT)], "the same session again is not written again"
    newer = ServerSession("session-2", SESSION.answer)
    saved.sessions.on_connected(CONFIG, newer)
    saved.sessions.on_connected(CONFIG, None)
    assert saved.log[1:] == [("one", KeptSession(URL, newer)), ("one", None)]


def test_a_session_is_taken_up_at_the_same_address_only(saved: Saved) -> None:
    saved.sessions.restore("one", KEPT)
    assert saved.sessions.to_take_up(CONFIG) == SESSION
    assert saved.sessions.to_take_up(ServerConfig(name="one", url="http://other.invalid/mcp")) is None


def test_a_session_that_was_begun_with_other_capabilities_is_taken_up_for_the_sake_of_tasks_only(saved: Saved) -> None:
    saved.sessions.on_connected(CONFIG, SESSION, {"roots": {}})
    assert saved.sessions.to_take_up(CONFIG, {"roots": {}}) == SESSION
    assert saved.sessions.to_take_up(CONFIG, {"sampling": {}}) is None
    saved.sessions.on_task(task("a"))
    assert saved.sessions.to_take_up(CONFIG, {"sampling": {}}) == SESSION
    saved.sessions.on_connected(CONFIG, SESSION, {"sampling": {}})
    saved.sessions.on_task(replace(task("a"), status="completed"))
    assert saved.sessions.to_take_up(CONFIG, {"sampling": {}}) is None, "the server still knows of the roots only"


def test_a_link_that_was_closed_on_purpose_leaves_no_session(saved: Saved) -> None:
    saved.sessions.on_connected(CONFIG, SESSION)
    saved.sessions.forget("one")
    assert saved.sessions.to_take_up(CONFIG) is None


def test_what_is_written_reads_back_as_it_was() -> None:
    assert KeptSession.from_json(KEPT.as_json()) == KEPT
