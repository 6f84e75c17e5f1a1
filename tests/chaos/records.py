"""What the clients have seen, and whether it is what was promised.

Nothing is asked of the hub here. A call's record begins before it is sent; its end is written exactly once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Literal, TypeAlias

__all__ = ["CallRecord", "Outcome", "Records", "SeenEvent"]

JsonObject: TypeAlias = dict[str, Any]
Outcome: TypeAlias = Literal["completed", "failed", "cancelled", "expired", "lost with the hub"]

RETOLD_WINDOW_S = 10.0
"""How long before a kill an event may have been told that is told again after it: its deletion was not written yet.
That takes milliseconds where the disk is not busy."""

TERMINAL_EVENTS = {
    "task_completed": "completed",
    "task_failed": "failed",
    "task_cancelled": "cancelled",
    "task_expired": "expired",
}


@dataclass
class CallRecord:
    tag: str
    server: str
    tool: str
    args: JsonObject
    session: str
    task_id: str | None = None
    outcome: Outcome | None = None
    reason: str | None = None
    """The code of an error, or what a failed task said."""
    was_promoted: bool = False
    was_abandoned: bool = False
    answers: list[str] = field(default_factory=list)
    """The actions that the hub said it has sent to the server."""


@dataclass
class SeenEvent:
    first_life: int
    first_at: float
    type: str
    data: JsonObject
    lives: Counter[int] = field(default_factory=Counter)


class Records:
    def __init__(self) -> None:
        self.calls: dict[str, CallRecord] = {}
        self.events: dict[str, dict[str, SeenEvent]] = {}
        """By session, then by event id."""
        self.violations: list[str] = []
        self.counts: Counter[str] = Counter()
        self.events_lost: Counter[str] = Counter()
        """By session: what the hub itself said was lost."""
        self.cut_responses: Counter[str] = Counter()
        """By session: requests that got no answer because the hub was killed or the client gave up."""
        self.cut_events: list[str] = []
        """What is missing, and was probably in one of these."""
        self.kills: list[tuple[int, float]] = []
        """The life that a kill of the hub ended, and when."""

    def begin(self, call: CallRecord) -> CallRecord:
        self.calls[call.tag] = call
        return call

    def end(self, call: CallRecord, outcome: Outcome, reason: str | None = None) -> None:
        if call.outcome is not None:
            self.wrong(f"call {call.tag} ended twice: {call.outcome}, then {outcome}")
        call.outcome, call.reason = outcome, reason

    def wrong(self, what: str) -> None:
        self.violations.append(what)

    def saw_events(self, session: str, life: int, events: list[JsonObject], *, lost: int, replay: bool) -> None:
        seen = self.events.setdefault(session, {})
        self.events_lost[session] += lost
        for event in events:
            known = seen.get(event["id"])
            if known is None:
                known = seen[event["id"]] = SeenEvent(life, monotonic(), event["type"], event["data"])
            elif replay:
                self.counts["events told again because a client asked"] += 1
            elif known.lives[life]:
                self.wrong(f"event {event['id']} ({event['type']}) was told twice in life {life} of the hub")
            elif known.first_life != life:
                self._retold(known, event)
            if not replay:
                # What was asked for again may be on its way in another response, too.
                known.lives[life] += 1

    def _retold(self, known: SeenEvent, event: JsonObject) -> None:
        self.counts["events told again after a kill of the hub"] += 1
        killed_at = next((at for life, at in self.kills if life == known.first_life), None)
        if killed_at is None or killed_at - known.first_at > RETOLD_WINDOW_S:
            self.wrong(f"event {event['id']} ({event['type']}) was told again long after it was told first")

    # Judging, when all is over

    def judge(self, answered_by_servers: list[JsonObject]) -> None:
        reached = {entry["tag"] for entry in answered_by_servers}
        for call in self.calls.values():
            if call.outcome is None:
                self.wrong(f"call {call.tag} ({call.tool} at {call.server}) never ended")
            if call.answers and call.outcome == "completed" and call.tag not in reached:
                self.wrong(f"the answer of call {call.tag} was said to be sent, and its server knows nothing of it")
        for session, seen in self.events.items():
            self._judge_events(session, seen)

    def _judge_events(self, session: str, seen: dict[str, SeenEvent]) -> None:
        """Every task was announced once and its end told once; every notification before a completed answer came."""
        created: Counter[str] = Counter()
        ended: dict[str, list[str]] = {}
        notes: Counter[tuple[str, int]] = Counter()
        for event in seen.values():
            task_id = event.data.get("task_id")
            if event.type == "task_created":
                created[str(task_id)] += 1
            elif event.type in TERMINAL_EVENTS:
                ended.setdefault(str(task_id), []).append(TERMINAL_EVENTS[event.type])
            elif event.type == "notification" and event.data.get("method") == "notifications/chaos/note":
                notes[(event.data["params"]["tag"], event.data["params"]["n"])] += 1
        for key, count in (created + notes).items():
            if count > 1:
                self.wrong(f"{key} was told in {count} different events")
        missing: list[str] = []
        for call in self.calls.values():
            if call.session == session:
                missing += self._missing(call, created, ended, notes)
        allowed = self.events_lost[session]
        if not missing:
            return
        if len(missing) <= allowed:
            self.counts["events lost and reported lost"] += len(missing)
        elif self.cut_responses[session]:
            # Its bytes were in a response that a kill cut off; counted, and looked at by whoever reads the table.
            self.counts["events in a response that a kill of the hub cut"] += len(missing)
            self.cut_events += missing
        else:
            self.wrong(f"events are missing in {session}: {missing}")

    def _missing(
        self, call: CallRecord, created: Counter[str], ended: dict[str, list[str]], notes: Counter[tuple[str, int]]
    ) -> list[str]:
        missing = []
        if call.task_id is not None:
            ends = ended.get(call.task_id, [])
            if created[call.task_id] == 0:
                missing.append(f"task_created of {call.tag}")
            if not ends and call.outcome is not None:
                missing.append(f"{call.outcome} of {call.tag}")
            elif len(ends) > 1 or (ends and ends[0] != call.outcome):
                self.wrong(f"task {call.task_id} is {call.outcome} and was told to be {ends}")
        if call.tool == "note" and call.outcome == "completed":
            missing += [f"note {n} of {call.tag}" for n in range(call.args["count"]) if notes[(call.tag, n)] == 0]
        return missing

    def table(self, title: str) -> str:
        outcomes = Counter(str(call.outcome) for call in self.calls.values())
        rows: list[tuple[str, int]] = [("calls", len(self.calls))]
        rows += [(f"  {outcome}", count) for outcome, count in sorted(outcomes.items())]
        rows += [
            ("  of these: became a task", sum(call.was_promoted for call in self.calls.values())),
            ("  of these: the client gave up waiting", sum(call.was_abandoned for call in self.calls.values())),
            ("questions answered", sum(len(call.answers) for call in self.calls.values())),
            ("events told", sum(len(seen) for seen in self.events.values())),
            *sorted(self.counts.items()),
            ("broken promises", len(self.violations)),
        ]
        width = max(len(name) for name, _ in rows) + 2
        return "\n".join([title, *(f"  {name:<{width}}{count:>8}" for name, count in rows)])
