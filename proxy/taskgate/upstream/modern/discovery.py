"""Identity of a modern server in one session: `Discovery` asks `server/discover`.

`RoundRunner` gets the identity before each request, except to resume a call; only the first one
asks the server. It is forgotten, and asked again, after an answer that a legacy server could give.
If the server has left the modern era, `era_lost` of the context is called.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from taskgate.clock import Clock
from taskgate.domain.versions import Peer
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.protocol.discovery import ServerDescription
from taskgate.protocol.messages import Response
from taskgate.protocol.vocabulary import MODERN_ERRORS, SERVER_DISCOVER, UNSUPPORTED_VERSION
from taskgate.upstream import failures
from taskgate.upstream.calls import Call, briefly
from taskgate.upstream.context import ModernUpstreamContext
from taskgate.upstream.legacy.talk import SIGN_OF_LIFE
from taskgate.upstream.modern.exchanges import ModernExchanges
from taskgate.upstream.single import Abandoned, SingleFlight

SURE_FOR: Final = 30.0
"""Seconds after an answer to `server/discover` in which no other answer casts doubt on the era."""

_OF_ANY_ERA: Final = frozenset(
    {
        UpstreamReason.CLOSED.value,
        UpstreamReason.TIMEOUT.value,
        UpstreamReason.MALFORMED.value,
        UpstreamReason.TOO_LARGE.value,
    }
)
"""Failures that a legacy server may cause when it gets `server/discover`, which it need not know."""


class Discovery:
    """The server's identity: unknown, being asked, or known.

    `met` is awaited with each new identity before any caller gets it. `lost` is called when the
    server turns out not to support this revision.
    """

    def __init__(
        self,
        upstream_context: ModernUpstreamContext,
        host: Peer | None,
        *,
        exchanges: ModernExchanges,
        met: Callable[[ServerDescription], Awaitable[None]],
        lost: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._upstream_context = upstream_context
        self._host = host
        self._exchanges = exchanges
        self._met = met
        self._lost = lost
        self._clock = clock
        self.server = SingleFlight(self._discover)
        """The identity, shared by all requests that wait for it; unknown once this is closed."""
        # The time of the last valid answer; see `doubt`.
        self._sure_since = 0.0
        self.serves_tasks = False
        """Whether the server last said that it can make tasks of calls."""
        self._closed = False

    async def get(self) -> ServerDescription:
        """Return the identity; ask for it if it is unknown. Raises UpstreamFailed; the call that
        needs it has not been sent."""
        if self._closed:
            raise failures.let_go(dispatched=False)
        try:
            return self.server.value or await self.server.get()
        except UpstreamFailed as failure:
            # The call that needed the discovery was not sent.
            raise failures.unsent(failure) from None
        except Abandoned:
            raise failures.let_go(dispatched=False) from None

    def doubt(self, response: Response) -> None:
        """Forget the identity after an error that a legacy server could give; the next request asks
        again.

        Not soon after the last discovery, since errors of a modern server look alike.
        """
        if response.error_code in MODERN_ERRORS:
            return
        if self._clock.elapsed() - self._sure_since >= SURE_FOR:
            self.server.forget()

    async def see(self) -> None:
        """Ask `server/discover` again at once, after an `Unwelcome` refusal: a bare HTTP status that
        a legacy server could give, too.

        `era_lost` of the context is called if that shows that the server left this era. The wait is
        short, and nothing is raised: the refused request fails anyway.
        """
        if self.server.value is not None:
            self.server.forget()
        with suppress(UpstreamFailed, TimeoutError):
            async with asyncio.timeout(SIGN_OF_LIFE.total_seconds()):
                await self.get()

    def expect_era(self, response: Response) -> None:
        """Raise UpstreamFailed for an error that the server does not support this revision; it did
        not act then."""
        if response.error_code == UNSUPPORTED_VERSION:
            raise self._other_era()

    async def close(self) -> None:
        """Stop the request that runs; its waiters and all later callers get a failure."""
        self._closed = True
        await self.server.close()

    async def _discover(self) -> ServerDescription:
        upstream_context = self._upstream_context
        first_byte = upstream_context.settings.first_byte
        call = Call(next(upstream_context.ids), None, briefly(first_byte))
        written = upstream_context.dialect.discover(call.id, self._host)
        asked = self._exchanges.ask(call, written, first_byte, asks_who=True)
        try:
            answer = await self._exchanges.bounded(call, SERVER_DISCOVER, asked, self.expect_era)
            server = upstream_context.dialect.read_discovery(answer)
        except UpstreamFailed as failure:
            # Other failures, such as an unreachable server, say nothing about the era.
            may_be_legacy = failure.reason in _OF_ANY_ERA or isinstance(failure, failures.Unwelcome)
            if may_be_legacy and not self._closed:
                upstream_context.era_lost()
            raise
        if server is None:
            raise self._other_era()
        self._sure_since = self._clock.elapsed()
        self.serves_tasks = upstream_context.dialect.server_declares_tasks(server)
        await self._met(server)
        return server

    def _other_era(self) -> UpstreamFailed:
        """Forget the server, report that it left this era, and return the failure."""
        self.server.forget()
        self._lost()
        self._upstream_context.era_lost()
        text = "The server and the gateway share no protocol revision of this era"
        return UpstreamFailed(UpstreamReason.REFUSED, text, dispatched=False)
