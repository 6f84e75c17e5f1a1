"""Notifications and logs: the newest of each, taken by reading."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from emceepee.core.buffers import LOG_LEVELS, LogEntry, LogLevel, LogSource, Notification, ServerBuffers
from tests.core.clockwork import START, STATEFUL, HandClock
from tests.requirements import requirement

SERVERS = ("a", "b")
SOURCES: tuple[LogSource, ...] = ("protocol", "stderr")


@pytest.fixture
def buffers(clock: HandClock) -> ServerBuffers:
    return ServerBuffers(clock, max_notifications=3, max_logs=5)


def say(buffers: ServerBuffers, *lines: object, server: str = "demo", level: str = "info") -> None:
    for line in lines:
        buffers.add_log(server, "protocol", {"level": level, "data": line})


def test_a_notification_is_kept_as_it_came(buffers: ServerBuffers, clock: HandClock) -> None:
    clock.elapsed = 1.5
    buffers.add_notification("demo", "notifications/tools/list_changed", {"unknown": 1})
    (found,) = buffers.notifications()
    assert found == Notification("demo", START + 1.5, "notifications/tools/list_changed", {"unknown": 1})
    assert found.as_json() == {
        "server": "demo",
        "received_at": "2027-01-15T08:00:01.500Z",
        "method": "notifications/tools/list_changed",
        "params": {"unknown": 1},
    }


def test_a_log_entry_is_kept_as_it_came(buffers: ServerBuffers) -> None:
    buffers.add_log("demo", "protocol", {"level": "error", "logger": "db", "data": {"code": 7}})
    (found,) = buffers.logs()
    assert found == LogEntry("demo", START, "protocol", "error", "db", {"code": 7})
    assert found.as_json() == {
        "server": "demo",
        "received_at": "2027-01-15T08:00:00.000Z",
        "source": "protocol",
        "level": "error",
        "logger": "db",
        "data": {"code": 7},
    }


@pytest.mark.parametrize("entry", [{}, {"level": "loud", "logger": 7}, {"level": ["error"], "data": None}])
def test_an_entry_that_is_not_well_formed_counts_as_info(buffers: ServerBuffers, entry: dict[str, object]) -> None:
    buffers.add_log("demo", "stderr", entry)
    assert buffers.logs() == [LogEntry("demo", START, "stderr", "info", None, None)]


@requirement("T001-buffer-read", "P001-unit-buffers")
def test_reading_empties_and_peeking_does_not(buffers: ServerBuffers) -> None:
    buffers.add_notification("demo", "one", {})
    say(buffers, "one")
    assert len(buffers.notifications(peek=True)) == len(buffers.notifications()) == 1
    assert len(buffers.logs(peek=True)) == len(buffers.logs()) == 1
    assert (buffers.notifications(), buffers.logs()) == ([], [])


@requirement("T001-buffer-per-server", "P001-unit-buffers")
def test_a_full_buffer_drops_its_oldest_and_leaves_other_servers_alone(buffers: ServerBuffers) -> None:
    say(buffers, "kept", server="quiet")
    say(buffers, *range(7), server="chatty")
    assert [(entry.server, entry.data) for entry in buffers.logs()] == [
        ("quiet", "kept"),
        *(("chatty", number) for number in range(2, 7)),
    ]


def test_a_buffer_is_still_bounded_after_it_was_read(buffers: ServerBuffers) -> None:
    say(buffers, "a", "b")
    buffers.logs(limit=1)
    say(buffers, *range(9))
    assert [entry.data for entry in buffers.logs()] == [4, 5, 6, 7, 8]


def test_entries_of_several_servers_come_oldest_first(buffers: ServerBuffers, clock: HandClock) -> None:
    for number, server in enumerate("abab"):
        clock.elapsed = float(number)
        say(buffers, number, server=server)
    assert [entry.data for entry in buffers.logs()] == [0, 1, 2, 3]


def test_entries_come_in_the_order_they_arrived_even_if_the_wall_clock_steps_back(
    buffers: ServerBuffers, clock: HandClock
) -> None:
    say(buffers, "first")
    clock.wall_error = -60.0
    say(buffers, "second")
    assert [entry.data for entry in buffers.logs(peek=True)] == ["first", "second"]
    assert [entry.data for entry in buffers.logs(limit=1)] == ["second"]


@requirement("T001-buffer-filters")
def test_a_level_means_at_least(buffers: ServerBuffers) -> None:
    for level in ("debug", "warning", "error", "emergency"):
        say(buffers, level, level=level)
    assert [entry.level for entry in buffers.logs(level="warning")] == ["warning", "error", "emergency"]
    assert [entry.level for entry in buffers.logs()] == ["debug"]


def test_a_limit_takes_the_newest_and_leaves_the_rest(buffers: ServerBuffers) -> None:
    say(buffers, *range(4))
    assert [entry.data for entry in buffers.logs(limit=0)] == []
    assert [entry.data for entry in buffers.logs(limit=3)] == [1, 2, 3]
    assert [entry.data for entry in buffers.logs(limit=3)] == [0]


def test_equal_entries_are_taken_one_by_one(buffers: ServerBuffers) -> None:
    say(buffers, "same", "same", "same")
    assert [len(buffers.logs(limit=1)) for _ in range(4)] == [1, 1, 1, 0]


@requirement("T001-buffer-filters")
def test_a_source_or_a_server_takes_only_its_own(buffers: ServerBuffers) -> None:
    for server in SERVERS:
        for source in SOURCES:
            buffers.add_log(server, source, {"data": f"{server} {source}"})
    assert [entry.data for entry in buffers.logs("a", source="stderr")] == ["a stderr"]
    assert [entry.data for entry in buffers.logs("c")] == []
    assert [entry.data for entry in buffers.logs(source="stderr")] == ["b stderr"]
    assert [entry.data for entry in buffers.logs()] == ["a protocol", "b protocol"]


class LogsTakenOnce(RuleBasedStateMachine):
    """The buffers beside one list per server: an entry is taken once, or was pushed out by newer ones."""

    limit = 5

    def __init__(self) -> None:
        super().__init__()
        self.clock = HandClock()
        self.buffers = ServerBuffers(self.clock, max_logs=self.limit)
        self.model: dict[str, list[LogEntry]] = {server: [] for server in SERVERS}
        self.taken: list[LogEntry] = []

    @rule(server=st.sampled_from(SERVERS), source=st.sampled_from(SOURCES), level=st.sampled_from(LOG_LEVELS))
    def add(self, server: str, source: LogSource, level: LogLevel) -> None:
        self.clock.elapsed += 1
        data = self.clock.elapsed
        self.buffers.add_log(server, source, {"level": level, "data": data})
        entry = LogEntry(server, self.clock.now(), source, level, None, data)
        self.model[server] = [*self.model[server], entry][-self.limit :]

    @rule(
        server=st.none() | st.sampled_from(SERVERS),
        source=st.none() | st.sampled_from(SOURCES),
        level=st.sampled_from(LOG_LEVELS),
        limit=st.none() | st.integers(0, 6),
        peek=st.booleans(),
    )
    def read(
        self, server: str | None, source: LogSource | None, level: LogLevel, limit: int | None, peek: bool
    ) -> None:
        wanted = [
            entry
            for entry in self.everything()
            if server in (None, entry.server)
            and source in (None, entry.source)
            and LOG_LEVELS.index(entry.level) >= LOG_LEVELS.index(level)
        ]
        newest = wanted if limit is None else wanted[max(0, len(wanted) - limit) :]
        assert self.buffers.logs(server, source=source, level=level, limit=limit, peek=peek) == newest
        if not peek:
            assert [entry for entry in newest if entry in self.taken] == []
            self.taken += newest
            self.model = {name: [each for each in found if each not in newest] for name, found in self.model.items()}

    def everything(self) -> list[LogEntry]:
        return sorted((entry for entries in self.model.values() for entry in entries), key=lambda each: each.data)

    @invariant()
    def what_was_not_taken_is_there(self) -> None:
        assert self.buffers.logs(peek=True) == self.everything()


TestLogsTakenOnce = LogsTakenOnce.TestCase
TestLogsTakenOnce.settings = STATEFUL
