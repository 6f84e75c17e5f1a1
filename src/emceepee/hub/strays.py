"""Questions that came without a word on which call they belong to, and the calls that they are shown with.

Over stdio a question names no call, and with several in flight it may be of any. It stands in the list, but many a
client has no way to look there. So one of the calls lends itself: the only one that is left of those it can belong to,
or else one whose client can be asked with its response. Such a question does not end with the call that it is shown
with: the next one takes it over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from emceepee.core.questions import QuestionKind
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

    def choose(self, request_id: str, kind: QuestionKind, params: Mapping[str, Any]) -> Call | None:
        """The call to show it with from now on, if there is one."""
        candidates = self._candidates.get(request_id, [])
        if len(candidates) != 1:
            candidates = [call for call in candidates if call.caller.can_ask_back(kind, params)]
        shown = Counter(self._shown_with.values())
        found = min(candidates, key=lambda call: (shown[call], call.number), default=None)
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
