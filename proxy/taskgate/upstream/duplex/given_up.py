"""Requests of one line that nobody waits for any more and the server has not answered: it may still be at work.

What must not live here: what becomes of what it says meanwhile (`company`). What holds: that another caller was served
is remembered until the answer comes, or the line is no more; a server that heeds a cancel never answers (U-STDIO-3).
"""

from typing import Final, NamedTuple

from taskgate.domain.record import RequestId

STILL: Final = 300.0
"""Seconds for which such a request counts as at work among those of its own caller."""

_MOST: Final = 1024
"""Requests that are remembered one by one; of those before them, whose they were."""
_SEVERAL: Final = 2
"""With so many callers it is known that there are several, and more need not be remembered."""


class _Left(NamedTuple):
    """A request: of which session (empty in the modern era), of which caller, and the loop's time until which."""

    session: str
    context: str
    until: float


class GivenUp:
    """Those of one line."""

    __slots__ = ("_left", "_older")

    def __init__(self) -> None:
        self._left: dict[RequestId, _Left] = {}
        self._older: set[str] = set()

    def note(self, id: RequestId, session: str, context: str, until: float) -> None:
        """One more; until the loop's time `until` it counts as at work."""
        self._left[id] = _Left(session, context, until)
        if len(self._left) > _MOST:
            oldest = self._left.pop(next(iter(self._left)))
            if len(self._older) < _SEVERAL:
                self._older.add(oldest.context)

    def answered(self, id: RequestId) -> None:
        """The server is done with it, if it was one of them."""
        self._left.pop(id, None)

    def __contains__(self, id: RequestId) -> bool:
        """Whether the server may still answer it."""
        return id in self._left

    @property
    def contexts(self) -> set[str]:
        """Whose they are; of more than a few callers not all."""
        return {left.context for left in self._left.values()} | self._older

    def sessions(self, now: float) -> list[str]:
        """The sessions of those at work, one for each; empty for one without."""
        return [left.session for left in self._left.values() if left.until > now]
