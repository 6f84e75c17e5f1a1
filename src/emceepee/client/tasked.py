"""Calling a tool that may answer with a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from typing import Any, TypeAlias

from emceepee.client.events import (
    EventFeed,
    TaskCancelledEvent,
    TaskCompletedEvent,
    TaskCreated,
    TaskFailedEvent,
    TaskStatus,
)
from emceepee.client.following import EVENLY, Follower
from emceepee.client.inbound import Inbound
from emceepee.client.interactive import InteractiveRequest
from emceepee.client.listening import Listener
from emceepee.client.resumption import Resumption
from emceepee.client.tasks import (
    MAX_REFUSALS,
    PATIENCE,
    RemoteStatus,
    RemoteTask,
    fetch_task,
    immediate_response,
    is_created_task,
    is_of_unknown_task,
    parse_task,
)
from emceepee.errors import ConnectionLost, PeerError, WireError
from emceepee.protocol import REQUEST_CANCELLED
from emceepee.wire.era import Era
from emceepee.wire.peer import OnProgress, Peer

__all__ = ["TaskRunner"]

JsonObject: TypeAlias = dict[str, Any]

MAX_TASKS = 1000
"""Tasks that are remembered per connection; the oldest that has ended goes first."""

OnTask: TypeAlias = Callable[[TaskCreated | TaskStatus], None]


class TaskRunner:
    """Makes task-capable calls on one connection, keeps a cache of their tasks, and tells what happens to them."""

    def __init__(self, peer: Peer, inbound: Inbound, era: Era, listener: Listener, events: EventFeed) -> None:
        self.tasks: dict[str, RemoteTask] = {}
        """Every task that was heard of on this connection, as of the last time."""
        self.era = era
        """As the connection's, with the tasks extension declared."""
        self._peer = peer
        self._inbound = inbound
        self._listener = listener
        self._events = events

    async def call(
        self,
        params: Mapping[str, Any],
        origin: object,
        *,
        on_progress: OnProgress | None = None,
        on_task: OnTask = lambda _update: None,
        headers: Mapping[str, str] | None = None,
        resumption: Resumption | None = None,
        era: Era | None = None,
        passes_questions: Callable[[], bool] = lambda: False,
        passes_urls: bool = False,
    ) -> JsonObject:
        """Call a tool and return its result, whether or not a task came in between."""
        resumption = resumption or Resumption()
        if resumption.server_task is not None:
            return await self.take_up(resumption, origin, on_task)
        request = InteractiveRequest(
            self._peer,
            self._inbound,
            "tools/call",
            params,
            origin,
            era=era or self.era,
            resumption=resumption,
            passes_questions=passes_questions,
            passes_urls=passes_urls,
        )
        result = await request.run(on_progress=on_progress, headers=headers)
        if not is_created_task(result):
            return result
        created = TaskCreated(parse_task(result.get("task", result)), immediate_response(result))
        resumption.server_task = created.task
        self.note(created.task)
        self._events.emit(created)
        on_task(created)
        with self._inbound.origins.late_progress(request.request_id, on_progress):
            return await self._follow(created.task, resumption, origin, on_task)

    async def take_up(
        self, resumption: Resumption, origin: object, on_task: OnTask = lambda _update: None
    ) -> JsonObject:
        """Go on with a task that was begun on another connection, or by somebody else."""
        if resumption.server_task is None:
            raise PeerError(-32602, "there is no task to take up")
        task = await self._found(resumption.server_task.task_id)
        on_task(TaskStatus(task))
        return await self._follow(task, resumption, origin, on_task)

    async def _found(self, task_id: str) -> RemoteTask:
        """The server's word on a task, asked for until it comes or the connection is over."""
        refusals = 0
        for tries in count(1):
            try:
                return await self.get(task_id)
            except PeerError as error:
                refusals += 1
                if is_of_unknown_task(error) or refusals >= MAX_REFUSALS:
                    raise
            except ConnectionLost:
                if self._peer.is_over:
                    raise
            # The connection may stand and the server be cut off all the same: to ask at once would be to ask for ever.
            with self._peer.clock.move_on_after(PATIENCE.delay(tries, EVENLY)):
                await self._peer.closed.wait()
        raise AssertionError("unreachable")

    async def get(self, task_id: str) -> RemoteTask:
        """The server's word on one of its tasks."""
        task = await fetch_task(self._peer, self.era, task_id)
        self.note(task)
        self._events.emit(TaskStatus(task))
        return task

    async def _follow(self, task: RemoteTask, resumption: Resumption, origin: object, on_task: OnTask) -> JsonObject:
        def changed(latest: RemoteTask) -> None:
            self.note(latest)
            self._events.emit(TaskStatus(latest))
            on_task(TaskStatus(latest))

        follower = Follower(self._peer, self._inbound, self.era, origin, on_task=changed, resumption=resumption)
        self._listener.add_task(task.task_id)
        try:
            result = await follower.follow(task)
        except ConnectionLost:
            raise
        except WireError as error:
            is_cancelled = isinstance(error, PeerError) and error.code == REQUEST_CANCELLED
            self._note_end(task.task_id, "cancelled" if is_cancelled else "failed")
            self._events.emit(
                TaskCancelledEvent(task.task_id) if is_cancelled else TaskFailedEvent(task.task_id, error)
            )
            raise
        finally:
            self._listener.remove_task(task.task_id)
        self._note_end(task.task_id, "completed")
        self._events.emit(TaskCompletedEvent(task.task_id, result))
        return result

    def _note_end(self, task_id: str, status: RemoteStatus) -> None:
        """The task has ended, which its status may not have said yet."""
        if (known := self.tasks.get(task_id)) is not None and not known.is_terminal:
            self.note(replace(known, status=status))

    def note(self, task: RemoteTask) -> None:
        """Remember the newest word on a task; a terminal one is the last."""
        known = self.tasks.get(task.task_id)
        if known is None or not known.is_terminal:
            self.tasks[task.task_id] = task
        if len(self.tasks) > MAX_TASKS:
            ended = (task_id for task_id, other in self.tasks.items() if other.is_terminal)
            del self.tasks[next(ended, next(iter(self.tasks)))]
