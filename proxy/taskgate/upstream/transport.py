"""Bytes to and from one server over HTTP/1.1: one pool of connections, bounded reads, and no wish of its own.

It keeps no cookie, follows no redirect but one within the server's own origin, repeats nothing, reads no environment.
No exception of aiohttp and no address passes from here. What a message means must not live here.
"""

import asyncio
from collections import deque
from datetime import timedelta
from io import BytesIO
from typing import Final, Self

import aiohttp
from yarl import URL

from taskgate.mcp.sse import EventDecoder, EventTooLarge
from taskgate.mcp.vocabulary import SESSION_HEADER
from taskgate.upstream import failures
from taskgate.upstream.base import Outgoing
from taskgate.upstream.settings import UpstreamSettings

REUSE_WITHIN: Final = 2.0
"""Seconds. Servers close what is idle for five: a connection that may be closing is no place for a call made once."""

LINGER: Final = 0.25
"""Seconds that the end of a stream is waited for after its answer, so that the connection can serve the next call."""

_ONE_PIECE: Final = 2**20
_REDIRECTS: Final = range(300, 400)
# ValueError: a host name that cannot be one is noticed where the connection is made.
_NEVER_REACHED: Final = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, ValueError)
_CUT: Final = (aiohttp.ServerConnectionError, aiohttp.ClientOSError, aiohttp.ClientPayloadError, OSError)


class HttpTransport:
    """Moves bytes to and from one server. Connections are made when they are needed, as many as there are calls."""

    def __init__(self, settings: UpstreamSettings) -> None:
        self._limit = settings.max_result
        self._connect = settings.connect.total_seconds()
        self._configured = URL(settings.url)
        self._target = self._configured
        self._client: aiohttp.ClientSession | None = None
        self._closed = False

    async def send(self, outgoing: Outgoing) -> "HttpIncoming":
        """The answer's head; see Transport."""
        if outgoing.first_byte is None:
            response = await self._reach(outgoing)
        else:
            try:
                async with asyncio.timeout(outgoing.first_byte.total_seconds()):
                    response = await self._reach(outgoing)
            except TimeoutError:
                raise failures.silent() from None
        if response.status == 404:
            # What was remembered of a redirect may be what is gone.
            self._target = self._configured
        try:
            return HttpIncoming(response, limit=self._limit, idle=_seconds(outgoing.idle))
        except ValueError:
            # Its media type names an encoding that its own bytes break.
            response.close()
            raise failures.malformed("its answer has no media type") from None

    async def close(self) -> None:
        """Drop every connection; nothing can be sent any more."""
        self._closed = True
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _reach(self, outgoing: Outgoing) -> aiohttp.ClientResponse:
        response = await self._request(outgoing, self._target)
        return await self._follow(outgoing, response) if response.status in _REDIRECTS else response

    async def _request(self, outgoing: Outgoing, target: URL) -> aiohttp.ClientResponse:
        if self._closed:
            raise failures.let_go(dispatched=False)
        client = self._client or self._new_client()
        try:
            return await client.request(
                outgoing.verb, target, headers=outgoing.headers, data=_payload(outgoing.body), allow_redirects=False
            )
        except _NEVER_REACHED:
            raise failures.unreachable() from None
        except _CUT:
            raise failures.closed() from None
        except aiohttp.ClientError:
            raise failures.malformed("its answer is no HTTP") from None

    async def _follow(self, outgoing: Outgoing, response: aiohttp.ClientResponse) -> aiohttp.ClientResponse:
        """Go once to where the server sends us, and from now on first; only within the configured origin (22a)."""
        status, location = response.status, response.headers.get("Location")
        response.close()
        target = None if status not in failures.KEEPING_REDIRECTS else self._inside(location)
        if target is None:
            raise failures.redirected(status)
        response = await self._request(outgoing, target)
        if response.status in _REDIRECTS:
            response.close()
            raise failures.redirected(response.status)
        self._target = target
        return response

    def _inside(self, location: str | None) -> URL | None:
        try:
            target = self._target.join(URL(location or ""))
            # An origin leaves out a user, which must not be taken from a server either.
            inside = bool(location) and target.origin() == self._configured.origin() and target.user is None
        except ValueError:
            return None
        return target.with_fragment(None) if inside else None

    def _new_client(self) -> aiohttp.ClientSession:
        self._client = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=REUSE_WITHIN),
            cookie_jar=aiohttp.DummyCookieJar(),
            # Sent because aiohttp would offer codings otherwise.
            headers={"Accept-Encoding": "identity", "User-Agent": "taskgate"},
            timeout=aiohttp.ClientTimeout(total=None, connect=self._connect),
            auto_decompress=False,
            trust_env=False,
            max_line_size=8190,
            max_field_size=8190,
            max_headers=128,
        )
        return self._client


