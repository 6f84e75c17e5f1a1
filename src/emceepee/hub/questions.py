"""The open questions of one session, between the tables and the servers that wait.

A question is recorded when it comes, the call that it belongs to becomes a task, and whichever end comes first (an
answer, the timeout, the server taking it back, the end of the call, the connection) settles both sides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from structlog import get_logger

from emceepee.client import Question as ServerQuestion
from emceepee.clock import Clock
from emceepee.core.questions import Arrival, Question, QuestionState
from emceepee.core.state import SessionState
from emceepee.errors import PeerError, ServerDisconnected
from emceepee.hub.answers import STATE_OF_ACTION, ElicitationAction, elicitation_result, sampling_result
from emceepee.hub.attendant import Attendant
from emceepee.hub.board import Board
from emceepee.hub.call import Call
from emceepee.hub.calls import CallRunner
from emceepee.hub.strays import Strays
from emceepee.hub.telemetry import Telemetry
from emceepee.protocol import INTERNAL_ERROR, RELATED_TASK_META_KEY, without_meta

__all__ = ["QuestionDesk"]

log = get_logger(__name__)


class QuestionDesk:
    """Implements `Desk` for what it posts on the principal's board."""

    def __init__(
        self,
        state: SessionState,
        calls: CallRunner,
        clock: Clock,
        telemetry: Telemetry,
        *,
        board: Board,
        has_tools: bool,
    ) -> None:
        """`has_tools` says whether the session's client can answer with our tools."""
        self._board = board
        self._has_tools = has_tools
        self._state = state
        self._calls = calls
        self._clock = clock
        self._telemetry = telemetry
        self._waiting: dict[str, ServerQuestion] = {}
        self._strays = Strays()
        self._asked: dict[str, tuple[Call, Attendant]] = {}
        """Whom a question was put to natively, beside standing in the list."""

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def asked_natively(self) -> int:
        """How many questions have been put to a client and wait for its answer."""
        return len(self._asked)

    def park(self, server: str, question: ServerQuestion) -> Question:
        """Record a question, and put it to the client, or else make a task of the call that waits for its answer."""
        call = question.belongs_to.call
        task_id = None
        if isinstance(call, Call):
            can_be_asked = call.attendant.can_ask(question.kind, question.params)
            if not can_be_asked and call.task_id is None and self._calls.is_live(call):
                self._calls.promote(call, "question")
            task_id = call.task_id
        record = self._state.questions.add(
            question.kind,
            server,
            _for_clients(question.params),
            arrival=question.arrival,
            certainty=question.belongs_to.certainty,
            task_id=task_id,
            input_key=question.input_key,
        )
        self._wait_for(record, question)
        log.info(f"{question.kind}_received", request_id=record.request_id, server=server)
        if call is None:
            self._strays.add(record.request_id, self._calls.on_server(server))
        self._place(record)
        return record

    def take_up(self, record: Question, question: ServerQuestion) -> None:
        """Go on with a question from before a restart."""
        self._wait_for(record, question)
        self._post(record, is_new=False)

    def _wait_for(self, record: Question, question: ServerQuestion) -> None:
        """Have the recorded question answered; the time of its task stands still meanwhile."""
        if record.task_id is not None:
            self._state.tasks.pause_ttl(record.task_id)
            self._say_whether_it_waits(record.task_id)
        self._waiting[record.request_id] = question
        question.on_settled(partial(self._on_settled_elsewhere, record.request_id))

    # Asking a client natively

    def attend(self, call: Call, attendant: Attendant) -> None:
        """A client waits for the call from now on, in place of any before: put to it what the call may have asked."""
        asked_before = self._take_back(call, call.attendant)
        call.attendant = attendant
        for record in self._state.questions.pending(server=call.server):
            if record.request_id in asked_before or self._call_of(record) is call:
                self._place(record)
        self._ask_idle_clients(call.server)

    def unattend(self, call: Call, attendant: Attendant) -> None:
        """The client waits for the call no longer; its questions stay in the list."""
        asked_before = self._take_back(call, attendant)
        if call.attendant is attendant:
            call.attendant = Attendant()
        for request_id in asked_before:
            if (question := self._waiting.get(request_id)) is None:
                continue
            owner = question.belongs_to.call
            # One that has an owner ends with it.
            if not isinstance(owner, Call) or self._calls.is_live(owner):
                self._place(self._state.questions.get(request_id, question.kind))

    def keep_for_task(self, call: Call) -> None:
        """The call has become a task: so have its questions, which are not asked on its stream any more."""
        for request_id, question in self._waiting.items():
            if question.belongs_to.call is call and call.task_id is not None:
                self._assign(self._state.questions.get(request_id, question.kind), call.task_id)
        self.unattend(call, call.attendant)

    def _take_back(self, call: Call, attendant: Attendant) -> list[str]:
        """Tell a client that it need not answer, at least not here; says what it was asked."""
        taken = [request_id for request_id, asked in self._asked.items() if asked == (call, attendant)]
        for request_id in taken:
            del self._asked[request_id]
            attendant.withdraw(request_id, "it goes on without this request")
        return taken

    def _call_of(self, record: Question) -> object:
        """The call that it belongs to, or is shown with."""
        return self._waiting[record.request_id].belongs_to.call or self._strays.call_of(record.request_id)

    def _ask_idle_clients(self, server: str) -> None:
        """Put strays to clients that can be asked and have nothing to answer: they may wait for just that."""
        busy = {call for call, _ in self._asked.values()}
        idle = [call for call in self._calls.on_server(server) if call not in busy]
        for record in self._state.questions.pending(server=server):
            if record.request_id not in self._asked and self._strays.can_be_put_to(idle, record):
                self._place(record)
                return

    # Where it can be answered

    def _place(self, record: Question) -> None:
        """Put it to the client that waits for its call, and show it to other sessions if need be."""
        call = self._waiting[record.request_id].belongs_to.call
        if call is None:
            record, call = self._with_a_call(record)
        if isinstance(call, Call) and call.attendant.can_ask(record.kind, record.params):
            self._asked[record.request_id] = (call, call.attendant)
            call.attendant.ask(record)
        self._post(record)

    def _with_a_call(self, stray: Question) -> tuple[Question, Call | None]:
        """The stray as it is shown with a call that lends itself, if there is one."""
        asking = Counter(question.belongs_to.call for question in self._waiting.values())
        call = self._strays.choose(stray, asking)
        if call is None:
            return self._assign(stray, None), None
        if call.task_id is None and not call.attendant.can_ask(stray.kind, stray.params):
            self._calls.promote(call, "question")
        return self._assign(stray, call.task_id), call

    def _assign(self, record: Question, task_id: str | None) -> Question:
        """Have it belong to a task, or to none; the time of a task stands still while a question of it is open."""
        if (before := record.task_id) == task_id:
            return record
        record = self._state.questions.assign(record.request_id, task_id)
        if before is not None:
            self._state.tasks.resume_ttl(before)
            self._say_whether_it_waits(before)
        if task_id is not None:
            self._state.tasks.pause_ttl(task_id)
            self._say_whether_it_waits(task_id)
        return record

    def _post(self, record: Question, *, is_new: bool = True) -> None:
        """For other sessions to see and answer, if its own has no list: its client may not be asked, or walk away."""
        if not self._has_tools:
            self._board.post(record, self, is_new=is_new)

    # How it ends

    def withdraw_of(self, call: Call) -> None:
        """The call has ended, and with it the need for answers to its questions."""
        strays = self._strays.on_call_ended(call)
        self.unattend(call, call.attendant)
        is_lost = isinstance(call.error, ServerDisconnected)
        state: QuestionState = "rejected" if is_lost else "withdrawn"
        reason = "the server disconnected" if is_lost else "the call that asked has ended"
        for request_id, question in list(self._waiting.items()):
            if question.belongs_to.call is call:
                record = self._state.questions.get(request_id, question.kind)
                self._take(record, state, reason)
                question.withdraw("lost" if is_lost else "withdrawn", reason)
        for request_id in strays:
            is_shown = self._strays.call_of(request_id) is not None
            if not is_shown and (stray := self._waiting.get(request_id)) is not None:
                self._place(self._state.questions.get(request_id, stray.kind))

    async def answer_elicitation(
        self, request_id: str, action: ElicitationAction, content: dict[str, object] | None
    ) -> Question:
        """
        Raises:
            RequestNotFound: it is not open, or not any more.
            InvalidArguments: the content does not fit its schema; the question stays open.
        """
        record = self._state.questions.get(request_id, "elicitation")
        result = elicitation_result(record, action, content)
        question = self._take(record, STATE_OF_ACTION[action])
        await question.respond(result)
        self._on_answered(record)
        return record

    async def answer_sampling(
        self,
        request_id: str,
        *,
        role: str,
        content: str | dict[str, object] | list[dict[str, object]],
        model: str,
        stop_reason: str | None = None,
    ) -> Question:
        """
        Raises:
            RequestNotFound: it is not open, or not any more.
        """
        record = self._state.questions.get(request_id, "sampling")
        question = self._take(record, "completed")
        await question.respond(sampling_result(role, content, model, stop_reason))
        self._on_answered(record)
        return record

    async def answer(self, request_id: str, result: Mapping[str, Any]) -> None:
        """Pass on the result that a client gave when it was asked natively; one that comes too late is dropped."""
        if (question := self._waiting.get(request_id)) is None:
            return
        record = self._state.questions.get(request_id, question.kind)
        state: QuestionState | None = "completed"
        if record.kind == "elicitation":
            state = STATE_OF_ACTION.get(result.get("action", ""))
        if state is None:
            await self.refuse(request_id, PeerError(INTERNAL_ERROR, "The client answered without an action"))
            return
        self._take(record, state)
        await question.respond(result)
        self._on_answered(record)

    async def refuse(self, request_id: str, error: PeerError) -> None:
        """Pass on the error that a client answered with."""
        if (question := self._waiting.get(request_id)) is None:
            return
        record = self._state.questions.get(request_id, question.kind)
        self._take(record, "rejected", error.message)
        await question.reject(error.message, error.code, error.data)
        self._on_answered(record)

    async def reject(self, request_id: str, reason: str) -> Question:
        """Tell the server of a sampling request that nobody will answer it."""
        record = self._state.questions.get(request_id, "sampling")
        question = self._take(record, "rejected", reason)
        await question.reject(reason)
        self._on_answered(record)
        return record

    async def expire(self, request_id: str) -> None:
        """Nobody answered in time: the server gets an error."""
        if (question := self._waiting.get(request_id)) is None:
            return
        record = self._state.questions.get(request_id, question.kind)
        log.warning(f"{question.kind}_timeout", request_id=request_id, server=record.server)
        self._take(record, "expired", "nobody answered in time")
        await question.reject(f"No answer within {record.expires_at - record.received_at:g} s")
        self._ask_idle_clients(record.server)

    async def reject_all(
        self, reason: str, server: str | None = None, *, spare: Collection[Arrival] = frozenset()
    ) -> None:
        """Give up the questions of a server that is going away, or of all servers, but those that came as `spare`."""
        for record in self._state.questions.pending(server=server):
            if record.arrival in spare:
                continue
            question = self._take(record, "rejected", reason)
            await question.reject(reason)

    def _take(self, record: Question, state: QuestionState, reason: str | None = None) -> ServerQuestion:
        self._state.questions.settle(record.request_id, state, reason=reason)
        self._telemetry.question_settled(record.kind, state)
        if record.task_id is not None:
            self._state.tasks.resume_ttl(record.task_id)
            self._say_whether_it_waits(record.task_id)
        if (asked := self._asked.pop(record.request_id, None)) is not None:
            asked[1].withdraw(record.request_id, reason or "it was answered elsewhere")
        self._strays.discard(record.request_id)
        self._board.settled(record.request_id, state, reason)
        return self._waiting.pop(record.request_id)

    def _on_settled_elsewhere(self, request_id: str, how: str, reason: str) -> None:
        if (question := self._waiting.get(request_id)) is None:
            return
        record = self._state.questions.get(request_id, question.kind)
        self._take(record, "withdrawn" if how == "withdrawn" else "rejected", reason)

    def _say_whether_it_waits(self, task_id: str) -> None:
        """Of a task of ours: what a server's own task does, its server says."""
        task = self._state.tasks.get(task_id)
        if task.is_terminal or task.origin == "native":
            return
        waiting = self._state.questions.pending(task_id=task_id)
        text = f"waits for an answer to {waiting[0].request_id}" if waiting else "goes on after an answer"
        self._state.tasks.update(task_id, status_message=text)

    def _on_answered(self, record: Question) -> None:
        duration_ms = round((self._clock.now() - record.received_at) * 1000)
        log.info(f"{record.kind}_responded", request_id=record.request_id, duration_ms=duration_ms)
        self._ask_idle_clients(record.server)


def _for_clients(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """A question's parameters without the server's own id of the task that asks."""
    return without_meta(params, {RELATED_TASK_META_KEY})
