"""The modern era towards clients: every request says all that is needed to answer it, and there is no session.

State is kept by the principal and the workspace that a request names, whatever connection it came on.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, TypeAlias

from mcp.shared.inbound import InboundLadderRejection, classify_inbound_request
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    SERVER_INFO_META_KEY,
)
from mcp_types.methods import CACHEABLE_METHODS
from mcp_types.version import SUPPORTED_PROTOCOL_VERSIONS

from emceepee.core.tasks import Task
from emceepee.errors import PeerError, TaskNotFound
from emceepee.front.client import ClientFacts
from emceepee.front.jsonrpc import Request, answered
from emceepee.front.outcomes import AskedBack, BecameTask, Outcome
from emceepee.front.request_state import Continuation, NotOurState, Opened, RequestStates, digest_of, is_of_a_hub
from emceepee.front.served import ServedRequest
from emceepee.front.service import Service
from emceepee.front.subscriptions import Subscription
from emceepee.front.task_forms import extension_task, input_requests
from emceepee.front.visit import Visit
from emceepee.hub import Hub, Origin, Session
from emceepee.ids import secure_ids
from emceepee.protocol import RESOURCE_NOT_FOUND, TASKS_EXTENSION

__all__ = ["ModernRequests", "client_of"]

JsonObject: TypeAlias = dict[str, Any]

DEFAULT_WORKSPACE = "default"

NOT_IN_THIS_ERA = frozenset(
    {
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "tasks/list",
        "tasks/result",
    }
)

NO_CACHING: JsonObject = {"ttlMs": 0, "cacheScope": "private"}
"""What we say of results that come with no hint: servers of the handshake era tell of changes instead."""


def client_of(request: Request, headers: Mapping[str, str] | None = None) -> ClientFacts:
    """What a request says of its client.

    Raises:
        PeerError: it does not say all that it has to, or its headers say something else.
    """
    body = {"method": request.method, "params": dict(request.params)}
    # White space around a header's value is none of it (RFC 9110), and not every HTTP parser takes it away.
    stripped = None if headers is None else {name: value.strip() for name, value in headers.items()}
    verdict = classify_inbound_request(body, headers=stripped)
    if isinstance(verdict, InboundLadderRejection):
        data = verdict.data
        if isinstance(data, dict) and "supported" in data:
            data = {**data, "supported": list(SUPPORTED_PROTOCOL_VERSIONS)}
        raise PeerError(verdict.code, verdict.message, data)
    if not isinstance(verdict.client_capabilities, Mapping):
        raise PeerError(INVALID_PARAMS, f"{CLIENT_CAPABILITIES_META_KEY} has to be an object")
    return ClientFacts.of_request(
        verdict.protocol_version, verdict.client_capabilities, verdict.client_info, request.params
    )


class ModernRequests:
    """Answers requests of any modern client; one for all of a front."""

    def __init__(self, hub: Hub, *, may_spawn: bool) -> None:
        self._hub = hub
        self._may_spawn = may_spawn

    @cached_property
    def _states(self) -> RequestStates:
        # Not before the first request: until the store is open, nobody knows the key.
        limits = self._hub.settings.limits
        lifetime = (limits.question_timeout_ms + limits.tasks.retention_ms) / 1000
        clock = self._hub.clock
        return RequestStates(self._hub.secret("request_state"), clock, secure_ids(clock), lifetime=lifetime)

    async def respond(
        self,
        service: Service,
        client: ClientFacts,
        request: Request,
        served: ServedRequest,
        *,
        principal: str,
        workspace: str | None,
        headers: Mapping[str, str] | None = None,
    ) -> JsonObject:
        """The response message; `workspace` is the one that the URL names."""

        async def run() -> JsonObject:
            session = await self._session(service, client, request, principal, workspace)
            visit = Visit(self._hub, session, client, request, served, may_spawn=self._may_spawn, headers=headers)
            with session.in_use(), session.in_logs():
                try:
                    return await self._answer(service, visit)
                except PeerError as error:
                    raise _of_this_era(error) from error

        return await answered(request, run)

    async def _session(
        self, service: Service, client: ClientFacts, request: Request, principal: str, workspace: str | None
    ) -> Session:
        name = service.workspace_of(request) or workspace or DEFAULT_WORKSPACE
        facts = client.as_json() if service.endpoint else {}
        return await self._hub.workspace(Origin(principal, name, service.endpoint, facts))

    async def _answer(self, service: Service, visit: Visit) -> JsonObject:
        if visit.method in NOT_IN_THIS_ERA:
            raise PeerError(METHOD_NOT_FOUND, f"Method not found: {visit.method}")
        match visit.method:
            case "server/discover":
                introduction = await service.introduce(visit.session, visit.client)
                return _discovery(introduction)
            case "subscriptions/listen":
                return await Subscription(service, visit, self._find_task).run()
            case "tasks/get" | "tasks/update" | "tasks/cancel":
                return await self._answer_about_task(visit)
        outcome = await self._outcome(service, visit)
        return await self._in_this_era(service, visit, outcome)

    async def _outcome(self, service: Service, visit: Visit) -> Outcome:
        state = visit.params.get("requestState")
        if not self._states.is_ours(state):
            if is_of_a_hub(state) and not await service.may_issue_states(visit):
                raise _refused_state(service, NotOurState("is not one that was issued here"))
            return await service.answer(visit)
        opened = self._open(service, visit, str(state))
        task_id = opened.continuation.task_id
        session = self._hub.sessions.get(opened.continuation.session_id)
        if session is None or session.is_closing:
            raise PeerError(INVALID_PARAMS, "The call that asked is gone: call again")
        if opened.nonce in session.spent_states:
            raise _refused_state(service, NotOurState("was used already"))
        answers = _checked_answers(session, task_id, visit.params.get("inputResponses", {}))
        # Not before: an answer that cannot be taken must not cost the client its call.
        session.spent_states.add(opened.nonce, opened.expires_at, self._hub.clock.now())
        visit.session = session
        await _give_answers(session, answers)
        return await service.go_on(visit, task_id)

    def _open(self, service: Service, visit: Visit, state: str) -> Opened:
        try:
            opened = self._states.open(visit.session.origin.principal, state)
            if opened.continuation.request != digest_of(service.endpoint, visit.method, visit.params):
                raise NotOurState("belongs to another request")
        except NotOurState as error:
            raise _refused_state(service, error) from None
        return opened

    async def _in_this_era(self, service: Service, visit: Visit, outcome: Outcome) -> JsonObject:
        session = visit.session
        if isinstance(outcome, BecameTask):
            task = session.state.tasks.get(outcome.task_id)
            return {"resultType": "task", **extension_task(session, task, visit.client, is_new=True)}
        if isinstance(outcome, AskedBack):
            questions = session.state.questions.pending(task_id=outcome.task_id)
            request = digest_of(service.endpoint, visit.method, visit.params)
            state = self._states.issue(session.origin.principal, Continuation(session.id, outcome.task_id, request))
            asked = input_requests(questions)
            return {"resultType": "input_required", "inputRequests": asked, "requestState": state}
        if visit.method in CACHEABLE_METHODS:
            outcome = {**NO_CACHING, **outcome}
        return {"resultType": "complete", **outcome}

    # Tasks of the extension

    async def _answer_about_task(self, visit: Visit) -> JsonObject:
        if not visit.client.knows_tasks:
            required: JsonObject = {"extensions": {TASKS_EXTENSION: {}}}
            raise PeerError(
                MISSING_REQUIRED_CLIENT_CAPABILITY,
                f"{visit.method} needs the client capability {TASKS_EXTENSION}",
                {"requiredCapabilities": required},
            )
        session, task = self._find_task(visit.session.origin.principal, visit.params.get("taskId"))
        match visit.method:
            case "tasks/get":
                # Whoever asks wants to know now, and not when the server is next due to be asked.
                session.calls.hurry(task.task_id)
                shown = extension_task(session, task, visit.client)
                await session.durable()
                return {"resultType": "complete", **shown}
            case "tasks/update":
                answers = _checked_answers(session, task.task_id, visit.params.get("inputResponses"))
                await _give_answers(session, answers)
            case _:
                if (call := session.calls.of_task(task.task_id)) is not None:
                    await session.calls.cancel_task(call)
        await session.durable()
        return {"resultType": "complete"}

    def _find_task(self, principal: str, task_id: object) -> tuple[Session, Task]:
        """A task by its id alone, in whichever workspace of the principal it is.

        Raises:
            PeerError: this principal has no such task.
        """
        for session in self._hub.sessions_of(principal):
            if session.origin.workspace is not None and isinstance(task_id, str):
                try:
                    return session, session.state.tasks.get(task_id)
                except TaskNotFound:
                    continue
        raise PeerError(INVALID_PARAMS, f"Task not found: {task_id}")


def _refused_state(service: Service, error: NotOurState) -> PeerError:
    way_out = "call again" if service.endpoint else "call again, or look for the task with list_tasks"
    return PeerError(INVALID_PARAMS, f"{error}: {way_out}")


def _of_this_era(error: PeerError) -> PeerError:
    code = INVALID_PARAMS if error.code == RESOURCE_NOT_FOUND else error.code
    return PeerError(code, error.message, error.data)


def _checked_answers(session: Session, task_id: str, responses: object) -> Mapping[str, Mapping[str, Any]]:
    """Answers to the task's open questions; what answers nothing that is open is ignored, as it may come twice."""
    if not isinstance(responses, Mapping):
        raise PeerError(INVALID_PARAMS, "inputResponses has to be an object, with an answer for each key")
    pending = {question.request_id: question for question in session.state.questions.pending(task_id=task_id)}
    answers = {key: answer for key, answer in responses.items() if key in pending}
    for key, answer in answers.items():
        is_elicitation = pending[key].kind == "elicitation"
        if not isinstance(answer, Mapping) or (is_elicitation and answer.get("action") not in _ACTIONS):
            raise PeerError(INVALID_PARAMS, f"The answer to {key} is not what {pending[key].kind} is answered with")
    return answers


async def _give_answers(session: Session, answers: Mapping[str, Mapping[str, Any]]) -> None:
    for key, answer in answers.items():
        await session.questions.answer(key, answer)


_ACTIONS = ("accept", "decline", "cancel")


def _discovery(introduction: Mapping[str, Any]) -> JsonObject:
    found = {key: value for key, value in introduction.items() if key != "serverInfo"}
    return {
        "resultType": "complete",
        "supportedVersions": list(SUPPORTED_PROTOCOL_VERSIONS),
        **NO_CACHING,
        **found,
        "_meta": {SERVER_INFO_META_KEY: introduction.get("serverInfo", {})},
    }
