"""The clock that stands still until a test moves it, and how times are written."""

from __future__ import annotations

import time

import anyio
import anyio.lowlevel
import pytest

from emceepee.clock import Clock, SystemClock, isoformat, sleep
from emceepee.testing.clock import EPOCH, FakeClock


async def note_after(clock: Clock, seconds: float | None, notes: list[float], rounds: int = 1) -> None:
    """Note the time after each of `rounds` waits."""
    for _ in range(rounds):
        with clock.move_on_after(seconds):
            await anyio.sleep_forever()
        notes.append(clock.monotonic())


def test_time_begins_at_its_epoch_and_stands_still() -> None:
    clock = FakeClock()
    assert (clock.now(), clock.monotonic()) == (clock.now(), clock.monotonic()) == (EPOCH, 0.0)


@pytest.mark.anyio
async def test_both_times_move_together() -> None:
    clock = FakeClock()
    await clock.advance(1.5)
    await clock.advance(0)
    await clock.advance(2)
    assert (clock.now(), clock.monotonic()) == (EPOCH + 3.5, 3.5)


@pytest.mark.anyio
async def test_a_wait_ends_at_its_moment_and_not_before() -> None:
    clock, notes = FakeClock(), list[float]()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(note_after, clock, 5.0, notes)
        await clock.advance(4.999)
        assert notes == []
        await clock.advance(0.001)
        assert notes == [5.0]


@pytest.mark.anyio
async def test_time_stops_at_each_moment_that_somebody_waits_for() -> None:
    clock, notes = FakeClock(), list[float]()
    async with anyio.create_task_group() as tasks:
        for seconds in (3.0, 1.0, 2.0, 1.0):
            tasks.start_soon(note_after, clock, seconds, notes)
        await clock.advance(10)
    assert (notes, clock.monotonic()) == ([1.0, 1.0, 2.0, 3.0], 10.0)


@pytest.mark.anyio
async def test_waits_that_begin_while_time_moves_are_kept_too() -> None:
    clock, notes = FakeClock(), list[float]()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(note_after, clock, 2.0, notes, 4)
        await clock.advance(6)
        assert notes == [2.0, 4.0, 6.0]
        await clock.advance(2)
    assert notes == [2.0, 4.0, 6.0, 8.0]


@pytest.mark.anyio
@pytest.mark.parametrize("seconds", [0.0, -1.0])
async def test_a_wait_without_time_ends_at_once(seconds: float) -> None:
    clock, notes = FakeClock(), list[float]()
    with anyio.fail_after(30):
        await note_after(clock, seconds, notes)
    assert notes == [0.0]


@pytest.mark.anyio
async def test_a_wait_without_a_limit_never_ends() -> None:
    clock, notes = FakeClock(), list[float]()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(note_after, clock, None, notes)
        await clock.advance(1e9)
        tasks.cancel_scope.cancel()
    assert notes == []


@pytest.mark.anyio
async def test_a_scope_that_was_left_in_time_cancels_nothing_later() -> None:
    clock = FakeClock()
    with clock.move_on_after(1) as scope:
        pass
    await clock.advance(2)
    await anyio.lowlevel.checkpoint()
    assert scope.cancelled_caught is False


@pytest.mark.anyio
async def test_a_scope_tells_whether_its_time_ran_out() -> None:
    clock = FakeClock()
    scopes: list[anyio.CancelScope] = []

    async def wait() -> None:
        with clock.move_on_after(1) as scope:
            scopes.append(scope)
            await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await clock.advance(1)
    assert [scope.cancelled_caught for scope in scopes] == [True]


@pytest.mark.anyio
async def test_everything_that_moving_sets_off_has_run_when_it_returns() -> None:
    clock = FakeClock()
    passed_on: list[int] = []
    send, receive = anyio.create_memory_object_stream[int](0)

    async def pass_on() -> None:
        async for number in receive:
            await anyio.lowlevel.checkpoint()
            passed_on.append(number)

    async def begin() -> None:
        with clock.move_on_after(1):
            await anyio.sleep_forever()
        for number in range(10):
            await send.send(number)
        send.close()

    async with anyio.create_task_group() as tasks, send, receive:
        tasks.start_soon(pass_on)
        tasks.start_soon(begin)
        await clock.advance(1)
        assert passed_on == list(range(10))


@pytest.mark.anyio
@pytest.mark.parametrize("seconds", [0, -1, 2.5])
async def test_sleep_takes_as_long_as_it_says(seconds: float) -> None:
    clock = FakeClock()
    woken: list[float] = []

    async def rest() -> None:
        await sleep(clock, seconds)
        woken.append(clock.monotonic())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(rest)
        await clock.advance(5)
    assert woken == [max(seconds, 0)]


@pytest.mark.anyio
async def test_the_system_clock_is_real_time() -> None:
    clock = SystemClock()
    assert abs(clock.now() - time.time()) < 5
    assert clock.monotonic() <= time.monotonic()
    with clock.move_on_after(0) as scope:
        await anyio.sleep_forever()
    assert scope.cancelled_caught


@pytest.mark.parametrize(
    ("timestamp", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (EPOCH, "2030-03-17T17:46:40.000Z"),
        (EPOCH + 0.25, "2030-03-17T17:46:40.250Z"),
        (EPOCH + 0.9996, "2030-03-17T17:46:40.999Z"),
    ],
)
def test_times_are_written_in_utc_with_milliseconds(timestamp: float, text: str) -> None:
    assert isoformat(timestamp) == text
