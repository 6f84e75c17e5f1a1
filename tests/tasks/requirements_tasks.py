"""What documents 002, 003 and 004 promise of tasks, sentence by sentence, as the design has it."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["TASK_REQUIREMENTS"]

REQUESTOR = {
    "002-unit-stream": "call_tool_stream tells of the task, of its changes, and ends with the result.",
    "002-unit-events": "Every change of a task's life is a typed event that anyone may follow.",
    "002-unit-methods": "get_task, get_task_result, cancel_task and list_tasks ask the server, and tell what it said.",
    "002-unit-elicitation": "A question inside a task is linked to the task through related-task.",
    "002-unit-capability": "A call is made a task where server and tool allow it, and nowhere else.",
    "002-integration-server": "All of it works against servers that support tasks.",
    "002-integration-create": "A call of a tool creates a task at such a server.",
    "002-integration-stream": "The task's changes arrive while it runs.",
    "002-integration-cancel": "Cancelling a task ends it at its server.",
    "002-integration-resume": "A task that waits for input asks, is answered, and goes on.",
}

RECEIVER = {
    "003-FR-1": "The client declares tasks.requests.sampling.createMessage.",
    "003-FR-2": "The client declares tasks.requests.elicitation.create.",
    "003-FR-3": "A request with params.task is told from one without.",
    "003-FR-4": "Every task has an id of its own.",
    "003-FR-5": "A request with params.task is answered with a CreateTaskResult at once.",
    "003-FR-6": "The question goes on after that, without anybody waiting.",
    "003-FR-7": "A task is working, then input_required, then completed, failed or cancelled, and nothing after that.",
    "003-FR-8": "tasks/get gives the task as it is.",
    "003-FR-9": "tasks/result waits for the end of the task and gives its result.",
    "003-FR-10": "tasks/list gives all tasks in pages.",
    "003-FR-11": "tasks/cancel cancels the task and gives it back.",
    "003-FR-12": "notifications/tasks/status is sent on every change.",
    "003-FR-13": "A result names its task in io.modelcontextprotocol/related-task.",
    "003-FR-14": "A task is forgotten when its TTL is over.",
    "003-FR-15": "Cancelling a task that has ended is error -32602.",
    "003-NFR-1": "Task ids come from a secure source.",
    "003-NFR-2": "One server's tasks are unknown to every other.",
    "003-NFR-3": "Expired tasks leave nothing behind.",
    "003-UT-1": "A thousand tasks have a thousand ids.",
    "003-UT-2": "A transition that does not exist is refused.",
    "003-UT-3": "The answer ends the wait of tasks/result.",
    "003-UT-4": "Cancelling a task takes its question back.",
    "003-UT-5": "Cancelling a task that has ended is refused.",
    "003-UT-6": "After its TTL a task is not found.",
    "003-IT-1": "Sampling with a task is answered with a CreateTaskResult before anybody has answered the question.",
    "003-IT-2": "tasks/get gives the current status.",
    "003-IT-3": "tasks/result comes back after the user's answer.",
    "003-IT-4": "tasks/cancel cancels the task, and whoever shows the question is told.",
    "004-options": "Without receiver_tasks nothing is declared, and params.task is ignored.",
    "004-ttl": "The TTL is the server's wish, or else the setting: a number, or a function that is asked each time.",
    "004-notify": "A status notification that cannot be sent breaks nothing.",
    "004-decline": "Declining is an answer and completes the task; rejecting fails it.",
    "004-disconnect": "The end of the connection ends its tasks.",
    "004-e2e-sampling": "A server asks for sampling with a task, polls, and its tool gives back what was answered.",
    "004-e2e-elicitation": "The same for an elicitation that is answered, declined or rejected.",
}

TASK_REQUIREMENTS: Mapping[str, str] = {**REQUESTOR, **RECEIVER}
