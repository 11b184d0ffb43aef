"""What one session knows of its server: asked once, doubted when it answers as one of the other era would, asked again.

What must not live here: the server's tools (`catalogue`), and how a request gets its answer.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from taskgate.clock import Clock
from taskgate.domain.versions import Peer
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.protocol.base import Server
from taskgate.protocol.envelope import Response
from taskgate.protocol.vocabulary import MODERN_ERRORS, SERVER_DISCOVER, UNSUPPORTED_VERSION
from taskgate.upstream import failures
from taskgate.upstream.calls import Call
from taskgate.upstream.legacy.talk import SIGN_OF_LIFE
from taskgate.upstream.modern.context import ModernUpstreamContext
from taskgate.upstream.modern.exchanges import ModernExchanges
from taskgate.upstream.modern.waits import RequestWaits
from taskgate.upstream.patience import briefly
from taskgate.upstream.single import Abandoned, SingleFlight

SURE_FOR: Final = 30.0
"""Seconds for which a server is not doubted that has said who it is, whatever else it answers."""

_OF_ANY_ERA: Final = frozenset(
    {
        UpstreamReason.CLOSED.value,
        UpstreamReason.TIMEOUT.value,
        UpstreamReason.MALFORMED.value,
        UpstreamReason.TOO_LARGE.value,
    }
)
"""What may come of asking a server of the other era who it is: it need not know the question."""


class Discovery:
    """Who the server is. `met` is awaited with what it said, before anybody hears of that; `lost` when it left."""

    def __init__(
        self,
        upstream_context: ModernUpstreamContext,
        host: Peer | None,
        *,
        exchanges: ModernExchanges,
        waits: RequestWaits,
        met: Callable[[Server], Awaitable[None]],
        lost: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._upstream_context = upstream_context
        self._host = host
        self._exchanges = exchanges
        self._waits = waits
        self._met = met
        self._lost = lost
        self._clock = clock
        self._server = SingleFlight(self._discover)
        self._sure_since = 0.0
        self.serves_tasks = False
        """Whether it said last that it may make tasks of calls."""
        self._closed = False

    @property
    def value(self) -> Server | None:
        """What is known without waiting; None once it is closed."""
        return None if self._closed else self._server.value

    async def get(self) -> Server:
        """What it said of itself. Raises UpstreamFailed: nothing that is to come after has left."""
        if self._closed:
            raise failures.let_go(dispatched=False)
        try:
            return self._server.value or await self._server.get()
        except UpstreamFailed as failure:
            # Whatever became of the discovery, the call it was made for has not left.
            raise failures.unsent(failure) from None
        except Abandoned:
            raise failures.let_go(dispatched=False) from None

    def doubt(self, response: Response) -> None:
        """Where a server of the other era answers like that, have the next request go to one that says who it is."""
        if response.error is None or response.error_code in MODERN_ERRORS:
            return
        if self._clock.elapsed() - self._sure_since >= SURE_FOR:
            self._server.forget()

    async def see(self) -> None:
        """It refused without a word: ask at once whether it left this era, unless it is being asked."""
        if self._server.value is not None:
            self._server.forget()
        with suppress(UpstreamFailed, TimeoutError):
            async with asyncio.timeout(SIGN_OF_LIFE.total_seconds()):
                await self.get()

    def expect_era(self, response: Response) -> None:
        """Refuse an answer that says that the server does not speak this revision any more; it did not act then."""
        if response.error_code == UNSUPPORTED_VERSION:
            raise self._other_era()

    async def close(self) -> None:
        """Nobody wants to know any more: give up what is being asked, and say so to whoever asks still."""
        self._closed = True
        await self._server.close()

    async def _discover(self) -> Server:
        upstream_context = self._upstream_context
        first_byte = upstream_context.settings.first_byte
        call = Call(next(upstream_context.ids), None, briefly(first_byte))
        written = upstream_context.dialect.discover(call.id, self._host)
        asked = self._exchanges.ask(call, written, first_byte, asks_who=True)
        try:
            answer = await self._waits.bounded(call, SERVER_DISCOVER, asked, self.expect_era)
            server = upstream_context.dialect.read_discovery(answer)
        except UpstreamFailed as failure:
            tells = failure.reason in _OF_ANY_ERA or isinstance(failure, failures.Unwelcome)
            if tells and not self._closed:
                upstream_context.era_lost()
            raise
        if server is None:
            raise self._other_era()
        self._sure_since = self._clock.elapsed()
        self.serves_tasks = upstream_context.dialect.serves_tasks(server)
        await self._met(server)
        return server

    def _other_era(self) -> UpstreamFailed:
        self._server.forget()
        self._lost()
        self._upstream_context.era_lost()
        text = "The server and the gateway share no protocol revision of this era"
        return UpstreamFailed(UpstreamReason.REFUSED, text, dispatched=False)
