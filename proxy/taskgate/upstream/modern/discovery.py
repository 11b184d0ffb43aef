"""A modern server as one session knows it: its identity (`Discovery`) and its tools (`ModernCatalogue`).

`RoundRunner` gets the identity before each request, except to resume a call; only the first one
asks the server (`server/discover`). It is forgotten, and asked again, after an answer that a legacy
server could give. If the server has left the modern era, `era_lost` of the context is called.

A tool may require that `Mcp-Param-*` headers of its calls repeat some of their arguments; its entry
in the list has which (`ListedTool.header_paths`). `ModernSession` sends the requests for pages, and
forgets the catalogue when the server says that it changed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from logging import getLogger
from typing import Final

from taskgate.clock import Clock
from taskgate.domain.versions import Peer
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.jsontext.spans import RawJson
from taskgate.protocol.discovery import ListedTool, ServerDescription, ToolList, ToolPage
from taskgate.protocol.messages import Response
from taskgate.protocol.server_messages import EncodedRequest
from taskgate.protocol.vocabulary import MODERN_ERRORS, SERVER_DISCOVER, UNSUPPORTED_VERSION
from taskgate.system.single_flight import Abandoned, SingleFlight
from taskgate.upstream import failures
from taskgate.upstream.calls import RunningCall, briefly
from taskgate.upstream.context import ModernUpstreamContext
from taskgate.upstream.descriptions import Catalogue, read_catalogue
from taskgate.upstream.legacy.connection import SIGN_OF_LIFE
from taskgate.upstream.modern.exchanges import ModernExchanges

MOST_NAMED: Final = 16
"""Tools of a page that are logged by name when they are left out; a faulty server may have very
many."""

log = getLogger("taskgate.upstream")


class ModernCatalogue:
    """Tool list of one session.

    `open_` is awaited before each reading, so that the server is known. `ask` sends the request for
    one page and returns the answer.
    """

    def __init__(
        self,
        upstream_context: ModernUpstreamContext,
        host: Peer | None,
        *,
        open_: Callable[[], Awaitable[ServerDescription]],
        ask: Callable[[RunningCall, EncodedRequest], Awaitable[Response]],
        clock: Clock,
    ) -> None:
        self._upstream_context = upstream_context
        self._host = host
        self._open = open_
        self._ask = ask
        self.tools = Catalogue(
            self._read,
            clock,
            age=upstream_context.settings.catalogue_age,
            read=self._read_page,
            bounds=upstream_context.settings.catalogue,
        )
        """All tools by name. To read them raises UpstreamFailed."""
        self.forget = self.tools.forget
        """Have the next user read the list again."""

    async def read_for_call(self) -> Mapping[str, ListedTool]:
        """Read the list if it is unknown, and return it.

        Empty if it cannot be read: the call is sent, and the server refuses it if it lacks a header.
        """
        try:
            return await self.tools.with_tool()
        except UpstreamFailed:
            return {}

    async def _read(self) -> ToolList:
        await self._open()
        upstream_context = self._upstream_context
        return await read_catalogue(
            self._ask_for_page, self._read_page, upstream_context.settings.catalogue, upstream_context.observer.list_cut
        )

    def _ask_for_page(self, cursor: RawJson | None) -> Awaitable[Response]:
        upstream_context = self._upstream_context
        call = RunningCall(next(upstream_context.ids), None, upstream_context.patience.of())
        call.runs_nothing = True
        return self._ask(call, upstream_context.dialect.list_tools(call.id, cursor, self._host))

    def _read_page(self, response: Response) -> ToolPage:
        upstream_context = self._upstream_context
        read = upstream_context.dialect.read_tools(response)
        for name in read.refused[:MOST_NAMED]:
            extra = {"upstream": upstream_context.settings.name, "tool": name}
            log.warning("a tool is not listed: its header annotations are invalid", extra=extra)
        return read.page


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
        # The last look of `see`.
        self._look: asyncio.Task[ServerDescription] | None = None
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
        short, and nothing is raised: the refused request fails anyway. Other requests use the identity that
        is known meanwhile, and all that are refused share one look.
        """
        look = self._look
        if look is None or look.done():
            if self.server.value is None:
                # It was forgotten, or is being asked.
                with suppress(UpstreamFailed, TimeoutError):
                    async with asyncio.timeout(SIGN_OF_LIFE.total_seconds()):
                        await self.get()
                return
            look = self._look = self.server.renew()
        await asyncio.wait((look,), timeout=SIGN_OF_LIFE.total_seconds())

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
        call = RunningCall(next(upstream_context.ids), None, briefly(first_byte))
        call.runs_nothing = True
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
