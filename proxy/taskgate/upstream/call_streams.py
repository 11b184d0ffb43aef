"""The event stream that answers one call, in either era: `read_stream` reads it up to the response.

Usual progress is by far the most frequent message, and needs no wait. So the stream is asked to pass
it on as it arrives (`Messages.offer_to`), without waking the task of the call.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from taskgate.protocol.jsonrpc import usual_progress
from taskgate.protocol.messages import Response
from taskgate.upstream.base import Messages
from taskgate.upstream.calls import RunningCall
from taskgate.upstream.settings import UpstreamObserver


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
            response = await hear(message, call)
            if response is not None and response.id == call.id:
                return response
            if call.listener is not None:
                clog = call.listener.clog()
    finally:
        observer.stream_ended("response")
    return None
