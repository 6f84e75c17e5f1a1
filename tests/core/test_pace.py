"""The pace at which a source may be read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emceepee.pace import PAUSE_SECONDS, Pace
from tests.core.clockwork import EXAMPLES, HandClock


def test_a_burst_is_taken_without_waiting(clock: HandClock) -> None:
    pace = Pace(clock, burst=100, per_second=10)
    assert [pace.take() for _ in range(100)] == [0.0] * 100


def test_beyond_the_burst_one_waits_until_it_is_paid_for(clock: HandClock) -> None:
    pace = Pace(clock, burst=100, per_second=10)
    pace.take(100)
    assert pace.take(5) == pytest.approx(0.5)
    clock.elapsed += 0.5
    assert pace.take(1) == pytest.approx(0.1)


def test_short_waits_are_put_together(clock: HandClock) -> None:
    pace = Pace(clock, burst=10, per_second=1000)
    waits = [pace.take() for _ in range(30)]
    assert waits == [0.0] * 29 + [pytest.approx(PAUSE_SECONDS)]


def test_a_rest_fills_the_bucket_and_no_more(clock: HandClock) -> None:
    pace = Pace(clock, burst=10, per_second=1)
    pace.take(10)
    clock.elapsed += 1000
    assert pace.take(10) == 0.0
    assert pace.take(1) == pytest.approx(1.0)


def test_what_is_not_to_be_had_at_once_is_not_taken(clock: HandClock) -> None:
    pace = Pace(clock, burst=2, per_second=1)
    assert [pace.try_take() for _ in range(4)] == [True, True, False, False]
    clock.elapsed += 1
    assert [pace.try_take() for _ in range(2)] == [True, False]


def test_a_huge_piece_costs_one_burst(clock: HandClock) -> None:
    assert Pace(clock, burst=10, per_second=1).take(1e9) == 0.0


@given(pieces=st.lists(st.floats(0.1, 20), min_size=1, max_size=60))
@EXAMPLES
def test_who_waits_as_told_takes_no_more_than_the_burst_and_the_rate(pieces: list[float]) -> None:
    clock = HandClock()
    pace = Pace(clock, burst=20, per_second=5)
    taken = 0.0
    for piece in pieces:
        taken += piece
        clock.elapsed += pace.take(piece)
        assert taken <= 20 + 5 * (clock.elapsed + PAUSE_SECONDS) + 1e-6
