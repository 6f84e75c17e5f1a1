"""What the core's operations cost with 10,000 entries behind them, against 100: `python -m bench.scaling [--json]`.

Each operation is timed in batches on a session state that holds that many events, tasks or questions; the sizes take
turns within one run, and the medians are divided. A ratio near 1 means that history costs nothing. Setting and taking
deadlines is O(log n), the rest O(1). A scattered lookup meets entries that are in no cache of the processor when there
are many: that is what the row beside it, where the same tasks are asked for again, leaves out.
"""

import argparse
import gc
import json
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from time import perf_counter_ns
from typing import Any, Literal

from emceepee.clock import SystemClock
from emceepee.core.events import Event
from emceepee.core.questions import Question
from emceepee.core.state import SessionLimits, SessionState
from emceepee.core.tasks import Task
from emceepee.core.timers import Timer

Filling = Literal["events", "tasks", "questions"]

SIZES = (100, 10_000)

BATCH = 10
"""Operations per timing: a tenth of the smaller size, so that a batch does not change what it measures."""

REPEATS = 10
"""How often each task of a batch is looked up where it is asked for again."""

STRIDE = 7919
"""A prime that visits the entries of either size in a scattered order."""

ARGS: Mapping[str, Any] = {"guests": 2}


class World:
    """A session state with `size` entries behind it; nothing in it comes due during a run."""

    def __init__(self, filling: Filling, size: int) -> None:
        self.size = size
        self.used = 0
        self.state = SessionState(SystemClock(), SessionLimits(max_events=1_000_000))
        self.tasks: list[Task] = []
        for _ in range(size):
            match filling:
                case "events":
                    self.append()
                case "tasks":
                    self.tasks.append(self.create())
                case "questions":
                    self.ask()
        self.state.events.read_new()
        self.first_deadline = self.state.deadlines.next_deadline() or 0.0

    def create(self) -> Task:
        return self.state.tasks.create("demo", "book", ARGS)

    def ask(self) -> Question:
        return self.state.questions.add("elicitation", "demo", ARGS, arrival="request", certainty="exact")

    def append(self) -> Event:
        return self.state.events.append("notification", "demo", ARGS)

    def scattered(self) -> list[str]:
        """The ids of a batch of tasks, other ones each time."""
        self.used += BATCH
        return [self.tasks[number * STRIDE % self.size].task_id for number in range(self.used - BATCH, self.used)]

    @property
    def is_worn(self) -> bool:
        """Whether the operations on it have made it half as large again: then a new one takes its place."""
        return len(self.state.events) >= 1.5 * self.size


def timed(steps: Sequence[Callable[[], object]]) -> int:
    began = perf_counter_ns()
    for step in steps:
        step()
    return perf_counter_ns() - began


def append(world: World) -> int:
    return timed([world.append] * BATCH)


def read_new(world: World) -> int:
    spent = 0
    for _ in range(BATCH):
        world.append()
        spent += timed([world.state.events.read_new])
    return spent


def wake(world: World) -> int:
    spent = 0
    for _ in range(BATCH):
        world.state.events.add_waiter(lambda _event: None)
        spent += timed([world.append])
    return spent


def read_after(world: World) -> int:
    cursor = world.append().id
    world.append()
    return timed([lambda: world.state.events.read_after(cursor)] * BATCH)


def look_up_scattered(world: World) -> int:
    return _look_up(world, world.scattered())


def look_up_again(world: World) -> int:
    task_ids = world.scattered()
    _look_up(world, task_ids)
    return round(_look_up(world, task_ids * REPEATS) / REPEATS)


def _look_up(world: World, task_ids: Sequence[str]) -> int:
    get = world.state.tasks.get
    began = perf_counter_ns()
    for task_id in task_ids:
        get(task_id)
    return perf_counter_ns() - began


def create_task(world: World) -> int:
    made: list[Task] = []
    spent = timed([lambda: made.append(world.create())] * BATCH)
    for task in made:
        world.state.tasks.finish(task.task_id, "completed")
        world.state.tasks.forget(task.task_id)
    return spent


