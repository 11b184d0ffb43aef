"""Bytes to and from one server over HTTP/1.1: one pool of connections, bounded reads, and no wish of its own.

It keeps no cookie, follows no redirect but one within the server's own origin, reads no environment, and repeats
nothing of which a byte may have left. No address passes from here. What a message means must not live here.
"""

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Final

from aiohttp import hdrs
from aiohttp.http_parser import RawResponseMessage
from aiohttp.streams import StreamReader
from yarl import URL

from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.upstream import failures
from taskgate.upstream.base import Outgoing
from taskgate.upstream.settings import UpstreamSettings
from taskgate.upstream.wire.answer import HttpIncoming
from taskgate.upstream.wire.connection import Connection
from taskgate.upstream.wire.pool import Pool
from taskgate.upstream.wire.retrying import Retrying
from taskgate.upstream.wire.target import Target

REUSE_WITHIN: Final = 2.0
"""Seconds. Servers close what is idle for five: a connection that may be closing is no place for a call made once."""

_REDIRECTS: Final = range(300, 400)
_Answer = tuple[Connection, RawResponseMessage, StreamReader]


class HttpTransport:
    """Moves bytes to and from one server. Connections are made when they are needed, as many as there are calls.

    `retried` is told the reason of every further try. Raises TlsFileRefused.
    """

    def __init__(self, settings: UpstreamSettings, retried: Callable[[str], None] = lambda reason: None) -> None:
        self._limit = settings.max_result
        self._configured = self._target = Target(URL(settings.url))
        self._pool = Pool(
            self._configured.url,
            connect=settings.connect.total_seconds(),
            reuse_within=REUSE_WITHIN,
            tls=settings.tls,
        )
        self._retrying = Retrying(settings.retries, settings.name, retried)
        self._closed = False

    async def send(self, outgoing: Outgoing) -> HttpIncoming:
        """The answer's head; see Transport."""
        patience = _seconds(outgoing.first_byte)
        until = None if patience is None else asyncio.get_running_loop().time() + patience
        answer = await self._request(outgoing, self._target, until)
        if answer[1].code in _REDIRECTS:
            answer = await self._follow(outgoing, answer, until)
        connection, message, body = answer
        if message.code == 404:
            # What was remembered of a redirect may be what is gone.
            self._target = self._configured
        try:
            return HttpIncoming(connection, message, body, limit=self._limit, idle=_seconds(outgoing.idle))
        except ValueError:
            connection.drop()
            raise failures.malformed("its answer has no media type") from None

    async def close(self) -> None:
        """Drop every connection; nothing can be sent any more."""
        self._closed = True
        self._retrying.close()
        await self._pool.close()

    async def _request(self, outgoing: Outgoing, target: Target, until: float | None) -> _Answer:
        """One request, with as many tries to have a connection as there may be: the first that has one is the last."""
        pauses: Iterator[float] | None = None
        while True:
            try:
                if self._closed:
                    raise failures.let_go(dispatched=False)
                head = _head(outgoing, target)
                connection = self._pool.take() or await self._pool.dial(until)
                message, body = await connection.ask(head, outgoing.body, until, outgoing.left)
                return connection, message, body
            except UpstreamFailed as failure:
                # A stream comes back by itself, in its own time.
                if failure.reason != UpstreamReason.UNREACHABLE.value or outgoing.only_listens:
                    raise
                pauses = pauses or self._retrying.pauses()
                pause = next(pauses, None)
                if pause is None or not await self._retrying.wait(pause, until):
                    raise
                if not outgoing.checks:
                    self._retrying.tell()

    async def _follow(self, outgoing: Outgoing, answer: _Answer, until: float | None) -> _Answer:
        """Go once to where the server sends us, and from now on first; only within the configured origin (22a)."""
        connection, message, _ = answer
        connection.release()
        target = None
        if message.code in failures.KEEPING_REDIRECTS:
            target = self._inside(message.headers.get(hdrs.LOCATION))
        if target is None:
            raise failures.redirected(message.code)
        connection, message, body = await self._request(outgoing, target, until)
        if message.code in _REDIRECTS:
            connection.release()
            raise failures.redirected(message.code)
        self._target = target
        return connection, message, body

    def _inside(self, location: str | None) -> Target | None:
        try:
            url = self._target.url.join(URL(location or ""))
            # An origin leaves out a user, which must not be taken from a server either.
            inside = bool(location) and url.origin() == self._configured.url.origin() and url.user is None
            return Target(url.with_fragment(None)) if inside else None
        except ValueError:
            return None


def _head(outgoing: Outgoing, target: Target) -> bytes:
    try:
        return target.head(outgoing)
    except ValueError:
        raise failures.unreachable() from None


def _seconds(bound: timedelta | None) -> float | None:
    return None if bound is None else bound.total_seconds()
