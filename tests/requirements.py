"""What the design promises, sentence by sentence, and the marker with which a test says which of it it proves.

The ids name the document that a promise comes from: `T000` and `T001` for behaviour, `P000` and `P001` for the items of
the documents' own test plans. Where the documents and the design disagree, the sentence is the design's.
`tests/test_requirements.py` sees to it that every promise has a test and that every id in a test is one of these.

    @requirement("T000-promote-timeout", "P000-unit-promotion")
    async def test_a_call_that_outlives_its_timeout_becomes_a_task() -> None: ...
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

__all__ = ["AREAS", "LATER", "REQUIREMENTS", "requirement"]

requirement = pytest.mark.requirement

TASKS = {
    "T000-fast-call-no-task": "A call that ends within its timeout gives the server's result; no task is made or told.",
    "T000-promote-timeout": "A call that outlives its timeout becomes a working task, and the client is told at once.",
    "T000-default-timeout": "Without a timeout_ms, a call is waited for two minutes.",
    "T000-timeout-zero": "A timeout of 0 makes a task at once.",
    "T000-call-goes-on": "A promoted call goes on at its server, and its result completes the task.",
    "T000-promote-question": "A question that provably belongs to a call makes it a task at once.",
    "T000-task-fields": "A task is shown with id, origin, server, tool, status, times, TTL and progress.",
    "T000-task-states": "A task is working, then completed, failed, cancelled or expired; a terminal state stays.",
    "T000-task-completed": "A result completes the task, an isError result too.",
    "T000-task-failed": "A protocol error of the server fails the task with that error.",
    "T000-task-disconnect": "The loss of the server fails its tasks.",
    "T000-task-cancelled": "cancel_task ends the task, and the server is told to stop.",
    "T000-task-expired": "A task that outlives its TTL is expired, the server is told to stop, and its result is gone.",
    "T000-ttl": "The TTL is the default or the call's own, and never more than the cap.",
    "T000-ttl-from-creation": "The TTL runs from the task's creation; news of the task does not prolong it.",
    "T000-ttl-paused": "The TTL stands still while a question of the task is open.",
    "T000-retention": "An ended task, an expired one too, is kept for the retention time and then forgotten.",
    "T000-max-tasks": "More live calls and tasks than the limit are refused before anything is sent.",
    "T000-late-result": "A result that comes after cancel or expiry is dropped with a log line.",
    "T000-concurrent-calls": "Calls run side by side, each with a timeout of its own.",
    "T000-several-rounds": "A call may ask several times; its task is working until the call itself ends.",
    "T000-ids": "Ids are ULIDs from secure randomness that sort by time.",
    "T000-client-returns": "A client that gave up waiting finds its call with list_tasks, get_task or await_activity.",
    "T000-progress": "Progress reaches the client while it waits, and stands in the task afterwards.",
    "T001-task-table": "Tasks are found by id, by server and by status, live ones without the ended.",
    "T001-task-timers": "An ended or forgotten task leaves no timer behind.",
}

QUESTIONS = {
    "T000-question-parked": "A question stays pending, and its server waits, until the client answers.",
    "T000-elicitation-answers": "accept, decline and cancel each reach the server that asked.",
    "T000-answer-unblocks": "The answer lets the tool go on, and its task ends with the result.",
    "T000-sampling-answer": "An answer to a sampling request reaches the server as text or as content blocks.",
    "T000-sampling-reject": "A rejected sampling request is error -1 to its server.",
    "T000-question-timeout": "A question that nobody answers in time is an error to its server, and is told.",
    "T000-question-own-timeout": "A question has a timeout of its own, ten minutes, apart from every task's TTL.",
    "T000-question-disconnect": "The loss of the server rejects its questions, and that is told.",
    "T000-question-withdrawn": "A question that its server takes back, or whose call ends, is withdrawn and told.",
    "T000-question-states": "Each kind of question has its own ends, and leaves pending once.",
    "T000-question-belongs": "A question names its task with a certainty: exact, sole or unknown.",
    "T000-question-everywhere": "An open question of a server stands in every task response of that server.",
    "T000-question-once": "A second answer is refused and told what became of the question.",
    "T000-content-checked": "The content of an answer is checked against the requested schema before it is sent.",
    "T000-url-mode": "A question in URL mode is accepted without content.",
    "T001-question-timers": "A question that is settled, whatever way, leaves no timer behind.",
    "T001-question-shutdown": "Closing a session or the hub rejects what is open.",
    "T001-question-told": "A question that comes, and one that ends without an answer, is an event.",
}

EVENTS = {
    "T001-event-shape": "An event has id, created_at, type, server and data.",
    "T001-event-once": "An event is told exactly once.",
    "T001-event-order": "New events come flat and oldest first.",
    "T001-event-any-response": "Any tool's response carries what is new.",
    "T001-event-errors": "An error costs the client none of its events.",
    "T001-event-ids": "Event ids grow strictly, within a millisecond and when the wall clock steps back.",
    "T001-event-task-data": "A task's events name task and tool, with ttl_ms or error where there is one.",
    "T001-event-question-data": "A question's events carry the question, or its id and the reason of its end.",
    "T001-event-server-data": "A server's events carry its name and what changed.",
    "T001-event-notification": "A server's notification is an event with its method and params.",
    "T001-event-eviction": "A full log drops its oldest tenth.",
    "T001-event-warning": "Evictions are logged, and so is a log that is four fifths full.",
    "T001-events-lost": "Events that were evicted untold are counted in the next response.",
    "T001-event-session": "Every session has its own events and hears of no other's.",
    "T001-event-waiters": "One event wakes all waiters.",
    "T001-event-no-logs": "Logs are never events.",
    "T001-server-added": "A new server is told to every other session, without another session's id.",
    "T001-server-removed": "A removed server is told to all sessions.",
}

AWAIT_ACTIVITY = {
    "T000-await-immediate": "What is undelivered comes back at once.",
    "T000-await-wake": "A notification, a question or a task's end ends the wait.",
    "T000-await-timeout": "A wait without activity ends at its timeout with that trigger.",
    "T000-await-default": "Without a timeout_ms, await_activity waits 30 seconds.",
    "T000-await-triggers": "triggers says what ended the wait; several can stand together.",
    "T000-await-disconnect": "The loss of a server is a trigger of its own.",
    "T000-await-by-server": "events are grouped by server.",
    "T000-await-pending-server": "pending_server has every live task, by server, whatever was delivered.",
    "T000-await-pending-client": "pending_client has every open question, whatever was delivered.",
    "T000-await-empty": "Nothing new is an empty list, never a missing key.",
    "T000-await-not-logs": "A log message does not end the wait.",
    "T000-await-concurrent": "Concurrent waits all end; the first carries the events, the rest the same trigger.",
    "T001-await-cursor": "last_event_id resumes after that event and never moves delivery back.",
    "T001-await-unknown-cursor": "An unknown cursor gives all that is kept, with a warning.",
}

BUFFERS = {
    "T001-buffer-notifications": "The newest 100 notifications of each server are kept.",
    "T001-buffer-logs": "The newest 500 log entries of each server are kept.",
    "T001-buffer-read": "Reading takes out what it gives; peeking does not.",
    "T001-buffer-disconnect": "Buffers outlive a disconnect.",
    "T001-buffer-per-server": "A full buffer costs other servers nothing.",
    "T001-buffer-filters": "Logs are filtered by server, level, source and number.",
}

TOOLS = {
    "T000-list-tasks": "list_tasks filters by server and status; ended tasks are listed only if asked for.",
    "T000-get-task": "get_task shows the task with args and error, and the open elicitations of its server.",
    "T000-get-task-result": "get_task_result waits for the task and gives the server's result untouched.",
    "T000-result-default-wait": "Without a timeout_ms, get_task_result waits as long as the task's TTL runs.",
    "T000-result-not-yet": "A task that still works at the timeout is told as that, which is no error.",
    "T000-result-question": "A question of the task ends the wait for its result.",
    "T000-result-errors": "A failed, cancelled or expired task is an error result with a code of its own.",
    "T000-cancel-task": "cancel_task says whether it succeeded, and does not for a task that has ended.",
    "T000-get-elicitations": "get_elicitations lists the open elicitations of all servers.",
    "T001-get-sampling": "get_sampling_requests lists the open sampling requests of all servers.",
    "T001-add-server": "add_server connects this session and returns capabilities and tools.",
    "T001-add-server-update": "The same name again updates the server; the same entry changes nothing.",
    "T001-add-server-unreachable": "A server that cannot be reached stays registered, and the result says why.",
    "T001-remove-server": "remove_server fails the server's tasks and rejects its questions in every session.",
    "T001-list-servers": "list_servers shows every server with the state of this session's link to it.",
    "T001-reconnect-server": "reconnect_server makes a new connection.",
    "T001-list-tools": "list_tools goes by pattern, with schemas on demand and each tool's task support.",
    "T001-resources": "Resources and templates are listed with their server, and read; a slow read becomes a task.",
    "T001-subscriptions": "Updates of a subscribed resource come as events.",
    "T001-prompts": "Prompts are listed with their server, and filled in; one that asks becomes a task.",
    "T001-tool-list": "All meta-tools are listed, each described with all of its inputs, in at most 14 KB.",
    "T001-tool-annotations": "A tool's annotations say what it does: a reading tool is read-only, removing destroys.",
    "T001-error-codes": "A failure is an error result with a stable code, a sentence and what to do.",
    "T001-validation": "Wrong arguments are refused with every problem named, before anything is done.",
}

RESPONSES = {
    "T000-response-verbatim": "A server's result passes through with isError, structuredContent, _meta and the rest.",
    "T000-response-bare": "Without events and questions, a result is the server's own and nothing else.",
    "T000-response-blocks": "Events and open questions follow the result as two blocks of JSON, each only if needed.",
    "T000-response-pending": "Open questions ride on every response until they are settled.",
    "T000-response-promotion": "A promotion names task and next step, then proxy_task and what pends on this server.",
    "T000-response-not-meta": "What the hub says stands in the content, never in _meta.",
    "T000-response-get-task": "get_task answers with task and pending_elicitations_for_server.",
    "T000-response-await": "await_activity answers in one block with triggers, events, both pendings and a cursor.",
    "T000-response-keys": "Keys of ours are snake_case, and a question or a task reads the same everywhere.",
}

SESSIONS = {
    "T001-session-own-links": "Each session has its own connection to each server; its questions reach it alone.",
    "T001-session-connects": "A new session connects to all configured servers in the background.",
    "T001-session-failure": "A server that cannot be reached does not fail the session.",
    "T001-session-idle": "A session that is idle for 30 minutes is closed; a live call, task or request keeps it.",
    "T001-session-close": "Closing a session ends its calls, questions, waits and links, and no other session's.",
    "T001-session-limit": "More sessions than the limit are refused.",
    "T001-shutdown": "Closing the hub ends every session side by side; nothing is left running.",
}

LINKS = {
    "T001-reconnect": "A lost link reconnects by itself, with backoff and jitter, and at once when it is needed.",
    "T001-reconnect-told": "Reconnecting and the reconnect are told as events.",
    "T001-restart-or-blip": "A restart is told from a network blip by session id, version or process.",
    "T001-reconcile": "After a reconnect lists are refreshed, what can be proven alive lives on, the rest has failed.",
    "T001-list-changed": "A list that changed over a reconnect is a notification event.",
    "T000-persistence": "Sessions, tasks, results and undelivered events outlive a restart of the hub.",
    "P001-unit-reconciliation": "Reconciliation: invalidation and its events.",
    "T000-related-task": "Questions of a server's own tasks are linked by related-task.",
    "T001-link-status": "A link is not_connected, connecting, connected, error or disconnected, with its last error.",
    "T001-link-needed": "A call connects a link that is not connected.",
    "T001-link-shared": "Requests for a connecting link share one attempt.",
    "T001-link-connected": "A connection is told with the server's capabilities, its loss with the reason.",
    "T001-link-isolation": "A server that hangs or fails costs the others nothing.",
    "T001-link-results-kept": "Completed results outlive the connection.",
}

DIAGRAMS = {
    "T000-diagrams-resource": "emceepee://diagrams is listed, and read as JSON with name, description and mermaid.",
    "T000-diagrams-five": "There are five diagrams: tasks, elicitations, sampling, a call's life, the entities.",
    "T000-diagrams-true": "The state diagrams show the transitions that the code runs on, all of them and no others.",
}

LIMITS = {
    "T000-defaults": "TTL 5 min, at most 30; retention 5 min; 100 tasks; questions 10 min; 1,000 events; idle 30 min.",
    "T000-settings": "The limits can be set.",
}

RACES = {
    "T001-race-waiters": "Concurrent waits for the same event lose nothing and repeat nothing.",
    "T001-race-buffers": "What was read from a buffer does not change when more arrives.",
    "T001-race-task-end": "Of completion, cancel and expiry at one moment, one decides.",
    "T001-race-response-timeout": "Of a response and the timeout at one moment, one decides, and no result is lost.",
    "T001-race-question-end": "Of an answer, the timeout and a second answer at one moment, one decides.",
    "T001-race-disconnect": "A server that goes away at the moment of a promotion or a removal leaves one outcome.",
    "T001-race-session": "A session that opens or closes meanwhile breaks nobody's call.",
}

REPLAY = {
    "T001-replay": "A client that is cut off from a stream resumes it with Last-Event-ID, and misses nothing of it.",
    "T001-replay-isolation": "What is replayed is of one stream of one session, and apart from the events.",
}

SECURITY = {
    "T000-sec-isolation": "Tasks and questions of one session are unknown to every other.",
    "T000-sec-ttl": "An abandoned task ends with its TTL.",
    "T000-sec-validation": "Task ids, request ids and answers are checked.",
    "T000-sec-content": "The content of an answer is passed on and never logged.",
    "T000-sec-secrets": "Headers and credentials in URLs are in nothing that a client sees or a log says.",
}

LOGS = {
    "T001-log-names": "Log events have the names and facts of the plan.",
    "T001-log-durations": "Ends of calls and answers are logged with duration_ms.",
    "T001-log-json": "Log lines are JSON with level, event and timestamp, on stderr, from the chosen level up.",
}

PLANS = {
    "P000-unit-timeout": "Timeout logic.",
    "P000-unit-promotion": "Task promotion.",
    "P000-unit-ttl": "TTL expiration.",
    "P000-unit-transitions": "State transitions.",
    "P000-unit-await-immediate": "await_activity returns at once when there is something undelivered.",
    "P000-unit-await-wake": "await_activity waits and wakes on an event.",
    "P000-int-within-timeout": "A tool completes within its timeout: no task.",
    "P000-int-exceeds-timeout": "A tool exceeds its timeout: a task.",
    "P000-int-elicitation": "A tool with an elicitation, from call to result.",
    "P000-int-concurrent": "Several concurrent calls.",
    "P000-int-unblocks": "The answer to an elicitation lets the task end.",
    "P000-int-await-elicitation": "await_activity returns when an elicitation arrives.",
    "P000-int-await-task": "await_activity returns when a task completes.",
    "P000-int-await-notification": "await_activity returns when a notification arrives.",
    "P000-int-await-timeout": "await_activity returns at its timeout.",
    "P000-manual-server": "With a real MCP server that uses elicitations.",
    "P000-manual-claude-code": "With a real client: the SDK that Claude Code is made with stands in for it.",
    "P000-manual-responsive": "await_activity answers as soon as something happens, not when time has passed.",
    "P001-unit-events-wait": "Event log: wait and timeout.",
    "P001-unit-events-kept": "Event log: events are kept and read from a cursor.",
    "P001-unit-events-eviction": "Event log: eviction.",
    "P001-unit-events-isolation": "Event log: isolation.",
    "P001-unit-tasks-transitions": "Task table: state transitions.",
    "P001-unit-tasks-ttl": "Task table: TTL.",
    "P001-unit-tasks-timers": "Task table: cleanup timers.",
    "P001-unit-buffers": "Buffers: add, get and clear.",
    "P001-unit-questions-timeout": "Question table: timeout.",
    "P001-unit-questions-respond": "Question table: respond.",
    "P001-unit-questions-reject": "Question table: reject.",
    "P001-unit-questions-timers": "Question table: timers are cleaned up.",
    "P001-int-timeout": "Tool execution with and without timeout.",
    "P001-int-await": "await_activity: immediate return against waiting.",
    "P001-int-multi-server": "Several servers.",
    "P001-int-concurrent": "Concurrent operations.",
    "P001-int-isolation": "Isolation: what one session hears, no other does.",
    "P001-int-restart-elicitations": "Server restart: open elicitations are invalidated.",
    "P001-int-restart-sampling": "Server restart: open sampling requests are invalidated.",
    "P001-int-restart-tasks": "Server restart: working tasks fail with a reason.",
    "P001-int-sse-replay": "SSE reconnection with Last-Event-ID.",
    "P001-int-shutdown": "Graceful shutdown: open requests rejected, timers cleared.",
    "P001-race-respond-timeout": "Respond during the timeout.",
    "P001-race-cancel-completion": "Cancel during completion.",
    "P001-race-waiters": "Several await_activity waiters.",
    "P001-race-eviction": "Event eviction during await_activity.",
}

AREAS: Mapping[str, Mapping[str, str]] = {
    "tasks": TASKS,
    "questions": QUESTIONS,
    "events": EVENTS,
    "await_activity": AWAIT_ACTIVITY,
    "buffers": BUFFERS,
    "tools": TOOLS,
    "responses": RESPONSES,
    "sessions": SESSIONS,
    "links": LINKS,
    "diagrams": DIAGRAMS,
    "limits": LIMITS,
    "races": RACES,
    "replay": REPLAY,
    "security": SECURITY,
    "logs": LOGS,
    "test plans": PLANS,
}

REQUIREMENTS: Mapping[str, str] = {id_: text for area in AREAS.values() for id_, text in area.items()}

LATER: Mapping[str, str] = {}
"""Promises that are kept elsewhere: why they have no test here yet, so that none is dropped in silence."""
