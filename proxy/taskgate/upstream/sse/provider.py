"""Provider of SSE channels to one server: `SseChannelProvider`, one event stream per session.

A stream is opened with the headers (credentials) of the request that needs it and is never shared.
The address for messages must be within the server's own origin, else the stream is refused. Used by
`DuplexTransport`.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from taskgate.protocol.faults import protocol_violation
from taskgate.upstream import failures
from taskgate.upstream.base import POSTED, Outgoing
from taskgate.upstream.beside import LeftOut
from taskgate.upstream.duplex.base import ChannelUnavailable, MessageChannel, Wish
from taskgate.upstream.settings import UpstreamSettings
from taskgate.upstream.sse import trouble
from taskgate.upstream.sse.channel import SseChannel
from taskgate.upstream.wire.answer import HttpIncoming
from taskgate.upstream.wire.origin import Origin, Target

LONGEST: Final = 4096
"""The most bytes of an address for messages."""


class SseChannelProvider:
    """A `ChannelProvider` (`duplex.base`) for one server.

    - `take`: opens a stream, and returns its channel once the server has named the address for
      messages. Raises ChannelUnavailable for an HTTP error status, UpstreamFailed otherwise.
    - `give_back`: closes the channel.
    - `close`: closes all channels and connections; then nothing is opened any more.

    `retried` is called with the reason of every further attempt to connect. After the stream is
    open, the server has the connect timeout again to send its address. Creating a provider raises
    TlsFileRefused if a configured TLS file cannot be used.
    """

    def __init__(self, settings: UpstreamSettings, retried: Callable[[str], None] = lambda reason: None) -> None:
        self._left_out = LeftOut(settings.name)
        self._origin = Origin(settings, retried)
        self._limit = settings.max_result
        self._within = settings.connect.total_seconds()
        self._lines: set[SseChannel] = set()
        self._closed = False

    async def take(self, wish: Wish) -> SseChannel:
        """Return a new channel, used by one session only."""
        if self._closed:
            raise failures.let_go(dispatched=False)
        if wish.outgoing.only_listens:
            # The request needs the channel of a session that exists; a new one carries nothing to
            # listen to.
            raise failures.unreachable()
        stream, seen_at = await self._opened(wish.outgoing)
        if not 200 <= stream.status < 300:
            stream.release()
            raise ChannelUnavailable(stream.status)
        if not stream.streams:
            stream.release()
            raise trouble.no_stream()
        line = SseChannel(self._origin, stream, partial(self._place, seen_at), self._lines.discard)
        self._lines.add(line)
        try:
            await line.ready(self._within)
        except BaseException:
            line.drop()
            raise
        return line

    def give_back(self, line: MessageChannel) -> None:
        """Close the channel: it has no other user."""
        line.drop()

    async def close(self) -> None:
        self._closed = True
        lines = tuple(self._lines)
        for line in lines:
            line.drop()
        for line in lines:
            await line.over()
        await self._origin.close()

    async def _opened(self, wanted: Outgoing) -> tuple[HttpIncoming, Target]:
        """Return the answer to a GET for a stream, and the target that gave it. Its status may be
        an error. `wanted` is the request that needs the channel."""
        headers = {name: value for name, value in wanted.headers.items() if name not in POSTED}
        headers["Accept"] = "text/event-stream"
        asking = Outgoing(verb="GET", headers=headers, first_byte=wanted.first_byte, checks=wanted.checks)
        connection, message, body, target = await self._origin.request(asking, self._origin.configured)
        try:
            limit, left_out = self._limit, self._left_out
            return HttpIncoming(connection, message, body, limit=limit, idle=None, left_out=left_out), target
        except ValueError:
            connection.drop()
            raise trouble.no_stream() from None

    def _place(self, seen_at: Target, reference: bytes) -> Target:
        """Return the target for an address that a server names, as seen at `seen_at`. Raises
        UpstreamFailed if it is invalid or of another origin."""
        written = reference.decode(errors="replace").strip()
        if not written or len(reference) > LONGEST or "\ufffd" in written:
            raise failures.unsent(protocol_violation("its message endpoint is invalid"))
        place = self._origin.inside(written, seen_at)
        if place is None:
            raise trouble.elsewhere()
        return place
