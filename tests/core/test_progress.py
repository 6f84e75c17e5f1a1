"""One growing sequence from a server's progress and our own heartbeats."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emceepee.core.progress import HEARTBEAT_STEP, ProgressRelay
from tests.core.clockwork import EXAMPLES


def test_a_servers_progress_is_passed_on_as_it_is() -> None:
    relay = ProgressRelay()
    assert relay.passed_on(1, 4, "one of four") == {"progress": 1, "total": 4, "message": "one of four"}
    assert relay.passed_on(2.5, None, None) == {"progress": 2.5}


def test_a_total_of_zero_and_an_empty_message_are_passed_on() -> None:
    assert ProgressRelay().passed_on(0, 0, "") == {"progress": 0, "total": 0, "message": ""}


def test_silence_is_filled_from_zero_upwards() -> None:
    relay = ProgressRelay()
    beats = [relay.heartbeat("still working") for _ in range(3)]
    assert [beat["message"] for beat in beats] == ["still working"] * 3
    assert [beat["progress"] for beat in beats] == pytest.approx([0, HEARTBEAT_STEP, 2 * HEARTBEAT_STEP])


def test_a_heartbeat_stands_just_above_the_servers_last_value() -> None:
    relay = ProgressRelay()
    relay.passed_on(7, 10, None)
    assert relay.heartbeat("still working") == {"progress": 7 + HEARTBEAT_STEP, "message": "still working"}
    assert relay.passed_on(8, 10, None) == {"progress": 8, "total": 10}


def test_a_value_that_does_not_grow_is_lifted() -> None:
    relay = ProgressRelay()
    relay.passed_on(5, None, None)
    assert relay.passed_on(5, None, "again")["progress"] > 5
    assert relay.passed_on(1, None, "back")["progress"] > 5


def test_an_hour_of_heartbeats_does_not_overtake_the_servers_next_whole_step() -> None:
    relay = ProgressRelay()
    relay.passed_on(3, 10, None)
    for _ in range(3600 // 15):
        relay.heartbeat("still working")
    assert relay.passed_on(4, 10, None)["progress"] == 4


@EXAMPLES
@given(news=st.lists(st.none() | st.floats(-1e9, 1e9) | st.integers(-1000, 1000), min_size=2, max_size=60))
def test_progress_grows_strictly_whatever_the_server_sends(news: list[float | None]) -> None:
    relay = ProgressRelay()
    sent = [relay.heartbeat("") if value is None else relay.passed_on(value, None, None) for value in news]
    assert [after for before, after in pairwise(sent) if after["progress"] <= before["progress"]] == []


@pytest.mark.parametrize("huge", [2.0**45, 1.8e18, 1e300])
def test_progress_grows_beside_huge_values(huge: float) -> None:
    relay = ProgressRelay()
    relay.passed_on(huge, None, None)
    assert relay.heartbeat("")["progress"] > huge


@pytest.mark.parametrize("odd", [math.nan, math.inf])
def test_a_value_that_is_no_finite_number_is_not_passed_on(odd: float) -> None:
    relay = ProgressRelay()
    sent = [relay.passed_on(value, None, None)["progress"] for value in (odd, 1, odd, 2)]
    assert all(math.isfinite(value) for value in sent)
    assert sent == sorted(set(sent))
