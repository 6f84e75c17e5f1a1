"""`subscriptions/listen`: one request whose response stream carries what a modern client wants to be told of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from typing import Any, TypeAlias

import anyio
from mcp_types import INVALID_PARAMS

from emceepee.core.tasks import Task
from emceepee.errors import PeerError, TaskNotFound
from emceepee.front.service import Service
from emceepee.front.task_forms import extension_task
from emceepee.front.visit import Visit
from emceepee.hub import Session
from emceepee.protocol import SUBSCRIPTION_ID_META_KEY, with_meta

__all__ = ["Subscription"]

JsonObject: TypeAlias = dict[str, Any]
FindTask: TypeAlias = Callable[[str, object], tuple[Session, Task]]

_FLAG_OF_METHOD: Mapping[str, str] = {
    "notifications/tools/list_changed": "toolsListChanged",
    "notifications/prompts/list_changed": "promptsListChanged",
    "notifications/resources/list_changed": "resourcesListChanged",
}


class Subscription:
    """One stream: acknowledged first, then every notification that it asked for, until the client hangs up."""

    def __init__(self, service: Service, visit: Visit, find_task: FindTask) -> None:
        wanted = visit.params.get("notifications")
        if not isinstance(wanted, Mapping):
            raise PeerError(INVALID_PARAMS, "subscriptions/listen needs notifications: what to listen for")
        self._service = service
        self._visit = visit
        self._find_task = find_task
        self._meta = {SUBSCRIPTION_ID_META_KEY: visit.request.id}
        heard = wanted if service.tells_changes else {}
        self._flags = {flag for flag in _FLAG_OF_METHOD.values() if heard.get(flag)}
        self._uris = _strings(heard.get("resourceSubscriptions"))
        self._tasks = self._known_tasks(wanted.get("taskIds")) if visit.client.knows_tasks else {}
        """The tasks to tell of, each with its home."""
        self._told: dict[str, JsonObject] = {}
        self._is_acknowledged = False
        self._early: list[tuple[str, JsonObject]] = []
        """What happened before the acknowledgement was out, which has to come first."""

    async def run(self) -> JsonObject:
        """Until the client hangs up, or we do."""
        session = self._visit.session
        with ExitStack() as stack:
            # Before the acknowledgement: what happens after it must not be missed.
            stack.callback(session.news.listen(self._on_notification))
            await self._service.listen(session, self._uris)
            stack.callback(self._service.stop_listening, session, self._uris)
            self._send("notifications/subscriptions/acknowledged", {"notifications": self._honoured()})
            self._is_acknowledged = True
            for task_id, home in self._tasks.items():
                self._watch_task(task_id, home, stack)
            for method, params in self._early:
                self._send(method, params)
            async with anyio.create_task_group() as open_stream:
                self._visit.served.on_stop = open_stream.cancel_scope.cancel
                await session.closed.wait()
        return {"resultType": "complete", "_meta": self._meta}

    def _honoured(self) -> JsonObject:
        honoured: JsonObject = dict.fromkeys(sorted(self._flags), True)
        if self._uris:
            honoured["resourceSubscriptions"] = self._uris
        if self._tasks:
            honoured["taskIds"] = list(self._tasks)
        return honoured

    def _on_notification(self, server: str, method: str, params: Mapping[str, Any]) -> None:
        passed = self._service.passed_on(server, method, params)
        if passed is None:
            return
        is_wanted = _FLAG_OF_METHOD.get(method) in self._flags or (
            method == "notifications/resources/updated" and passed.get("uri") in self._uris
        )
        if is_wanted and self._is_acknowledged:
            self._send(method, passed)
        elif is_wanted:
            self._early.append((method, passed))

    def _known_tasks(self, task_ids: object) -> dict[str, Session]:
        """Those that there are; of others there is nothing to be told."""
        found: dict[str, Session] = {}
        for task_id in _strings(task_ids):
            with suppress(PeerError):
                found[task_id], _ = self._find_task(self._visit.session.origin.principal, task_id)
        return found

    def _watch_task(self, task_id: str, session: Session, stack: ExitStack) -> None:
        def on_change(changed: str) -> None:
            if changed == task_id:
                session.spawn(self._tell_task, task_id, session)

        stack.callback(session.state.watchers.add(on_change))
        # What it is now, too: it may have changed between its last poll and this.
        on_change(task_id)

    async def _tell_task(self, task_id: str, session: Session) -> None:
        await session.durable()
        try:
            task = session.state.tasks.get(task_id)
        except TaskNotFound:
            return
        shown = extension_task(session, task, self._visit.client)
        if self._told.get(task_id) != shown:
            self._told[task_id] = shown
            self._send("notifications/tasks", shown)

    def _send(self, method: str, params: JsonObject) -> None:
        self._visit.served.send(method, with_meta(params, self._meta))


def _strings(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
