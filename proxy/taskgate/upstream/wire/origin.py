"""Requests to the origin of one server: one pool of connections, bounded reads, and no wish of its own.

It keeps no cookie, follows no redirect but one within the server's own origin, reads no environment, and repeats
nothing of which a byte may have left. No address passes from here. What must not live here: what an answer means, and
which address is asked.
"""

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
from taskgate.upstream.wire.connection import Connection
from taskgate.upstream.wire.pool import Pool
from taskgate.upstream.wire.retrying import Retrying
from taskgate.upstream.wire.target import Target

REUSE_WITHIN: Final = 2.0
"""Seconds. Servers close what is idle for five: a connection that may be closing is no place for a call made once."""

_UNMADE: Final = frozenset({UpstreamReason.UNREACHABLE.value, UpstreamReason.INTERNAL.value})
"""No connection came about, by the server's fault or ours."""
REDIRECTS: Final = range(300, 400)
Answer = tuple[Connection, RawResponseMessage, StreamReader]


class Origin:
    """Makes requests to one server. Connections are made when they are needed, as many as there are requests.

    `retried` is told the reason of every further try. Raises TlsFileRefused.
    """

    def __init__(self, settings: UpstreamSettings, retried: Callable[[str], None]) -> None:
        assert settings.url is not None, "an HTTP upstream has a URL"
        self.configured: Final = Target(URL(settings.url))
        """Where the server is, as the operator says."""
        self._pool = Pool(
            self.configured.url,
            connect=settings.connect.total_seconds(),
            reuse_within=REUSE_WITHIN,
            tls=settings.tls,
        )
        self._retrying = Retrying(settings.retries, settings.name, retried)
        self._closed = False

    async def request(self, outgoing: Outgoing, target: Target, until: float | None) -> Answer:
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
                if failure.reason not in _UNMADE or outgoing.only_listens:
                    raise
                pauses = pauses or self._retrying.pauses()
                pause = next(pauses, None)
                if pause is None or not await self._retrying.wait(pause, until):
                    raise
                if not outgoing.checks:
                    self._retrying.tell()

    async def follow(
        self, outgoing: Outgoing, answer: Answer, target: Target, until: float | None
    ) -> tuple[Answer, Target]:
        """Go once to where `target` sends us, and that place; only within the configured origin (22a)."""
        connection, message, _ = answer
        connection.release()
        inside = None
        if message.code in failures.KEEPING_REDIRECTS:
            inside = self.inside(message.headers.get(hdrs.LOCATION), target)
        if inside is None:
            raise failures.redirected(message.code)
        again = await self.request(outgoing, inside, until)
        connection, message, _ = again
        if message.code in REDIRECTS:
            connection.release()
            raise failures.redirected(message.code)
        return again, inside

    def inside(self, location: str | None, target: Target) -> Target | None:
        """The place that a reference seen at `target` names; None where it is not within the origin, or is none."""
        try:
            url = target.url.join(URL(location or ""))
            # An origin leaves out a user, which must not be taken from a server either.
            inside = bool(location) and url.origin() == self.configured.url.origin() and url.user is None
            return Target(url.with_fragment(None)) if inside else None
        except ValueError:
            return None

    async def close(self) -> None:
        """Drop every connection; nothing can be sent any more."""
        self._closed = True
        self._retrying.close()
        await self._pool.close()


def seconds(bound: timedelta | None) -> float | None:
    """A bound as the loop counts it."""
    return None if bound is None else bound.total_seconds()


def _head(outgoing: Outgoing, target: Target) -> bytes:
    try:
        return target.head(outgoing)
    except ValueError:
        raise failures.unreachable() from None
