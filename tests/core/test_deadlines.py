"""The one queue for all timers of a session."""

from __future__ import annotations

import gc
import weakref

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from emceepee.core.deadlines import DeadlineQueue
from tests.core.clockwork import STATEFUL


def queue_of(**deadlines: float) -> DeadlineQueue[str]:
    queue: DeadlineQueue[str] = DeadlineQueue()
    for key, at in deadlines.items():
        queue.set(key, at)
    return queue


def test_an_empty_queue_has_no_next_deadline() -> None:
    queue = queue_of()
    assert (len(queue), queue.next_deadline(), queue.pop_due(1e9)) == (0, None, [])


def test_the_next_deadline_is_the_earliest_whatever_the_order_of_setting() -> None:
    assert queue_of(late=30, early=10, middle=20).next_deadline() == 10


def test_due_keys_come_out_earliest_first_and_the_rest_stays() -> None:
    queue = queue_of(c=3, a=1, d=4, b=2)
    assert queue.pop_due(3) == ["a", "b", "c"]
    assert (len(queue), "d" in queue, queue.next_deadline()) == (1, True, 4)


def test_a_deadline_is_due_at_its_very_moment() -> None:
    queue = queue_of(a=5)
    assert queue.pop_due(4.999) == []
    assert queue.pop_due(5) == ["a"]


def test_keys_of_the_same_moment_come_out_in_the_order_they_were_set() -> None:
    assert queue_of(z=1, a=1, m=1).pop_due(1) == ["z", "a", "m"]


def test_a_key_comes_due_once() -> None:
    queue = queue_of(a=1)
    assert [queue.pop_due(9), queue.pop_due(9)] == [["a"], []]


def test_setting_a_key_again_moves_it_in_either_direction() -> None:
    queue = queue_of(a=10, b=20)
    queue.set("a", 30)
    queue.set("b", 5)
    assert (len(queue), queue.get("a"), queue.get("b")) == (2, 30, 5)
    assert queue.pop_due(29) == ["b"]
    assert queue.pop_due(30) == ["a"]


def test_a_discarded_key_never_comes_due_and_discarding_twice_is_no_error() -> None:
    queue = queue_of(a=1, b=2)
    queue.discard("a")
    queue.discard("a")
    assert ("a" in queue, queue.get("a"), queue.next_deadline()) == (False, None, 2)
    assert queue.pop_due(9) == ["b"]


def test_a_key_can_be_set_again_after_it_was_discarded() -> None:
    queue = queue_of(a=1)
    queue.discard("a")
    queue.set("a", 7)
    assert (queue.pop_due(6), queue.pop_due(7)) == ([], ["a"])


def test_only_a_deadline_before_all_others_shortens_the_sleep() -> None:
    calls: list[float] = []
    queue: DeadlineQueue[str] = DeadlineQueue(lambda: calls.append(queue.next_deadline() or 0.0))
    for key, at in [("a", 10.0), ("b", 20.0), ("c", 10.0), ("d", 5.0), ("b", 1.0)]:
        queue.set(key, at)
    assert calls == [10, 5, 1]


def test_setting_one_key_over_and_over_keeps_one_deadline() -> None:
    queue = queue_of(other=1e6)
    for at in range(10_000):
        queue.set("a", at)
    assert (len(queue), queue.pop_due(9_998), queue.pop_due(9_999)) == (2, [], ["a"])


def test_a_discarded_key_is_let_go_of_as_the_queue_goes_on() -> None:
    class Key:
        pass

    queue: DeadlineQueue[Key] = DeadlineQueue()
    # Their time is far away, so they are never reached from the front.
    dead = [Key() for _ in range(500)]
    for key in dead:
        queue.set(key, 1e9)
        queue.discard(key)
    references = [weakref.ref(key) for key in dead]
    del dead, key
    last = Key()
    for at in range(200):
        queue.set(last, at)
    gc.collect()
    assert len(queue) == 1
    assert [reference for reference in references if reference() is not None] == []


class DeadlinesAgainstADict(RuleBasedStateMachine):
    """The queue beside a dict that is sorted whenever it is asked; and one sleeper, as the session's loop is."""

    keys = st.sampled_from("abcdefgh")
    times = st.integers(0, 50).map(float)

    def __init__(self) -> None:
        super().__init__()
        self.queue: DeadlineQueue[str] = DeadlineQueue(self.fall_asleep_again)
        self.model: dict[str, tuple[float, int]] = {}
        self.sets = 0
        self.now = 0.0
        self.sleeps_until: float | None = None
        self.was_woken = False

    def fall_asleep_again(self) -> None:
        self.was_woken = True

    def sleep(self) -> None:
        self.sleeps_until = self.queue.next_deadline()
        self.was_woken = False

    @rule(key=keys, after=times)
    def set(self, key: str, after: float) -> None:
        self.sets += 1
        self.model[key] = (self.now + after, self.sets)
        self.queue.set(key, self.now + after)
        if self.was_woken:
            self.sleep()

    @rule(after=times, count=st.integers(60, 150))
    def set_one_key_many_times(self, after: float, count: int) -> None:
        for number in range(count):
            self.set("a", after + number % 3)

    @rule(key=keys)
    def discard(self, key: str) -> None:
        self.model.pop(key, None)
        self.queue.discard(key)

    @rule(seconds=times)
    def let_time_pass(self, seconds: float) -> None:
        self.now += seconds
        due = sorted((at, order, key) for key, (at, order) in self.model.items() if at <= self.now)
        assert self.queue.pop_due(self.now) == [key for _, _, key in due]
        for _, _, key in due:
            del self.model[key]
        self.sleep()

    @rule()
    def ask_for_the_next_deadline(self) -> None:
        assert self.queue.next_deadline() == min((at for at, _ in self.model.values()), default=None)

    @invariant()
    def it_holds_what_the_dict_holds(self) -> None:
        assert len(self.queue) == len(self.model)
        for key in "abcdefgh":
            assert (key in self.queue) == (key in self.model)
            assert self.queue.get(key) == (self.model[key][0] if key in self.model else None)

    @invariant()
    def nobody_oversleeps(self) -> None:
        if self.model:
            assert self.sleeps_until is not None
            assert self.sleeps_until <= min(at for at, _ in self.model.values())


TestDeadlinesAgainstADict = DeadlinesAgainstADict.TestCase
TestDeadlinesAgainstADict.settings = STATEFUL
