"""Message channel over one SSE stream and its address for POSTs: `SseChannel` (U-SSE-1).

The stream is one session at the server. Its first event `endpoint` says where messages are POSTed,
and answers arrive on the stream:

    GET /sse               -> event: endpoint, data: /messages?id=1
    POST /messages?id=1    -> 202
                           <- event: message, data: {"jsonrpc": "2.0", …}

`SseChannelProvider` opens one stream per session with the headers (credentials) of the request that
needs it, and creates the channel, which reads from then on. It can be used once it is `ready`. It
ends with the stream, or by `drop`. All messages before the end of the stream are delivered before
the end is reported. Messages are only sent to the server's own origin: an address elsewhere refuses
the stream. No text of a failure contains the server's address.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context
from functools import partial
from logging import getLogger
from typing import Final

from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.protocol.faults import protocol_violation
from taskgate.system.offload import LARGE
from taskgate.upstream import failures
from taskgate.upstream.base import POSTED, Outgoing
from taskgate.upstream.duplex.base import (
    ChannelListener,
    ChannelRefusal,
    ChannelRequest,
    ChannelUnavailable,
    MessageChannel,
)
from taskgate.upstream.failures import Ours
from taskgate.upstream.settings import UpstreamSettings
from taskgate.upstream.wire.connection import Target
from taskgate.upstream.wire.transport import HttpIncoming, HttpTransport


def elsewhere() -> UpstreamFailed:
    """The endpoint is of another origin, to which nothing is sent (U-SSE-2)."""
    text = "The server's message endpoint is on another origin, which is not allowed"
    return UpstreamFailed(UpstreamReason.REDIRECT, text, dispatched=False)


def no_stream() -> UpstreamFailed:
    """The answer is no event stream."""
    text = "The server broke the protocol: it did not answer with an event stream"
    return UpstreamFailed(UpstreamReason.MALFORMED, text, dispatched=False)


def no_endpoint() -> UpstreamFailed:
    """The stream is open, but the server did not send its endpoint."""
    text = "The server did not send its message endpoint in time"
    return UpstreamFailed(UpstreamReason.TIMEOUT, text, dispatched=False)


def ended_at_once() -> UpstreamFailed:
    """The stream ended before the endpoint was sent."""
    text = "The server's event stream ended before it sent its message endpoint"
    return UpstreamFailed(UpstreamReason.UNREACHABLE, text, dispatched=False)


def ended(*, dispatched: bool) -> UpstreamFailed:
    """The stream ended, and its session with it (U-SSE-3)."""
    return UpstreamFailed(UpstreamReason.CLOSED, "The server's event stream ended", dispatched=dispatched)


def given_up(*, dispatched: bool) -> UpstreamFailed:
    """The gateway closed the stream."""
    text = "The connection to the server was closed"
    return Ours(UpstreamReason.CLOSED, text, dispatched=dispatched)


ENDPOINT: Final = b"endpoint"

log = getLogger("taskgate.upstream")


class SseChannel:
    """A `MessageChannel` (`duplex.base`) over one stream.

    - `ready`: awaited by the provider, before anything is sent.
    - `listen`: sets the listener (`listener`), which gets every message, and `lost` once at the end.
    - `send`: POSTs a message, and returns the HTTP status of a refusal. Raises UpstreamFailed.
    - `pause`, `resume`: stop and continue the reading of the stream.
    - `answered`: takes an answer off the count of the stream's bytes, which are limited.
    - `drop`: closes the stream; `over` waits until the listener was told.

    `place` is called with the address that the server names, and returns its target or raises
    UpstreamFailed. `gone` is called once when the stream has ended, before the listener is told.
    """

    acknowledges: Final = True

    def __init__(
        self,
        origin: HttpTransport,
        stream: HttpIncoming,
        place: Callable[[bytes], Target],
        gone: Callable[["SseChannel"], None],
    ) -> None:
        self._origin = origin
        self._stream = stream
        self._place = place
        self._gone = gone
        self._listener: ChannelListener | None = None
        # Set while there is a listener that has not paused the channel.
        self._going = asyncio.Event()
        # Why the stream ended; None while it is open.
        self._failure: UpstreamFailed | None = None
        self._was_dropped = False
        # Whether it was logged that the server sent something that is no message: once is enough.
        self._logged_invalid = False
        loop = asyncio.get_running_loop()
        self._target: asyncio.Future[Target | UpstreamFailed] = loop.create_future()
        self._over: asyncio.Future[None] = loop.create_future()
        # An empty context: the channel serves later callers too.
        self._reading: asyncio.Task[None] | None = loop.create_task(self._read(), context=Context())
        self._reading.add_done_callback(self._ended)

    async def ready(self, within: float) -> None:
        """Wait until the address for messages is known, at most `within` seconds. Raises
        UpstreamFailed if it is refused, does not come, or the stream ends. The caller then drops
        the channel."""
        try:
            async with asyncio.timeout(within):
                found = await asyncio.shield(self._target)
        except TimeoutError:
            raise no_endpoint() from None
        if isinstance(found, UpstreamFailed):
            raise found.copy()

    # --- the message channel ------------------------------------------------------------------------------------------

    def listen(self, listener: ChannelListener) -> None:
        self._listener = listener
        if self._failure is not None:
            self._notify_soon(self._failure)
        self._going.set()

    async def send(self, outgoing: Outgoing) -> ChannelRefusal | None:
        """POST a message, and wait until the server has accepted or refused it."""
        target = self._target.result() if self._target.done() else None
        if self._failure is not None or target is None or isinstance(target, UpstreamFailed):
            raise ended(dispatched=False)
        incoming = await self._origin.send(outgoing, target)
        # The body is ignored: the answer comes on the stream.
        incoming.release(answered=True)
        return None if 200 <= incoming.status < 300 else ChannelRefusal(incoming.status, incoming.retry_after)

    def pause(self) -> None:
        self._going.clear()

    def resume(self) -> None:
        self._going.set()

    def answered(self, size: int) -> None:
        self._stream.answered(size)

    def drop(self) -> None:
        self._was_dropped = True
        if self._reading is not None:
            self._reading.cancel()

    async def over(self) -> None:
        """Wait until the stream has ended and the listener has been told."""
        await asyncio.shield(self._over)

    # --- reading ------------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        """Deliver the messages of the stream until it ends; always raises, with the cause of the
        end."""
        try:
            async for message in self._stream.messages(self._on_other_event):
                await self._going.wait()
                await self._deliver(message)
            raise ended(dispatched=True)
        finally:
            self._stream.release()

    async def _deliver(self, message: bytes) -> None:
        listener = self._listener
        assert listener is not None, "reading starts with a listener"
        was_message = (
            listener.on_message(message) if len(message) <= LARGE else await listener.on_large_message(message)
        )
        if not was_message and not self._logged_invalid:
            self._logged_invalid = True
            log.warning("a server sent something that is not a message; this and all like it are ignored")

    def _on_other_event(self, type: bytes, data: bytes) -> None:
        """Receive an event that is no message; `endpoint` has the address for messages."""
        # Only the first one counts: a later one would move the session.
        if type == ENDPOINT and not self._target.done():
            try:
                self._target.set_result(self._place(data))
            except UpstreamFailed as failure:
                self._target.set_result(failure.copy())

    # --- the end ------------------------------------------------------------------------------------------------------

    def _ended(self, reading: "asyncio.Task[None]") -> None:
        """Called once when reading has ended: report the end."""
        # The task has its error, which refers to this channel.
        self._reading = None
        failure = self._failure = self._failure_of(reading)
        if not self._target.done():
            self._target.set_result(self._failure_at_once(failure))
        self._gone(self)
        if self._listener is None:
            self._over.set_result(None)
        else:
            self._notify_soon(failure)

    def _notify_soon(self, failure: UpstreamFailed) -> None:
        asyncio.get_running_loop().call_soon(self._notify, failure, context=Context())

    def _notify(self, failure: UpstreamFailed) -> None:
        assert self._listener is not None, "there is a listener"
        self._listener.on_closed(failure)
        if not self._over.done():
            self._over.set_result(None)

    def _failure_of(self, reading: "asyncio.Task[None]") -> UpstreamFailed:
        """Return the failure for requests in flight."""
        if reading.cancelled():
            return given_up(dispatched=True)
        failure = reading.exception()
        if not isinstance(failure, UpstreamFailed):
            log.error("an event stream could not be read", exc_info=failure)
            return protocol_violation("its event stream cannot be read")
        return ended(dispatched=True) if failure.reason == UpstreamReason.CLOSED.value else failure.copy()

    def _failure_at_once(self, failure: UpstreamFailed) -> UpstreamFailed:
        """Return the failure for a stream that ended before the address was known, so that nothing
        was sent."""
        if failure.reason == UpstreamReason.CLOSED.value and not self._was_dropped:
            return ended_at_once()
        return failures.unsent(failure)


LONGEST: Final = 4096
"""The most bytes of an address for messages."""


class SseChannelProvider:
    """A `ChannelProvider` (`duplex.base`) for one server.

    - `acquire`: opens a stream, and returns its channel once the server has named the address for
      messages. Raises ChannelUnavailable for an HTTP error status, UpstreamFailed otherwise.
    - `release`: closes the channel.
    - `close`: closes all channels and connections; then nothing is opened any more.

    `retried` is called with the reason of every further attempt to connect. After the stream is
    open, the server has the connect timeout again to send its address. Creating a provider raises
    TlsFileRefused if a configured TLS file cannot be used.
    """

    def __init__(self, settings: UpstreamSettings, retried: Callable[[str], None] = lambda reason: None) -> None:
        self._origin = HttpTransport(settings, retried)
        self.reaches = self._origin.reaches
        """Whether a connection to the server is made in so many seconds."""
        self._within = settings.connect.total_seconds()
        self._channels: set[SseChannel] = set()
        self._closed = False

    async def acquire(self, wanted: ChannelRequest) -> SseChannel:
        """Return a new channel, used by one session only."""
        if self._closed:
            raise failures.let_go(dispatched=False)
        if wanted.outgoing.only_listens:
            # The request needs the channel of a session that exists; a new one carries nothing to
            # listen to.
            raise failures.unreachable("no stream")
        stream = await self._opened(wanted.outgoing)
        if not 200 <= stream.status < 300:
            stream.release()
            raise ChannelUnavailable(ChannelRefusal(stream.status, stream.retry_after))
        if not stream.streams:
            stream.release()
            raise no_stream()
        channel = SseChannel(self._origin, stream, partial(self._place, stream.target), self._channels.discard)
        self._channels.add(channel)
        try:
            await channel.ready(self._within)
        except BaseException:
            channel.drop()
            raise
        return channel

    def release(self, channel: MessageChannel) -> None:
        """Close the channel: it has no other user."""
        channel.drop()

    async def close(self) -> None:
        self._closed = True
        channels = tuple(self._channels)
        for channel in channels:
            channel.drop()
        for channel in channels:
            await channel.over()
        await self._origin.close()

    async def _opened(self, wanted: Outgoing) -> HttpIncoming:
        """Return the answer to a GET for a stream. Its status may be an error. `wanted` is the
        request that needs the channel."""
        headers = {name: value for name, value in wanted.headers.items() if name not in POSTED}
        headers["Accept"] = "text/event-stream"
        asking = Outgoing(verb="GET", headers=headers, first_byte=wanted.first_byte, checks=wanted.checks)
        stream = await self._origin.send(asking, self._origin.redirects.configured)
        if not stream.has_valid_type:
            stream.drop()
            raise no_stream()
        return stream

    def _place(self, seen_at: Target, reference: bytes) -> Target:
        """Return the target for an address that a server names, as seen at `seen_at`. Raises
        UpstreamFailed if it is invalid or of another origin."""
        written = reference.decode(errors="replace").strip()
        if not written or len(reference) > LONGEST or "\ufffd" in written:
            raise failures.unsent(protocol_violation("its message endpoint is invalid"))
        place = self._origin.redirects.inside(written, seen_at)
        if place is None:
            raise elsewhere()
        return place