def finish_task(world: World) -> int:
    made = [world.create().task_id for _ in range(BATCH)]
    finish = world.state.tasks.finish
    began = perf_counter_ns()
    for task_id in made:
        finish(task_id, "completed")
    spent = perf_counter_ns() - began
    for task_id in made:
        world.state.tasks.forget(task_id)
    return spent


def add_question(world: World) -> int:
    made: list[Question] = []
    spent = timed([lambda: made.append(world.ask())] * BATCH)
    for question in made:
        world.state.questions.settle(question.request_id, "accepted")
    return spent


def settle_question(world: World) -> int:
    made = [world.ask().request_id for _ in range(BATCH)]
    settle = world.state.questions.settle
    began = perf_counter_ns()
    for request_id in made:
        settle(request_id, "accepted")
    return perf_counter_ns() - began


def set_deadline(world: World) -> int:
    timers = [Timer("call", str(number)) for number in range(BATCH)]
    put = world.state.deadlines.set
    at = world.first_deadline + 100.0
    began = perf_counter_ns()
    for timer in timers:
        put(timer, at)
    spent = perf_counter_ns() - began
    for timer in timers:
        world.state.deadlines.discard(timer)
    return spent


def pop_deadline(world: World) -> int:
    at = world.first_deadline - 100.0
    for number in range(BATCH):
        world.state.deadlines.set(Timer("call", str(number)), at)
    return timed([lambda: world.state.deadlines.pop_due(at)])


OPERATIONS: Mapping[str, tuple[Filling, Callable[[World], int]]] = {
    "append an event": ("events", append),
    "read what is new": ("events", read_new),
    "read after a cursor": ("events", read_after),
    "append, waking a waiter": ("events", wake),
    "look up a task again": ("tasks", look_up_again),
    "look up scattered tasks": ("tasks", look_up_scattered),
    "create a task": ("tasks", create_task),
    "finish a task": ("tasks", finish_task),
    "add a question": ("questions", add_question),
    "settle a question": ("questions", settle_question),
    "set a deadline": ("tasks", set_deadline),
    "pop a due deadline": ("tasks", pop_deadline),
}


def measure(rounds: int) -> dict[str, Any]:
    """Nanoseconds per operation at each size, and the ratio of the medians."""
    samples: dict[str, dict[int, list[float]]] = {name: {size: [] for size in SIZES} for name in OPERATIONS}
    worlds: dict[tuple[Filling, int], World] = {}
    order = list(SIZES)
    for _ in range(rounds):
        for name, (filling, operation) in OPERATIONS.items():
            for size in order:
                world = worlds.get((filling, size))
                if world is None or world.is_worn:
                    world = worlds[filling, size] = World(filling, size)
                samples[name][size].append(_one_batch(operation, world) / BATCH)
        order.reverse()
    return {
        "sizes": list(SIZES),
        "rounds": rounds,
        "batch": BATCH,
        "operations": {name: _figures(by_size) for name, by_size in samples.items()},
    }


def _one_batch(operation: Callable[[World], int], world: World) -> int:
    """A batch without the garbage collector, whose passes would fall on whichever operation comes next."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return operation(world)
    finally:
        if was_enabled:
            gc.enable()


def _figures(by_size: Mapping[int, Sequence[float]]) -> dict[str, Any]:
    medians = {size: median(found) for size, found in by_size.items()}
    small, large = (medians[size] for size in SIZES)
    return {"ns": {str(size): round(value, 1) for size, value in medians.items()}, "ratio": round(large / small, 2)}


def table(report: Mapping[str, Any]) -> str:
    small, large = report["sizes"]
    lines = [f"{'median ns per operation':<26}{f'at {small:,}':>12}{f'at {large:,}':>12}{'ratio':>8}"]
    for name, found in report["operations"].items():
        ns = found["ns"]
        lines.append(f"{name:<26}{ns[str(small)]:>12.0f}{ns[str(large)]:>12.0f}{found['ratio']:>8.2f}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.scaling", description="Measure how the core scales.")
    parser.add_argument("--rounds", type=int, default=200, help="batches of each operation (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    report = measure(options.rounds)
    print(json.dumps(report, indent=2) if options.json else table(report))


if __name__ == "__main__":
    main()
