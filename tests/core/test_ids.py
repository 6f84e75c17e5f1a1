"""Identifiers: unguessable ones, and ones that sort."""

from __future__ import annotations

import os
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ulid import ULID

from emceepee.ids import MonotonicIds, secure_ids
from tests.core.clockwork import EXAMPLES, START, HandClock
from tests.requirements import requirement


@requirement("T000-ids")
def test_a_secure_id_is_a_ulid_of_its_millisecond(clock: HandClock) -> None:
    clock.elapsed = 0.25
    new_id = secure_ids(clock)()
    assert len(new_id) == 26
    assert ULID.from_str(new_id).milliseconds == int(START * 1000) + 250


@requirement("T000-ids")
def test_secure_ids_of_one_millisecond_have_fresh_randomness_each(clock: HandClock) -> None:
    new_id = secure_ids(clock)
    random_parts = sorted(int.from_bytes(ULID.from_str(new_id()).bytes[6:]) for _ in range(200))
    gaps = [after - before for before, after in pairwise(random_parts)]
    # 200 draws of 80 bits: the closest pair is about 2**65 apart; counting up would make it 1.
    assert min(gaps) > 2**32


@requirement("T000-ids")
def test_secure_ids_of_later_milliseconds_sort_later(clock: HandClock) -> None:
    new_id = secure_ids(clock)
    made = []
    for _ in range(20):
        made.append(new_id())
        clock.elapsed += 0.002
    assert made == sorted(made)


@requirement("T001-event-ids")
def test_event_ids_of_one_millisecond_sort_in_the_order_they_were_made(clock: HandClock) -> None:
    new_id = MonotonicIds(clock)
    made = [new_id() for _ in range(1000)]
    assert made == sorted(set(made))
    assert {ULID.from_str(event_id).milliseconds for event_id in made} == {int(START * 1000)}


def test_event_ids_begin_anywhere_in_each_millisecond(clock: HandClock) -> None:
    new_id = MonotonicIds(clock)
    parts = set()
    for _ in range(20):
        clock.elapsed += 0.002
        parts.add(ULID.from_str(new_id()).bytes[6:])
    assert len(parts) == 20


def test_counting_up_from_the_highest_randomness_does_not_overflow(
    clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "urandom", lambda size: b"\xff" * size)
    new_id = MonotonicIds(clock)
    made = [new_id() for _ in range(100)]
    assert made == sorted(set(made))
    assert {len(event_id) for event_id in made} == {26}


@requirement("T001-event-ids")
@EXAMPLES
@given(steps=st.lists(st.floats(-10, 10), min_size=1, max_size=50))
def test_event_ids_grow_strictly_even_if_the_wall_clock_steps_back(steps: list[float]) -> None:
    clock = HandClock()
    new_id = MonotonicIds(clock)
    made = []
    for step in steps:
        clock.wall_error += step
        made.append(new_id())
    assert made == sorted(set(made))
