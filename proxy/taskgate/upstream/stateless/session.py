"""A session with a server of this era as its users see it; for the server there is none, only requests.

No request is ever made twice, but for one that its server refused for its headers (H-MOD-7). What must not live here:
the wire (`exchanges`), rounds (`rounds`), what is told besides answers (`listening`), tools (`catalogue`).
"""

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

from taskgate.clock import Clock
from taskgate.dialects.base import ListedTool, Params, Server
from taskgate.dialects.stateless_server import Saying, Written
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.interruption import Interrupted
from taskgate.mcp.jsonrpc import Notification, RawJson, Response
from taskgate.mcp.versions import Era, Peer
from taskgate.mcp.vocabulary import (
    NOTE_TOOLS_CHANGED,
    SERVER_DISCOVER,
    STATELESS_ERRORS,
    TOOLS_CALL,
    TOOLS_LIST,
    UNSUPPORTED_VERSION,
)
from taskgate.tasks.events import CallFaulted, CallSucceeded
from taskgate.upstream import failures
from taskgate.upstream.base import Hearer, Speaker
from taskgate.upstream.calls import Call
from taskgate.upstream.initialize.talk import SIGN_OF_LIFE
from taskgate.upstream.lasting import Lasting
from taskgate.upstream.patience import briefly
from taskgate.upstream.resting import NextRound
from taskgate.upstream.single import Abandoned, SingleFlight
from taskgate.upstream.stateless.catalogue import Catalogue
from taskgate.upstream.stateless.exchanges import Exchanges
from taskgate.upstream.stateless.listening import Listening
from taskgate.upstream.stateless.local import FORWARDED, LocalWords
from taskgate.upstream.stateless.means import StatelessMeans
from taskgate.upstream.stateless.rounds import Rounds

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


