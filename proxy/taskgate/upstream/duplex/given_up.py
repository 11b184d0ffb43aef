"""Abandoned requests of one channel: `GivenUp`, those that the server may still work on.

`company` uses them: while the server may work for another caller, its messages may be that
caller's. An entry stays until the answer arrives or the channel ends. A server that honours a
cancellation never answers (U-STDIO-3).
"""

from typing import Final, NamedTuple

from taskgate.domain.record import RequestId

STILL: Final = 300.0
"""Seconds for which such a request counts as running among those of its own caller."""

_MOST: Final = 1024
"""Requests that are stored one by one; of older ones only the auth context."""
_SEVERAL: Final = 2
"""With so many older contexts it is known that there are several; more need not be stored."""


class _Left(NamedTuple):
    """A request: its session (empty in the modern era), its auth context, and the loop time until
    it counts."""

    session: str
    context: str
    until: float


class GivenUp:
    """The abandoned requests of one channel."""

    __slots__ = ("_left", "_older")

    def __init__(self) -> None:
        self._left: dict[RequestId, _Left] = {}
        self._older: set[str] = set()

    def note(self, id: RequestId, session: str, context: str, until: float) -> None:
        """Add a request; it counts as running until the loop time `until`."""
        self._left[id] = _Left(session, context, until)
        if len(self._left) > _MOST:
            oldest = self._left.pop(next(iter(self._left)))
            if len(self._older) < _SEVERAL:
                self._older.add(oldest.context)

    def answered(self, id: RequestId) -> None:
        """Remove a request that the server answered."""
        self._left.pop(id, None)

    def __contains__(self, id: RequestId) -> bool:
        """Whether the server may still answer the request."""
        return id in self._left

    @property
    def contexts(self) -> set[str]:
        """The auth contexts of the requests; not all if there are many."""
        return {left.context for left in self._left.values()} | self._older

    def sessions(self, now: float) -> list[str]:
        """Return the session of each running request; empty for one without a session."""
        return [left.session for left in self._left.values() if left.until > now]
