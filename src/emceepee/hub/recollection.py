"""Calls that sleep until a question is answered, written down so that the next hub goes on with them.

That is possible where neither the call nor its question lives on a connection: a call whose server answered
`input_required`, and a task with open `inputRequests`. `client/resumption.py` knows what such a call needs. Its answers
are sent once: they are forgotten here, durably, before they go out, and a call that was in flight when the hub ended
has failed like any other. Answers to a task's inputs may be sent twice, since they have a key.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from structlog import get_logger

from emceepee.client import Question as ServerQuestion
from emceepee.client import RemoteTask, Resumption
from emceepee.core.questions import SURVIVING_ARRIVALS, Belonging, Question
from emceepee.core.state import SessionState
from emceepee.core.tasks import Task
from emceepee.hub.call import Call
from emceepee.hub.calls import CallRunner
from emceepee.hub.journal import SessionMemories, StoreJournal, WaitingCall
from emceepee.hub.link import Link
from emceepee.hub.questions import QuestionDesk
from emceepee.hub.work import Forwarded, ToolCall, Work, work_of

__all__ = ["Recollection"]

log = get_logger(__name__)

RESTARTED = "the hub restarted"


@dataclass(frozen=True, slots=True)
class Recollection:
    """Of one session; `find_link` gives None for a server that is not there any more."""

    state: SessionState
    calls: CallRunner
    desk: QuestionDesk
    journal: StoreJournal
    durable: Callable[[], Awaitable[None]]
    find_link: Callable[[str], Link | None]

    # While the hub runs

    def on_question(self, question: ServerQuestion) -> None:
        """A question was parked: if it survives a restart, so must the call that it belongs to."""
        call = question.belongs_to.call
        if question.arrival in SURVIVING_ARRIVALS and isinstance(call, Call) and self.calls.is_live(call):
            call.resumption.keeper = _Keeper(self, call)
            self._save_answer_of(call, question)
            self.save(call)

    def on_native(self, call: Call) -> None:
        """A task is its server's: what we have open there for it, the next hub has to know of."""
        if call.resumption.keeper is None:
            call.resumption.keeper = _Keeper(self, call)
            if call.resumption.result_request is not None:
                self.save(call)

    def save(self, call: Call) -> None:
        if call.task_id is not None and self.calls.is_live(call):
            waiting = WaitingCall(
                call.work.method, call.resumption.as_json(), is_forwarded=isinstance(call.work, Forwarded)
            )
            self.journal.save_waiting_call(call.task_id, waiting)

    async def forget_durably(self, call: Call) -> None:
        if call.task_id is not None:
            self.journal.forget_waiting_call(call.task_id)
            await self.durable()

    def on_call_ended(self, call: Call) -> None:
        if call.task_id is not None and call.resumption.keeper is not None:
            self.journal.forget_waiting_call(call.task_id)

    def _save_answer_of(self, call: Call, question: ServerQuestion) -> None:
        question.on_settled(lambda how, _reason: self.save(call) if how == "answered" else None)

    # After a restart

    def recall(self, memories: SessionMemories) -> None:
        """Put back what is known from before a restart; calls that nobody can go on with have failed."""
        self.state.events.restore(memories.events, memories.events_lost)
        for server, kept in memories.server_sessions.items():
            self.journal.server_sessions.restore(server, kept)
        for server, wishes in memories.wishes.items():
            self.journal.restore_wishes(server, wishes)
            if (link := self.find_link(server)) is not None:
                # It is waited for what the server has to say, and not only for answers.
                link.start()
        for nonce, expires_at in memories.spent_states.items():
            self.journal.spent_states.restore(nonce, expires_at)
        questions = list(memories.questions)
        for task in memories.tasks:
            self.state.tasks.restore(task)
            if task.is_terminal:
                continue
            self.journal.server_sessions.on_task(task)
            waiting = memories.waiting_calls.get(task.task_id)
            call = self._try_to_take_up(task, waiting)
            if call is None:
                self.state.tasks.finish(task.task_id, "failed", error=self._why_it_ended(task, waiting))
                self.journal.forget_waiting_call(task.task_id)
                continue
            questions = [question for question in questions if not self._asked_again(question, call)]
        for question in questions:
            self.state.questions.restore(question)
            self.state.questions.settle(question.request_id, "rejected", reason=RESTARTED)

    def _why_it_ended(self, task: Task, waiting: WaitingCall | None) -> str:
        """Of a task that is not taken up: one that could have been may lack nothing but its server."""
        could_go_on = task.server_task_id is not None or waiting is not None
        if could_go_on and self.find_link(task.server) is None:
            return f"{RESTARTED}, and there is no server {task.server!r} any more"
        return RESTARTED

    def _try_to_take_up(self, task: Task, waiting: WaitingCall | None) -> Call | None:
        try:
            return self._taken_up(task, waiting)
        except Exception:
            # Whatever is wrong with one call, the session and its other calls are needed.
            log.exception("task_not_taken_up", server=task.server, tool=task.tool, task_id=task.task_id)
            return None

    def _taken_up(self, task: Task, waiting: WaitingCall | None) -> Call | None:
        """The call of a task, if there is a way to go on with it."""
        resumption = Resumption() if waiting is None else Resumption.from_json(waiting.resumption)
        if task.server_task_id is not None:
            resumption.server_task = RemoteTask(task.server_task_id, "working", None, None, task.poll_interval_ms, {})
        if not resumption.is_possible or (link := self.find_link(task.server)) is None:
            return None
        work: Work = ToolCall(task.tool, task.args)
        if waiting is not None:
            work = work_of(waiting.method, task.tool, task.args, is_forwarded=waiting.is_forwarded)
        call = self.calls.take_up(link, task, work, resumption)
        resumption.keeper = _Keeper(self, call)
        return call

    def _asked_again(self, record: Question, call: Call) -> bool:
        """Whether a question is one that this call still waits for; then it is open as before."""
        entry = call.resumption.input(record.arrival, record.input_key) if record.task_id == call.task_id else None
        if entry is None or entry.answer is not None:
            return False
        entry.question = ServerQuestion(
            record.kind,
            record.params,
            arrival=record.arrival,
            belongs_to=Belonging(call, record.certainty),
            input_key=record.input_key,
        )
        self.state.questions.restore(record)
        self.desk.take_up(record, entry.question)
        self._save_answer_of(call, entry.question)
        return True


@dataclass(frozen=True, slots=True)
class _Keeper:
    """Implements `ResumptionKeeper` for one call."""

    recollection: Recollection
    call: Call

    def on_change(self) -> None:
        self.recollection.save(self.call)

    async def before_retry(self) -> None:
        await self.recollection.forget_durably(self.call)
