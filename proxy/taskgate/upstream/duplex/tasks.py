"""Server tasks that run on one channel: `RunningTasks`, read from answers to polls.

`Channel` gives it every answer. A task is added or renewed by each answer that shows it at work. It
is removed by one that shows its end, or when it was not polled for some time. While there is a
task, a program is not ended as idle, though no request waits for it. The task followers of both
eras make the polls.
"""

from typing import Final, NamedTuple

from taskgate.upstream.duplex.contents import task_shown_in
from taskgate.upstream.duplex.replies import ReplyObserver

LEAST: Final = 30.0
"""Seconds without a poll after which a task no longer counts as running; three poll intervals if
those are longer."""

_INTERVALS: Final = 3
_LARGEST: Final = 16 * 1024
"""Bytes of an answer that is examined: an answer that only shows a task is short."""
_NAMED: Final = b'"taskId"'
_AT_WORK: Final = frozenset({"working", "input_required"})


class _Seen(NamedTuple):
    """Last poller of a task, and the loop time until which the task counts."""

    who: ReplyObserver
    until: float


class RunningTasks:
    """The tasks of one channel."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def look(self, answer: bytes, who: ReplyObserver, now: float) -> None:
        """Note the task that an answer shows, if any; `who` polled it."""
        if len(answer) > _LARGEST or _NAMED not in answer:
            return
        shown = task_shown_in(answer)
        if shown is None:
            return
        self._seen.pop(shown.id, None)
        if shown.status in _AT_WORK:
            self._seen[shown.id] = _Seen(who, now + max(LEAST, _INTERVALS * shown.interval))

    def count(self, now: float) -> int:
        """Return how many tasks run; others are removed."""
        for id_ in [id_ for id_, seen in self._seen.items() if seen.until <= now]:
            del self._seen[id_]
        return len(self._seen)

    def followers(self, now: float) -> list[ReplyObserver]:
        """Return who polled each running task last."""
        return [seen.who for seen in self._seen.values() if seen.until > now]

    def of(self, id: str) -> ReplyObserver | None:
        """Return who polled the task last; None if unknown."""
        seen = self._seen.get(id)
        return None if seen is None else seen.who