class StatelessSession:
    """One session with one server; see UpstreamSession."""

    era: Final = Era.STATELESS

    def __init__(
        self, means: StatelessMeans, *, hearer: Hearer, host: Peer | None, clock: Clock, lasting: Lasting
    ) -> None:
        self._means = means
        self._hearer = hearer
        self._host = host
        self._clock = clock
        self._discovery = SingleFlight(self._discover)
        self._catalogue = Catalogue(means, host, open_=self.open, ask=self._ask_for_page)
        self._exchanges = Exchanges(means)
        self._rounds = Rounds(means, self._exchanges, host, self._catalogue.mirrored_anew)
        self._listening = Listening(
            means, host, hear=self._hear_aside, resumed=self._catalogue.forget, lasting=lasting, clock=clock
        )
        self._local = LocalWords(means, self.open, self._listening, lasting)
        self._sure_since = 0.0
        self._calls: set[Call] = set()
        self._closed = False

    async def open(self) -> Server:
        """See UpstreamSession."""
        if self._closed:
            raise failures.let_go(dispatched=False)
        try:
            return self._discovery.value or await self._discovery.get()
        except UpstreamFailed as failure:
            # Whatever became of the discovery, the call it was made for has not left.
            raise failures.unsent(failure) from None
        except Abandoned:
            raise failures.let_go(dispatched=False) from None

    def relay(
        self,
        method: str,
        params: Params | None,
        *,
        hearer: Hearer,
        tool: str | None = None,
        speaker: Speaker | None = None,
        log_level: str | None = None,
        repeated: Mapping[str, str] | None = None,
    ) -> Coroutine[Any, Any, Response]:
        """See UpstreamSession."""
        if method not in FORWARDED:
            return self._local.answer(method, params)
        level = log_level or self._local.log_level
        saying = Saying(method=method, params=params, log_level=level, repeated=repeated)
        call = Call(next(self._means.ids), hearer, self._means.patience.of(tool), speaker=speaker)
        return self._ask_for_tools(call, saying) if method == TOOLS_LIST else self._ask(call, saying, tool)

    async def run(
        self,
        tool: str,
        params: RawJson,
        *,
        within: timedelta,
        hearer: Hearer,
        speaker: Speaker | None = None,
        log_level: str | None = None,
        repeated: Mapping[str, str] | None = None,
        resumes: NextRound | None = None,
    ) -> Response:
        """See UpstreamSession."""
        level = log_level or self._local.log_level
        saying = Saying(
            method=TOOLS_CALL, params=Params(params), wants_progress=True, log_level=level, repeated=repeated
        )
        bounds = self._means.patience.of(tool).within(within)
        call = Call(next(self._means.ids), hearer, bounds, speaker=speaker)
        call.resumes = resumes
        return await self._ask(call, saying, tool)

    def outcome(self, response: Response) -> CallSucceeded | CallFaulted:
        """See UpstreamSession."""
        return self._means.dialect.outcome(response)

    def tell(self, notification: Notification) -> None:
        """See UpstreamSession. A server of this era is told nothing: it asks when it wants to know (H-MOD-12)."""

    async def tools(self) -> Mapping[str, ListedTool]:
        """See UpstreamSession."""
        if self._closed:
            raise failures.let_go(dispatched=False)
        try:
            return self._catalogue.value or await self._catalogue.get()
        except UpstreamFailed as failure:
            raise failures.unsent(failure) from None
        except Abandoned:
            raise failures.let_go(dispatched=False) from None

    def listed(self, tool: str) -> ListedTool | None:
        """See UpstreamSession."""
        return self._catalogue.listed(tool)

    async def close(self) -> None:
        """See UpstreamSession. The server is not told: it has no session to end."""
        self._closed = True
        for call in tuple(self._calls):
            call.was_let_go = True
            call.wake()
        await self._catalogue.close()
        await self._discovery.close()
        await self._listening.close()

    async def _ask_for_tools(self, call: Call, saying: Saying) -> Response:
        return self._means.dialect.sound(await self._ask(call, saying))

    async def _ask(self, call: Call, saying: Saying, tool: str | None = None) -> Response:
        try:
            response = await self._bounded(call, saying.method, self._asked(call, saying, tool))
        except failures.Unwelcome:
            await self._see_who_it_is()
            raise
        if response.error is not None and response.error.value["code"] not in STATELESS_ERRORS:
            self._doubt()
        return response

    def _asked(self, call: Call, saying: Saying, tool: str | None) -> Coroutine[Any, Any, Response]:
        if self._discovery.value is None or self._closed:
            return self._asked_when_met(call, saying, tool)
        if saying.method != TOOLS_CALL:
            return self._rounds.ask(call, saying, None, self._means.settings.first_byte)
        if tool is None:
            return self._rounds.ask(call, saying, None, None)
        listed = self._catalogue.listed(tool)
        if listed is None:
            return self._asked_when_listed(call, saying, tool)
        said = saying._replace(mirrored=listed.mirrored) if listed.mirrored else saying
        return self._rounds.ask(call, said, tool, None)

    async def _asked_when_met(self, call: Call, saying: Saying, tool: str | None) -> Response:
        await self.open()
        return await self._asked(call, saying, tool)

    async def _asked_when_listed(self, call: Call, saying: Saying, tool: str) -> Response:
        mirrored = await self._catalogue.mirrored(tool)
        said = saying._replace(mirrored=mirrored) if mirrored else saying
        return await self._rounds.ask(call, said, tool, None)

    def _doubt(self) -> None:
        """A server of the other era answers like that: have the next request go to one that says again who it is."""
        if self._clock.elapsed() - self._sure_since >= SURE_FOR:
            self._discovery.forget()

    async def _see_who_it_is(self) -> None:
        """It refused without a word: ask at once whether it left this era, unless it is being asked."""
        if self._discovery.value is not None:
            self._discovery.forget()
        with suppress(UpstreamFailed, TimeoutError):
            async with asyncio.timeout(SIGN_OF_LIFE.total_seconds()):
                await self.open()

    async def _bounded(self, call: Call, method: str, asked: Coroutine[Any, Any, Response]) -> Response:
        """What comes of asking within the time that the call has; to be told to the observer, whatever it is."""
        clock, began = self._clock, self._clock.elapsed()
        error: str | None = "cancelled"
        self._calls.add(call)
        call.begin(self._means.alarms, self._means.running)
        try:
            with call.wait:
                response = await asked
            error = None if response.error is None else str(response.error.value.get("code"))
            self._expect_era(response)
        except Interrupted:
            over = failures.let_go if call.was_let_go else failures.too_late
            failure = over(dispatched=call.sent)
            error = failure.reason
            raise failure from None
        except UpstreamFailed as failure:
            error = failure.reason
            raise
        finally:
            call.stop()
            self._calls.discard(call)
            self._means.observer.answered(method, clock.elapsed() - began, error)
        return response

    def _expect_era(self, response: Response) -> None:
        """Refuse an answer that says that the server does not speak this revision any more; it did not act then."""
        if response.error is not None and response.error.value["code"] == UNSUPPORTED_VERSION:
            raise self._other_era()

    def _other_era(self) -> UpstreamFailed:
        self._discovery.forget()
        self._catalogue.forget()
        self._means.era_lost()
        text = "The server speaks no revision of this era that the gateway knows"
        return UpstreamFailed(UpstreamReason.REFUSED, text, dispatched=False)

    # --- what is known of the server

    async def _discover(self) -> Server:
        means = self._means
        first_byte = means.settings.first_byte
        call = Call(next(means.ids), None, briefly(first_byte))
        written = means.dialect.discover(call.id, self._host)
        asked = self._exchanges.ask(call, written, first_byte, asks_who=True)
        try:
            server = means.dialect.read_discovery(await self._bounded(call, SERVER_DISCOVER, asked))
        except UpstreamFailed as failure:
            tells = failure.reason in _OF_ANY_ERA or isinstance(failure, failures.Unwelcome)
            if tells and not self._closed:
                means.era_lost()
            raise
        if server is None:
            raise self._other_era()
        self._sure_since = self._clock.elapsed()
        await self._listening.begin(server)
        return server

    async def _ask_for_page(self, call: Call, written: Written) -> Response:
        asked = self._exchanges.ask(call, written, self._means.settings.first_byte)
        try:
            return await self._bounded(call, TOOLS_LIST, asked)
        except failures.Unwelcome:
            await self._see_who_it_is()
            raise

    def _hear_aside(self, notification: Notification) -> None:
        if notification.method == NOTE_TOOLS_CHANGED:
            self._catalogue.forget()
        self._hearer.notice(notification)