class HttpIncoming:
    """An answer whose head has arrived; it is its own iterator, so that leaving it half read costs nothing."""

    __slots__ = ("_decoder", "_idle", "_limit", "_ready", "_response", "_was_read", "session", "status", "streams")

    def __init__(self, response: aiohttp.ClientResponse, *, limit: int, idle: float | None) -> None:
        self._response = response
        self._limit = limit
        self._idle = idle
        self._decoder: EventDecoder | None = None
        self._ready: deque[bytes] | None = None
        self._was_read = False
        self.status = response.status
        self.session = response.headers.get(SESSION_HEADER)
        self.streams = response.content_type == "text/event-stream"

    def messages(self) -> Self:
        """The messages of the body; see Incoming."""
        if self._ready is None:
            if not self.streams and self._response.content_type != "application/json":
                raise failures.malformed("its answer is neither JSON nor an event stream")
            if self._response.headers.get("Content-Encoding", "identity").lower() != "identity":
                raise failures.malformed("its answer is in a coding it was not asked for")
            self._decoder = EventDecoder(self._limit) if self.streams else None
            self._ready = deque()
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        assert self._ready is not None, "`messages` looks at the head before the body is read"
        if self._decoder is None:
            return await self._document()
        while not self._ready:
            chunk = await self._chunk()
            if not chunk:
                raise StopAsyncIteration
            try:
                self._ready.extend(self._decoder.feed(chunk))
            except EventTooLarge:
                raise failures.too_large() from None
        return self._ready.popleft()

    async def release(self, *, answered: bool = False) -> None:
        """Be done with the answer; see Incoming."""
        content = self._response.content
        if answered and not content.is_eof():
            # The connection goes back to the pool by itself when the end of the body arrives.
            asyncio.get_running_loop().call_later(LINGER, self._response.close)
        elif content.is_eof():
            self._response.release()
        else:
            self._response.close()

    async def _document(self) -> bytes:
        if self._limit < (self._response.content_length or 0):
            raise failures.too_large()
        if self._was_read:
            raise StopAsyncIteration
        self._was_read = True
        pieces: list[bytes] = []
        room = self._limit
        while chunk := await self._chunk():
            room -= len(chunk)
            if room < 0:
                raise failures.too_large()
            pieces.append(chunk)
        return b"".join(pieces)

    async def _chunk(self) -> bytes:
        try:
            if self._idle is None:
                return await self._response.content.readany()
            async with asyncio.timeout(self._idle):
                return await self._response.content.readany()
        except TimeoutError:
            raise failures.silent() from None
        except (aiohttp.ClientError, OSError):
            raise failures.broke_off() from None


def _payload(body: bytes | None) -> bytes | BytesIO | None:
    # In one piece aiohttp would copy a large body at once, and warn of it.
    return BytesIO(body) if body is not None and len(body) > _ONE_PIECE else body


def _seconds(bound: timedelta | None) -> float | None:
    return None if bound is None else bound.total_seconds()
