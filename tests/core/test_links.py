"""When a link tries again, and when it gives up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emceepee.core.backoff import Backoff
from emceepee.core.links import STABLE_SECONDS, LinkIdentity, LinkLife, Retry
from emceepee.errors import ImpossibleTransition
from tests.requirements import requirement

MIDDLE = 0.5
"""The chance that leaves a delay as it is."""


@given(attempt=st.integers(1, 10_000), chance=st.floats(0, 1))
def test_delays_double_from_one_second_to_three_minutes_give_or_take_a_tenth(attempt: int, chance: float) -> None:
    expected = min(2.0 ** min(attempt - 1, 60), 180.0)
    delay = Backoff().delay(attempt, chance)
    assert expected * 0.9 <= delay <= expected * 1.1 or delay == pytest.approx(expected, rel=0.1001)


def test_a_server_that_was_never_there_is_in_error_and_is_tried_again() -> None:
    life = LinkLife(Backoff())
    life.connecting()
    assert life.failed("refused", 0.0, MIDDLE) == Retry(1, 1.0)
    assert (life.status, life.last_error) == ("error", "refused")
    life.connecting()
    assert life.failed("refused", 0.0, MIDDLE) == Retry(2, 2.0)


def test_a_lost_server_is_missed_and_the_delay_starts_small_again_after_a_good_time() -> None:
    life = LinkLife(Backoff())
    for expected in (1.0, 2.0, 4.0):
        life.connecting()
        life.connected(LinkIdentity(), now=0.0)
        assert life.failed("gone", 1.0, MIDDLE) == Retry(life._failures, expected)
        assert life.status == "reconnecting"
    life.connecting()
    life.connected(LinkIdentity(), now=100.0)
    assert life.failed("gone", 100.0 + STABLE_SECONDS, MIDDLE) == Retry(1, 1.0)


def test_a_program_gets_five_restarts_and_then_waits_for_somebody_to_ask() -> None:
    life = LinkLife(Backoff(), budget=5)
    for attempt in range(1, 6):
        life.connecting()
        assert life.failed("crashed", 0.0, MIDDLE) == Retry(attempt, 2.0 ** (attempt - 1))
    life.connecting()
    assert life.failed("crashed", 0.0, MIDDLE) is None
    assert (life.status, life.has_given_up) == ("error", True)
    life.forgive()
    assert not life.has_given_up
    life.connecting()
    assert life.failed("crashed", 0.0, MIDDLE) == Retry(1, 1.0)


@requirement("T001-restart-or-blip")
@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        (LinkIdentity("s", ("n", "1")), LinkIdentity("s", ("n", "1")), "network_blip"),
        (LinkIdentity("s", ("n", "1")), LinkIdentity("t", ("n", "1")), "restart"),
        (LinkIdentity("s", ("n", "1")), LinkIdentity("s", ("n", "2")), "restart"),
        (LinkIdentity(process_id=1), LinkIdentity(process_id=2), "restart"),
        (LinkIdentity(), LinkIdentity(), "network_blip"),
    ],
)
def test_what_changed_over_a_reconnect_tells_a_restart_from_a_blip(
    before: LinkIdentity, after: LinkIdentity, kind: str
) -> None:
    life = LinkLife(Backoff())
    life.connecting()
    assert life.connected(before, 0.0) is None
    life.failed("gone", 1.0, MIDDLE)
    life.connecting()
    assert life.connected(after, 2.0) == kind


def test_a_link_that_was_closed_on_purpose_stays_closed() -> None:
    life = LinkLife(Backoff())
    life.closed("Server removed")
    with pytest.raises(ImpossibleTransition):
        life.connecting()
