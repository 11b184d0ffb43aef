"""The event stream that answers one call, in either era: `read_stream` reads it up to the response.

What is no message is skipped, as released hosts skip it, and what is in an array is read in its order
(`hear_unusual`). An answer to this very request that cannot be read ends the call.

Usual progress is by far the most frequent message, and needs no wait. So the stream is asked to pass
it on as it arrives (`Messages.offer_to`), without waking the task of the call.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from taskgate.errors import UpstreamFailed
from taskgate.protocol.faults import NoMessage, no_message
from taskgate.protocol.jsonrpc import usual_progress
from taskgate.protocol.messages import Response
from taskgate.system.offload import offload
from taskgate.upstream.base import Messages
from taskgate.upstream.calls import RunningCall
from taskgate.upstream.duplex.peek import parts_of, seems_to_answer
from taskgate.upstream.settings import UpstreamObserver

MOST_IN_ARRAY: Final = 64
"""The most messages of an array that are read, as of one of a host: limits on notifications count it as one."""


async def read_stream(
    observer: UpstreamObserver,
    hear: Callable[[bytes, RunningCall], Awaitable[Response | None]],
    call: RunningCall,
    messages: Messages,
) -> Response | None:
    """Return the response on a stream of the call; None if the stream ends before it.

    `hear` is called with each message, in order, but for usual progress of the call; it returns the
    message if it is a response. Raises UpstreamFailed, as `messages` do.
    """
    # Backpressure: while a slow host has not read enough, its server waits. Else what it sends would
    # fill the gateway's memory.
    clog: asyncio.Future[None] | None = None

    def take(arrived: Sequence[bytes]) -> int:
        """Handle the usual progress that `arrived` begins with; return how many messages it is."""
        nonlocal clog
        if clog is not None:
            return 0
        if len(arrived) > 1 and call.listener is not None:
            call.listener.more_follows()
        taken = 0
        for message in arrived:
            progress = usual_progress(message)
            if progress is None or progress.token != call.id:
                break
            call.on_progress(progress)
            taken += 1
            if call.listener is not None and (clog := call.listener.clog()) is not None:
                break
        return taken

    observer.stream_opened("response")
    try:
        messages.offer_to(take)
        async for message in messages:
            if clog is not None:
                await clog
                clog = None
            if messages.has_more and call.listener is not None:
                call.listener.more_follows()
            if take((message,)):
                continue
            try:
                response = await hear(message, call)
            except NoMessage:
                response = await hear_unusual(observer, hear, call, message)
            if response is not None and response.id == call.id:
                return response
            if call.listener is not None:
                clog = call.listener.clog()
    finally:
        observer.stream_ended("response")
    return None


async def hear_unusual(
    observer: UpstreamObserver,
    hear: Callable[[bytes, RunningCall], Awaitable[Response | None]],
    call: RunningCall,
    message: bytes,
) -> Response | None:
    """Handle what is not one message: hear the messages of an array, or skip it.

    Returns the response to the call, if an array has it. Raises NoMessage for what seems to answer
    the call.
    """
    parts, found = await offload(len(message), partial(parts_of, message, MOST_IN_ARRAY)), None
    for part in parts:
        try:
            response = await hear(part, call)
        except NoMessage:
            response = None
            if found is None:
                await _skip(observer, call, part)
        if response is not None and response.id == call.id:
            found = response
    if not parts:
        await _skip(observer, call, message)
    return found


async def hear_aside(observer: UpstreamObserver, hear: Callable[[bytes], Awaitable[None]], message: bytes) -> None:
    """Have `hear` handle a message of a stream that answers no call, or the messages of an array.

    What `hear` raises UpstreamFailed for is skipped: the stream is still usable.
    """
    try:
        await hear(message)
    except NoMessage:
        parts = await offload(len(message), partial(parts_of, message, MOST_IN_ARRAY))
        if not parts:
            observer.skipped(len(message))
        for part in parts:
            try:
                await hear(part)
            except UpstreamFailed:
                observer.skipped(len(part))
    except UpstreamFailed:
        observer.skipped(len(message))


async def _skip(observer: UpstreamObserver, call: RunningCall, message: bytes) -> None:
    """Skip what is no message. Raises NoMessage if it seems to answer the call."""
    if await offload(len(message), partial(seems_to_answer, call.id, message)):
        raise no_message()
    observer.skipped(len(message))
