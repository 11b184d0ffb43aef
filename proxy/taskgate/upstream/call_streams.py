"""The event stream that answers one call, in either era: `read_stream` reads it up to the response.

What is no message is skipped, as released hosts skip it, and what is in an array is read in its order
(`hear_unusual`). An answer to this very request that cannot be read ends the call.

Under an HTTP error status there is a response, or a body that explains the refusal (`read_refusal`).

Usual progress is by far the most frequent message, and needs no wait. So the stream is asked to pass
it on as it arrives (`Messages.offer_to`), without waking the task of the call.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import orjson

from taskgate.errors import UpstreamFailed
from taskgate.jsontext.depth import is_deeper
from taskgate.jsontext.edits import dump
from taskgate.protocol.faults import NoMessage, no_message
from taskgate.protocol.jsonrpc import usual_progress
from taskgate.protocol.messages import Response
from taskgate.system.offload import offload
from taskgate.system.redaction import without
from taskgate.upstream import failures
from taskgate.upstream.base import Incoming, Messages
from taskgate.upstream.calls import RunningCall
from taskgate.upstream.duplex.peek import parts_of, seems_to_answer
from taskgate.upstream.settings import UpstreamObserver

MOST_IN_ARRAY: Final = 64
"""The most messages of an array that are read, as of one of a host: limits on notifications count it as one."""
MOST_EXPLAINED: Final = 4096
"""Characters of the body of a refusal that hosts get."""
_LARGEST: Final = 64 * 1024
"""Bytes of the largest body of a refusal that is read."""
_DEEPEST: Final = 64
_REFUSAL: Final = 10.0
"""Seconds for which the body of a refusal is read. Its status says enough to go on."""


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


async def read_refusal(
    incoming: Incoming, read: Callable[[bytes], Awaitable[Response | None]], hidden: Iterable[str]
) -> tuple[Response | None, Any]:
    """Return the response that an answer with an HTTP error status has, None without one, and the body for hosts.

    `read` returns the response that a message is, or None for another message; it raises UpstreamFailed for no
    message. Only such a body is for hosts, without what is `hidden` (docs/decisions/0132). If the server asks for
    a pause, its error is such a body: the request is to be sent again.
    """
    with suppress(UpstreamFailed, TimeoutError):
        async with asyncio.timeout(_REFUSAL):
            async for message in incoming.messages():
                try:
                    response = await read(message)
                except UpstreamFailed:
                    return None, None if incoming.streams else _explanation(message, hidden)
                if response is None:
                    continue
                if response.error is not None and failures.is_for_now(incoming.status, incoming.retry_after):
                    return None, _explanation(dump(failures.said_in(response)).encode(), hidden)
                return response, None
    return None, None


def _explanation(body: bytes, hidden: Iterable[str]) -> Any:
    """Return what the body of a refusal says, as JSON or else as text, without what is `hidden`.

    None for a page of HTML, a body that is too large or no text, and an empty one. A long one is text, and cut.
    """
    if len(body) > _LARGEST or is_deeper(body, _DEEPEST):
        return None
    try:
        try:
            text = dump(orjson.loads(body))
        except orjson.JSONDecodeError:
            said = body.decode().strip()
            text = "null" if said.startswith("<") else dump(said)
        text = without(hidden, text)
        # A number of JSON may be a secret, and what takes its place is no JSON.
        explanation = orjson.loads(text)
    except ValueError:
        return None
    if len(text) <= MOST_EXPLAINED:
        return explanation
    return f"{(explanation if isinstance(explanation, str) else text)[:MOST_EXPLAINED]}…"


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
