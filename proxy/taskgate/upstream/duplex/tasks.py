"""Tasks that a server made and is believed to work at: nobody may be waiting for an answer, and yet it is not idle.

What must not live here: how a task is followed (`upstream.legacy`, `upstream.modern`), and what ends an idle
server. What holds: a task that nobody looks at any more is believed in for a while only.
"""

from typing import Final, NamedTuple

from taskgate.upstream.duplex.contents import task_shown_in
from taskgate.upstream.duplex.replies import ReplyObserver

LEAST: Final = 30.0
"""Seconds without a look after which a task is believed in no more; three of its intervals, where that is longer."""

_INTERVALS: Final = 3
_LARGEST: Final = 16 * 1024
"""Bytes of an answer that may be looked at: what only shows a task is short."""
_NAMED: Final = b'"taskId"'
_AT_WORK: Final = frozenset({"working", "input_required"})


class _Seen(NamedTuple):
    """Who looked at a task, and the loop's time until which it is believed in."""

    who: ReplyObserver
    until: float


class RunningTasks:
    """The tasks of one line."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def look(self, answer: bytes, who: ReplyObserver, now: float) -> None:
        """Note what an answer shows of a task, if anything; `who` asked."""
        if len(answer) > _LARGEST or _NAMED not in answer:
            return
        shown = task_shown_in(answer)
        if shown is None:
            return
        self._seen.pop(shown.id, None)
        if shown.status in _AT_WORK:
            self._seen[shown.id] = _Seen(who, now + max(LEAST, _INTERVALS * shown.interval))

    def count(self, now: float) -> int:
        """How many there are."""
        for id_ in [id_ for id_, seen in self._seen.items() if seen.until <= now]:
            del self._seen[id_]
        return len(self._seen)

    def followers(self, now: float) -> list[ReplyObserver]:
        """Who looked at each of them last."""
        return [seen.who for seen in self._seen.values() if seen.until > now]

    def of(self, id: str) -> ReplyObserver | None:
        """Who looked at that task last; None where nobody did."""
        seen = self._seen.get(id)
        return None if seen is None else seen.who
