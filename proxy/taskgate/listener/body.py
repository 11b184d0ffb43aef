"""The receipt of a body that has not all arrived with its head: `receive_rest`.

The gateway asks for the body after authentication (`HostExchange.body`). Only then is
`100 Continue` sent, and the time limit starts. The body must arrive whole, in time, and within
bounds; otherwise RequestRejected is raised. What arrives before it is asked for is bounded by the
connection's flow control.
"""

import asyncio
from datetime import timedelta
from functools import partial
from typing import Final

from aiohttp import hdrs
from aiohttp.http import HttpVersion11

from taskgate.listener.door import BODY_TOO_LARGE, NO_BYTES, RequestRejected, declared_length
from taskgate.listener.protocol import HostRequest
from taskgate.streams.bytes_in_flight import SMALL, BytesInFlight, IncomingBody

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class BodyOverdue(Exception):
    """The body did not arrive in time."""


async def receive_rest(
    request: HostRequest, budget: BytesInFlight, caller: str, *, max_body: int, read_timeout: timedelta
) -> bytes:
    """Receive a body of at most `max_body` bytes, which counts for `caller` in `budget` meanwhile.

    Raises BodyOverdue after `read_timeout`, and RequestRejected if the body is too large or the
    budget is used up. Raises BrokenBody or what aiohttp raises for a body that does not arrive whole.
    """
    payload, transport = request.content, request.connection.transport
    if hdrs.EXPECT in request.headers and request.version == HttpVersion11 and not transport.is_closing():
        transport.write(_CONTINUE)
    declared = declared_length(request.headers.get(hdrs.CONTENT_LENGTH, "0"))
    loop = asyncio.get_running_loop()
    # A turn later: a reader that the end of a chunk has just woken takes no exception before its step.
    give_up = partial(payload.set_exception, BodyOverdue())
    overdue = loop.call_later(read_timeout.total_seconds(), partial(loop.call_soon, give_up))
    pieces: list[bytes] = []
    received, counted = 0, SMALL
    in_flight: IncomingBody | None = None
    try:
        if declared > SMALL:
            # The whole size at once: else several bodies that arrive together would each get a
            # part of the budget.
            in_flight, counted = budget.incoming_body(caller), declared
            if not in_flight.grow(counted):
                raise RequestRejected(NO_BYTES)
        while piece := await payload.readany():
            received += len(piece)
            if received > max_body:
                raise RequestRejected(BODY_TOO_LARGE)
            pieces.append(piece)
            if received > counted:
                in_flight, counted = in_flight or budget.incoming_body(caller), received
                if not in_flight.grow(counted):
                    raise RequestRejected(NO_BYTES)
    finally:
        overdue.cancel()
        if in_flight is not None:
            in_flight.close()
    return b"".join(pieces)
