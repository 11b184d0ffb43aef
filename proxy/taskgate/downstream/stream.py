"""One exchange with a host, and the event stream it may become.

What lives here: the listener's side of the engine's `Exchange`. What must not: when to stream, or what to say. What
holds: a stream is written by one task of its own, but for messages that leave while it waits and the host keeps up; its
headers leave at once, silence is broken by comments, and a host that has left or does not read closes the feed, so that
its writers learn.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import HttpVersion, hdrs, web
from aiohttp.http import HttpVersion11
from multidict import CIMultiDict

from taskgate.downstream.body import Bodies
from taskgate.downstream.peers import Peers
from taskgate.downstream.protocol import SERVER_NAME
from taskgate.engine.messages import Feed, Inbound, Verb
from taskgate.mcp import sse
from taskgate.telemetry.audit import Audit, StreamEnded, StreamOpened

_HEADERS: Final = CIMultiDict(
    {
        hdrs.CONTENT_TYPE: "text/event-stream",
        hdrs.CACHE_CONTROL: "no-cache",
        "X-Accel-Buffering": "no",
        hdrs.SERVER: SERVER_NAME,
    }
)

_log = logging.getLogger("taskgate.downstream")


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What is the same for all exchanges of a listener; `silence` is how many seconds a stream may say nothing."""

    audit: Audit
    bodies: Bodies
    peers: Peers
    silence: float


class HostExchange:
    """One request of a host, as the engine is offered it. `asked` tells whether the engine wanted the body."""

    __slots__ = (
        "_feed",
        "_forget",
        "_gone",
        "_http",
        "_inbound",
        "_last",
        "_response",
        "_terms",
        "_writer",
        "asked",
    )

    def __init__(self, http: web.BaseRequest, inbound: Inbound, terms: Terms) -> None:
        self.asked = False
        self._http = http
        self._inbound = inbound
        self._terms = terms
        self._gone = False
        self._forget: list[Callable[[], None]] = []
        self._feed: Feed | None = None
        self._last: str | None = None
        self._response: web.StreamResponse | None = None
        self._writer: asyncio.Task[None] | None = None

    @property
    def inbound(self) -> Inbound:
        """What came in."""
        return self._inbound

    @property
    def version(self) -> HttpVersion:
        """The HTTP that the host speaks."""
        return self._http.version

    @property
    def address(self) -> str:
        """Where the request comes from; found out anew each time, because hardly any request is asked."""
        headers = self._http.headers
        forwarded, forwarded_for = headers.getall(hdrs.FORWARDED, ()), headers.getall(hdrs.X_FORWARDED_FOR, ())
        return self._terms.peers.address_of(self._http.remote, forwarded, forwarded_for)

    def body(self) -> Coroutine[Any, Any, bytes]:
        """The whole body, to be awaited. Raises Refused then, of which this exchange ends."""
        self.asked = True
        return self._terms.bodies.receive(self._http)

    def stream(self) -> Feed:
        """Turn the answer into an event stream; closed from the start where the host has left."""
        if self._feed is None:
            self._feed = Feed(pass_on=self._pass_on)
            if self._gone:
                self._feed.close()
            else:
                self._open(self._feed)
        return self._feed

    def when_gone(self, forget: Callable[[], None]) -> None:
        """Call `forget` once if the host leaves before the answer; at once if it has left already."""
        if self._gone:
            forget()
        else:
            self._forget.append(forget)

    def host_left(self) -> None:
        """Nobody will read the answer: end the stream, and tell whoever waits for the host's sake. Once."""
        self._gone = True
        if self._feed is not None:
            self._feed.close()
        waiting, self._forget = self._forget, []
        for forget in waiting:
            forget()

    def wind_down(self) -> None:
        """A host's GET stream ends only when somebody ends it."""
        if self._inbound.verb is Verb.GET:
            self.host_left()

    @property
    def streams(self) -> bool:
        """Whether the answer has become an event stream."""
        return self._writer is not None

    async def finish(self, last: str | None) -> web.StreamResponse:
        """End the stream, which there is, after `last`."""
        assert self._writer is not None
        assert self._feed is not None
        assert self._response is not None
        self._last = last
        self._feed.close()
        await asyncio.wait([self._writer])
        return self._response

    async def abandon(self) -> None:
        """Stop writing, wherever the stream stands."""
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.wait([self._writer])

    def _open(self, feed: Feed) -> None:
        self._response = response = web.StreamResponse(headers=_HEADERS)
        if self._http.version != HttpVersion11:
            # Without chunks only the end of the connection marks the end of the stream.
            response.force_close()
        self._terms.audit.record(StreamOpened("downstream", self._kind))
        self._writer = asyncio.get_running_loop().create_task(self._write(response, feed))
        self._writer.add_done_callback(self._ended)

    async def _write(self, response: web.StreamResponse, feed: Feed) -> None:
        await response.prepare(self._http)
        while not feed.drained:
            message = await feed.next(self._terms.silence)
            if message is not None:
                await self._put(response, sse.event(message))
            elif not feed.closed:
                await self._put(response, sse.KEEP_ALIVE)
        # Not through the feed: the answer may be larger than what a slow host may let wait.
        if self._last is not None:
            await self._put(response, sse.event(self._last))
        await response.write_eof()

    def _pass_on(self, message: str) -> bool:
        """Write a message where the writer would only do the same a moment later; it waits, so the head has left."""
        http, transport = self._http, self._http.transport
        if http.version != HttpVersion11 or transport is None or transport.is_closing() or http.protocol.writing_paused:
            return False
        try:
            piece = sse.event(message)
        except UnicodeEncodeError:
            # The writer ends of it.
            return False
        transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        return True

    async def _put(self, response: web.StreamResponse, piece: bytes) -> None:
        await response.write(piece)
        # aiohttp waits for a slow host after every 64 KiB only: small pieces would pile up behind one that has stopped.
        await self._http.writer.drain()

    def _ended(self, writer: asyncio.Task[None]) -> None:
        if self._feed is not None:
            self._feed.close()
        self._terms.audit.record(StreamEnded("downstream", self._kind))
        error = None if writer.cancelled() else writer.exception()
        if error is not None and not isinstance(error, ConnectionError):
            _log.error("a stream failed", extra={"error": type(error).__name__})

    @property
    def _kind(self) -> str:
        return "get" if self._inbound.verb is Verb.GET else "response"
