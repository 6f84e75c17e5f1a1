"""Metrics for Prometheus: what the hub tells is counted, what it holds is read when somebody asks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from emceepee.core.links import TRANSITIONS
from emceepee.core.questions import QuestionKind, QuestionState
from emceepee.core.tasks import TaskStatus
from emceepee.hub import CallOutcome, Hub, Telemetry
from emceepee.observe.snapshots import snapshot_of

__all__ = ["CONTENT_TYPE", "Metrics"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
"""From a fast call to the longest life of a task."""

LINK_STATES = tuple(TRANSITIONS)
Labelled: TypeAlias = dict[str, int]


class Metrics(Telemetry):
    """Give it to a hub as its telemetry, then `watch` the hub; `exposition` is what `/metrics` answers."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._calls = Counter("emceepee_calls", "Calls that ended.", ["server", "outcome"], registry=self._registry)
        self._duration = Histogram(
            "emceepee_call_duration_seconds",
            "Time from sending a call to its end.",
            ["server"],
            buckets=BUCKETS,
            registry=self._registry,
        )
        self._promotions = Counter(
            "emceepee_promotions", "Calls that became tasks.", ["server", "reason"], registry=self._registry
        )
        self._tasks = Counter("emceepee_tasks_ended", "Tasks that ended.", ["status"], registry=self._registry)
        self._questions = Counter(
            "emceepee_questions_settled", "Questions that were settled.", ["kind", "state"], registry=self._registry
        )
        self._connects = Counter("emceepee_link_connects", "Links that connected.", ["server"], registry=self._registry)
        self._reconnects = Counter(
            "emceepee_link_reconnects", "Links that connected again.", ["server"], registry=self._registry
        )
        self._losses = Counter("emceepee_link_losses", "Connections lost.", ["server"], registry=self._registry)
        self._evictions = Counter(
            "emceepee_events_evicted", "Events dropped from full logs.", ["delivered"], registry=self._registry
        )

    def watch(self, hub: Hub) -> None:
        self._registry.register(_Held(hub))

    def exposition(self) -> bytes:
        return generate_latest(self._registry)

    def call_ended(self, server: str, outcome: CallOutcome, seconds: float) -> None:
        self._calls.labels(server, outcome).inc()
        self._duration.labels(server).observe(seconds)

    def call_promoted(self, server: str, reason: str) -> None:
        self._promotions.labels(server, reason).inc()

    def task_ended(self, status: TaskStatus) -> None:
        self._tasks.labels(status).inc()

    def question_settled(self, kind: QuestionKind, state: QuestionState) -> None:
        self._questions.labels(kind, state).inc()

    def link_connected(self, server: str, *, again: bool) -> None:
        self._connects.labels(server).inc()
        if again:
            self._reconnects.labels(server).inc()

    def link_lost(self, server: str) -> None:
        self._losses.labels(server).inc()

    def events_evicted(self, count: int, undelivered: int) -> None:
        self._evictions.labels("false").inc(undelivered)
        self._evictions.labels("true").inc(count - undelivered)


class _Held(Collector):
    """What is there at the moment of asking."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def collect(self) -> Iterator[Metric]:
        snapshot = snapshot_of(self._hub)
        yield GaugeMetricFamily("emceepee_sessions", "Open sessions.", value=snapshot.sessions)
        yield GaugeMetricFamily("emceepee_servers", "Registered servers.", value=snapshot.servers)
        yield GaugeMetricFamily("emceepee_calls_live", "Calls in flight, tasks included.", value=snapshot.calls)
        links = {str(status): snapshot.links.get(status, 0) for status in LINK_STATES}
        yield _by_label("emceepee_links", "Links by status.", "status", links)
        yield _by_label("emceepee_tasks", "Tasks held, by status.", "status", snapshot.tasks)
        yield _by_label("emceepee_questions", "Open questions by kind.", "kind", snapshot.questions)


def _by_label(name: str, text: str, label: str, values: Labelled) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=[label])
    for value, count in values.items():
        family.add_metric([value], count)
    return family
