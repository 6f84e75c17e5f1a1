"""Questions that came without a word on which call they belong to, and the calls that they are shown with.

Over stdio a question names no call, and with several in flight it may be of any. It stands in the list, but many a
client has no way to look there. So one of the calls lends itself: the only one that is left of those it can belong to,
or else one whose client can be asked, at once, with its response or through its task. Such a question does not end with
the call that it is shown with: the next one takes it over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from emceepee.core.questions import Question, QuestionKind
from emceepee.hub.call import Call

__all__ = ["Strays"]


class Strays:
    def __init__(self) -> None:
        self._candidates: dict[str, list[Call]] = {}
        self._shown_with: dict[str, Call] = {}

    def add(self, request_id: str, candidates: Sequence[Call]) -> None:
        """Take up a question that belongs to one of `candidates`, or to none."""
        self._candidates[request_id] = list(candidates)

    def discard(self, request_id: str) -> None:
        self._candidates.pop(request_id, None)
        self._shown_with.pop(request_id, None)

    def call_of(self, request_id: str) -> Call | None:
        """The call that it is shown with."""
        return self._shown_with.get(request_id)

    def can_be_put_to(self, calls: Collection[Call], question: Question) -> bool:
        """Whether it may be of one of `calls` whose client can be asked here and now."""
        candidates = self._candidates.get(question.request_id, [])
        return any(call in candidates and call.attendant.can_ask(question.kind, question.params) for call in calls)

    def choose(self, question: Question, asking: Counter[object]) -> Call | None:
        """The call to show it with from now on, if there is one; `asking` counts the questions that calls own."""
        request_id, kind, params = question.request_id, question.kind, question.params
        self._shown_with.pop(request_id, None)
        shown = Counter(self._shown_with.values())

        def reluctance(call: Call) -> tuple[bool, bool, int, int]:
            # A call that nobody waits for, or that has a question open, is less likely to be the one that asks.
            is_busy = asking[call] + shown[call]
            return not call.attendant.can_ask(kind, params), not call.is_waited_for, is_busy, call.number

        candidates = self._candidates.get(request_id, [])
        if len(candidates) != 1:
            candidates = [call for call in candidates if _can_be_asked(call, kind, params)]
        found = min(candidates, key=reluctance, default=None)
        if found is not None:
            self._shown_with[request_id] = found
        return found

    def on_call_ended(self, call: Call) -> list[str]:
        """The questions that may have to be shown with another call now."""
        for candidates in self._candidates.values():
            if call in candidates:
                candidates.remove(call)
        for request_id, shown_with in list(self._shown_with.items()):
            if shown_with is call:
                del self._shown_with[request_id]
        return [request_id for request_id in self._candidates if request_id not in self._shown_with]


def _can_be_asked(call: Call, kind: QuestionKind, params: Mapping[str, Any]) -> bool:
    return call.attendant.can_ask(kind, params) or call.caller.can_ask_back(kind, params)
