"""Requests that wait for their turn at a rate: `RateQueue`, and `QueuedRequest` for each.

A rate lets a request through at once, later, or not at all (`domain/rates`). One that is let through
later has taken its units already, so a later request of the same budget gets a later turn. It waits
here. The wait ends early when the host leaves or cancels, and when the gateway drains. What was taken
stays taken then, as for a request that was served.

A waiting request has its message and its connection in memory. So the number is bounded, of each
caller and of all.
"""

import asyncio
from typing import Final, Protocol, Self

from taskgate.domain.record import RequestId
from taskgate.streams.exchange import Exchange
from taskgate.system.cancel_scope import CancelScope

MAX_WAITING_OF_CALLER: Final = 256
"""Requests of one person that may wait at once, with all clients: more than the rates as shipped let through in 3 s."""
MAX_WAITING: Final = 4096
"""Requests of all callers that may wait at once."""


class RequestSession(Protocol):
    """The session of a request that waits: it is in use, and cancels its requests by id."""

    calls: dict[CancelScope, RequestId]

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class RateQueue:
    """The requests of this process that wait for their turn. For one event loop."""

    def __init__(self) -> None:
        # By the person of the caller; only those with waiting requests.
        self._callers: dict[str, int] = {}
        # In the order of their arrival.
        self._waiting: dict[QueuedRequest, None] = {}
        self._is_draining = False

    def __len__(self) -> int:
        return len(self._waiting)

    def count(self, caller: str) -> int:
        """The number of requests of a person that wait."""
        return self._callers.get(caller, 0)

    def is_full(self, caller: str) -> bool:
        """Whether no further request of this person may wait."""
        return len(self._waiting) >= MAX_WAITING or self._callers.get(caller, 0) >= MAX_WAITING_OF_CALLER

    def enter(self, caller: str, seconds: float) -> "QueuedRequest":
        """Enter a request whose turn comes in so many seconds. `QueuedRequest.wait` must follow at once."""
        queued = QueuedRequest(self, caller, 0.0 if self._is_draining else seconds)
        self._waiting[queued] = None
        self._callers[caller] = self._callers.get(caller, 0) + 1
        return queued

    def leave(self, queued: "QueuedRequest") -> None:
        """Remove a request that waits no longer."""
        del self._waiting[queued]
        self._callers[queued.caller] -= 1
        if not self._callers[queued.caller]:
            del self._callers[queued.caller]

    def drain(self) -> None:
        """End all waits, and let no request wait from now on."""
        self._is_draining = True
        for queued in self._waiting:
            queued.end()


class QueuedRequest:
    """A request that waits for its turn."""

    __slots__ = ("_queue", "_seconds", "_turn", "caller")

    def __init__(self, queue: RateQueue, caller: str, seconds: float) -> None:
        self.caller = caller
        self._queue = queue
        self._seconds = seconds
        self._turn: asyncio.Future[None] | None = None

    async def wait(self, exchange: Exchange, session: RequestSession | None, id: RequestId | None) -> None:
        """Wait for the turn, or until the gateway drains.

        Raises ScopeCancelled if the host leaves before, or cancels the request with this id of its
        session.
        """
        scope = CancelScope()
        try:
            with scope:
                exchange.on_disconnect(scope.cancel)
                if session is None:
                    await self._wait()
                    return
                if id is not None:
                    session.calls[scope] = id
                with session:
                    await self._wait()
        finally:
            self._queue.leave(self)
            if session is not None:
                session.calls.pop(scope, None)

    async def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        self._turn = loop.create_future()
        timer = loop.call_later(self._seconds, self.end)
        try:
            await self._turn
        finally:
            timer.cancel()

    def end(self) -> None:
        """End the wait: it is the request's turn."""
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)
