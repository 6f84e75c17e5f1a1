"""A session is over when it was idle for its time, and a restart is no activity."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emceepee.core.idling import GRACE, SHARE, Idleness
from tests.core.clockwork import EXAMPLES, START, HandClock

IDLE = 1800.0


class Life:
    """A session as its owner keeps it: looked at when it is due, killed and brought back at any moment."""

    def __init__(self, clock: HandClock) -> None:
        self.clock = clock
        self.saved = [clock.now()]
        self.idleness = Idleness(clock, IDLE, self.saved.append)

    def restart(self) -> None:
        self.idleness = Idleness(self.clock, IDLE, self.saved.append, saved_at=self.saved[-1])

    def use(self) -> None:
        self.idleness.touch()

    def ends_at(self) -> float:
        while not self.idleness.is_over():
            self.clock.elapsed = self.idleness.next_look()
        return self.clock.elapsed


@pytest.fixture
def life(clock: HandClock) -> Life:
    return Life(clock)


def test_a_session_that_nobody_uses_is_over_when_its_time_is_up(life: Life) -> None:
    assert life.ends_at() == IDLE
    assert life.saved == [START]


def test_activity_moves_the_end_and_is_written_down_now_and_then(life: Life) -> None:
    for _ in range(100):
        life.clock.elapsed += 10
        life.use()
    assert life.saved == [START, START + 450, START + 900]
    assert life.ends_at() == 1000 + IDLE


def test_restarts_do_not_prolong_what_nobody_uses(life: Life) -> None:
    for _ in range(30):
        life.clock.elapsed += 60
        life.restart()
        assert not life.idleness.is_over()
    assert life.ends_at() == IDLE * (1 + SHARE)


def test_time_goes_on_while_the_hub_is_down_but_clients_get_a_minute_to_come_back(life: Life) -> None:
    life.clock.elapsed = 2 * IDLE
    life.restart()
    assert life.ends_at() == 2 * IDLE + GRACE


def test_a_session_that_may_be_idle_for_less_than_a_minute_gets_that(clock: HandClock) -> None:
    idleness = Idleness(clock, 15, lambda _at: None, saved_at=clock.now() - 1000)
    assert idleness.next_look() == 15 * SHARE
    clock.elapsed = 14.9
    assert not idleness.is_over()
    clock.elapsed = 15
    assert idleness.is_over()


def test_a_client_that_comes_back_is_written_down_again(life: Life) -> None:
    life.clock.elapsed = 1000
    life.restart()
    life.use()
    assert life.saved == [START, START + 1000]


@pytest.mark.parametrize("error", [-1e6, 1e6])
def test_a_wall_clock_that_was_put_wrong_is_no_crash(life: Life, error: float) -> None:
    life.clock.wall_error = error
    life.restart()
    assert life.ends_at() == (GRACE if error > 0 else IDLE)


@EXAMPLES
@given(st.lists(st.integers(1, 1799), max_size=20), st.integers(0, 1799))
def test_no_restart_costs_a_session_any_of_its_time(pauses: list[int], down: int) -> None:
    life = Life(HandClock())
    used_at = 0.0
    for pause in pauses:
        life.clock.elapsed += pause
        life.use()
        used_at = life.clock.elapsed
    life.clock.elapsed += down
    life.restart()
    assert used_at + IDLE <= life.ends_at() <= used_at + IDLE * (1 + SHARE)
