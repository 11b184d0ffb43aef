"""Abandoned requests of one channel: `GivenUp`, those that the server may still work on.

A request is abandoned when its caller no longer waits for the answer. `RequestsInFlight` adds it.
It stays until its answer arrives or the channel ends, since a server that honours a cancellation
never answers (U-STDIO-3). `company` asks here: while the server may work for another caller, its
messages may be that caller's.
"""

from typing import Final, NamedTuple

from taskgate.domain.record import RequestId

STILL: Final = 300.0
"""Seconds for which an abandoned request counts as running, beside other requests of the same
caller. For other callers it always counts."""

_MOST: Final = 1024
"""Requests that are stored one by one; of older ones only the auth context."""
_SEVERAL: Final = 2
"""With so many older contexts it is known that there are several; more need not be stored."""


class _Abandoned(NamedTuple):
    """A request: its session (empty in the modern era), its auth context, and the loop time until
    which it counts as running."""

    session: str
    context: str
    until: float


class GivenUp:
    """The abandoned requests of one channel."""

    __slots__ = ("_older", "_requests")

    def __init__(self) -> None:
        self._requests: dict[RequestId, _Abandoned] = {}
        self._older: set[str] = set()

    def note(self, id: RequestId, session: str, context: str, until: float) -> None:
        """Add a request; it counts as running until the loop time `until`."""
        self._requests[id] = _Abandoned(session, context, until)
        if len(self._requests) > _MOST:
            oldest = self._requests.pop(next(iter(self._requests)))
            if len(self._older) < _SEVERAL:
                self._older.add(oldest.context)

    def answered(self, id: RequestId) -> None:
        """Remove a request that the server answered."""
        self._requests.pop(id, None)

    def __contains__(self, id: RequestId) -> bool:
        """Whether the server may still answer the request."""
        return id in self._requests

    @property
    def contexts(self) -> set[str]:
        """The auth contexts of the requests; not all if there are many."""
        return {request.context for request in self._requests.values()} | self._older

    def sessions(self, now: float) -> list[str]:
        """Return the session of each running request; empty for one without a session."""
        return [request.session for request in self._requests.values() if request.until > now]
