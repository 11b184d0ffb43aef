"""A body that has not all arrived with its head: `ArrivingBody`, within `BodyLimits`.

The gateway asks for the body after authentication (`HostExchange.body`). A large one then waits for its
turn, or is refused, by the size in its head; nothing more of it is read meanwhile. Only then is
`100 Continue` sent, and the time limit starts. The body must arrive whole, in time, and within
bounds; otherwise RequestRejected is raised, and nothing of the body is kept. What arrives before it
is asked for is bounded by the connection's flow control. From then on, a body whose size is known is
counted whole and read without a pause. Of any other, what waits for its reader stays bounded.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final, Protocol

from aiohttp import hdrs
from aiohttp.http import HttpVersion11

from taskgate.auth.context import AuthContext
from taskgate.listener.door import (
    BAD_REQUEST,
    BODY_TOO_LARGE,
    NO_BYTES,
    NO_MEMORY,
    TOO_SLOW,
    HostHead,
    Rejection,
    RequestRejected,
)
from taskgate.streams.bytes_in_flight import SMALL, BytesInFlight
from taskgate.system.offload import LARGE

READ_AHEAD: Final = 256 * 1024
"""Bytes of a body that wait for their reader. Reading stops at twice as many of one that is not counted."""
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class Source(Protocol):
    """The connection on which a body arrives; implemented by `HostConnection`."""

    transport: asyncio.Transport

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class BodyLimits:
    """The limits of one body: it counts in `budget`, and pays its bytes by `pay`; it must be closed.

    `pay` awaits the turn of so many bytes more of a body above LARGE.
    """

    __slots__ = ("_budget", "_in_flight", "_paid", "_pay")

    def __init__(self, budget: BytesInFlight, caller: AuthContext, pay: Callable[[int], Awaitable[None]]) -> None:
        self._budget = budget
        self._in_flight = budget.incoming_body(caller)
        self._pay = pay
        self._paid = 0

    async def admit(self, size: int) -> None:
        """Count the body as `size` bytes, received or announced so far.

        Raises RequestRejected if the budget is used up or, for a large body, memory is short, and what
        `pay` raises.
        """
        if size > LARGE and self._budget.is_memory_short():
            raise RequestRejected(NO_MEMORY)
        if not self._in_flight.grow(size):
            raise RequestRejected(NO_BYTES)
        if size > LARGE and size > self._paid:
            # Of a body whose size is not known, LARGE bytes at least are paid at once.
            more = max(size - self._paid, LARGE if self._paid else 0)
            await self._pay(more)
            self._paid += more

    def close(self) -> None:
        """Stop counting the body."""
        self._in_flight.close()


class ArrivingBody:
    """The body of a request, from the time that its head has arrived.

    The connection calls `feed` and `end`, or `fail`. The gateway calls `receive`, once.

    - `_is_ended`: the body has arrived whole.
    - `_is_counted`: its size is known and counted, so that its reader waits for the end.
    - `_refusal` is why it does not arrive: it is broken or too slow, or the host has disconnected.
    - `_size` is that of the `_pieces`, which wait for their reader.
    - `_overdue` is the end of the time in which the body must arrive; of it there are `_time_left` seconds
      while the body waits for its turn.
    """

    __slots__ = (
        "_is_counted",
        "_is_ended",
        "_is_read",
        "_overdue",
        "_pieces",
        "_refusal",
        "_size",
        "_source",
        "_time_left",
        "_waiter",
    )

    def __init__(self, source: Source) -> None:
        self._source = source
        self._pieces: list[bytes] = []
        self._size = 0
        self._waiter: asyncio.Future[None] | None = None
        self._refusal: Rejection | None = None
        self._overdue: asyncio.TimerHandle | None = None
        self._time_left = 0.0
        self._is_read = self._is_ended = self._is_counted = False

    def feed(self, piece: bytes) -> None:
        """Add a piece, unless the request is rejected.

        The connection is not read while much of a body waits that is not counted.
        """
        if self._refusal is not None:
            return
        self._pieces.append(piece)
        if self._is_counted:
            return
        self._size += len(piece)
        self._wake()
        if self._size > 2 * READ_AHEAD:
            self._source.pause_reading()

    def end(self) -> bytes:
        """Mark that all pieces were added. Returns them if no reader has begun."""
        self._is_ended = True
        self._wake()
        self._source.resume_reading()
        return b"" if self._is_read else self._take()

    def fail(self, refusal: Rejection) -> None:
        """Reject the request of a body that has not arrived whole, and drop what waits of it."""
        self._refusal = refusal
        self._pieces = []
        self._wake()

    async def receive(
        self, head: HostHead, declared: int, limits: "BodyLimits", *, max_body: int, read_timeout: timedelta
    ) -> bytes:
        """Receive a body of at most `max_body` bytes within `limits`. `declared` is its Content-Length.

        Raises RequestRejected if the body is too large, or does not arrive whole or within
        `read_timeout`, and what `limits` raise.
        """
        self._is_read = True
        self._time_left = read_timeout.total_seconds()
        pieces: list[bytes] = []
        received = 0
        try:
            if declared > SMALL:
                # The whole size at once: else several bodies that arrive together would each get a
                # part of the budget.
                await self._admit(limits, declared)
            transport = self._source.transport
            if hdrs.EXPECT in head.headers and head.version == HttpVersion11 and not transport.is_closing():
                transport.write(_CONTINUE)
            self._start_timer()
            if declared:
                self._is_counted = True
                self._source.resume_reading()
            while piece := await self._next():
                received += len(piece)
                if received > max_body:
                    raise RequestRejected(BODY_TOO_LARGE)
                pieces.append(piece)
                if received > max(declared, SMALL):
                    await self._admit(limits, received)
                    self._start_timer()
        except Exception as error:
            # The error lasts until its answer is sent, and its frames with it: they hold nothing more of
            # the body, which is no longer counted.
            pieces, piece = [], b""
            self.fail(error.refusal if isinstance(error, RequestRejected) else BAD_REQUEST)
            raise
        finally:
            self._stop_timer()
            limits.close()
        return b"".join(pieces)

    async def _admit(self, limits: "BodyLimits", size: int) -> None:
        """Have a body of that size within the limits, and read nothing more while it waits for that.

        Raises what `limits` raise.
        """
        if size > LARGE:
            self._stop_timer()
            self._source.pause_reading()
        await limits.admit(size)
        self._source.resume_reading()

    def _start_timer(self) -> None:
        if self._overdue is None:
            self._overdue = asyncio.get_running_loop().call_later(self._time_left, self._give_up)

    def _stop_timer(self) -> None:
        """Stop the time limit, until it is started again."""
        if self._overdue is not None:
            self._time_left = self._overdue.when() - asyncio.get_running_loop().time()
            self._overdue.cancel()
            self._overdue = None

    async def _next(self) -> bytes:
        """Return what has arrived since the last call, once there is anything; nothing at the end.

        Of a body that is counted, return all at once.
        """
        if self._refusal is None and not self._is_ended and (self._is_counted or not self._pieces):
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self._refusal is not None:
            raise RequestRejected(self._refusal)
        piece = self._take()
        self._source.resume_reading()
        return piece

    def _take(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        self._size = 0
        return b"".join(pieces)

    def _give_up(self) -> None:
        # Its reader may not have run since the end arrived.
        if not self._is_ended:
            self.fail(TOO_SLOW)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
