"""Being told that a task, or what is asked for it, has changed."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["TaskWatchers"]


class TaskWatchers:
    def __init__(self) -> None:
        self._watchers: dict[object, Callable[[str], None]] = {}

    def add(self, watcher: Callable[[str], None]) -> Callable[[], None]:
        """Have `watcher` called with the id of every task that changes; the returned function takes it back."""
        key = object()
        self._watchers[key] = watcher

        def remove() -> None:
            self._watchers.pop(key, None)

        return remove

    def changed(self, task_id: str | None) -> None:
        if task_id is not None:
            for watcher in tuple(self._watchers.values()):
                watcher(task_id)
