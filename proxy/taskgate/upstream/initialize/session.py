"""A session with a server as its users see it: opened when it is first needed, and again after the server ended it.

It lives through any number of conversations, one at a time. No call is ever made twice: the one that meets the end of
a conversation fails, and the next call opens another. What must not live here: the wire (`conversation`, `transport`).
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Final

from taskgate.clock import Clock
from taskgate.dialects.base import ListedTool, Params, Question, Server, ToolPage
from taskgate.dialects.evidence import era_of_refusal
from taskgate.errors import UpstreamFailed
from taskgate.mcp.jsonrpc import Notification, RawJson, Response
from taskgate.mcp.versions import Era, Peer
from taskgate.mcp.vocabulary import INITIALIZE, TOOLS_CALL, TOOLS_LIST
from taskgate.tasks.events import CallFaulted, CallSucceeded
from taskgate.upstream import failures
from taskgate.upstream.base import Hearer, Speaker
from taskgate.upstream.calls import Call, Errand, Means
from taskgate.upstream.catalogue import read_catalogue
from taskgate.upstream.initialize.conversation import Audience, Conversation
from taskgate.upstream.initialize.detours import MAX_ROUNDS, Detours
from taskgate.upstream.initialize.listening import ServerStream
from taskgate.upstream.initialize.talk import Talk, is_strange
from taskgate.upstream.initialize.told import ToldTools
from taskgate.upstream.lasting import Lasting
from taskgate.upstream.resting import NextRound
from taskgate.upstream.single import Abandoned, SingleFlight

STREAM_PATIENCE: Final = 0.1
"""Seconds that the first call waits for the server's own stream to stand: what is told before that is lost."""


class HttpSession:
    """One session with one server; see UpstreamSession.

    What of `lasting` is left from before is asked for again. `unwelcome` is told when the server may have left its era.
    """

    era: Final = Era.INITIALIZE

    def __init__(
        self,
        means: Means,
        *,
        hearer: Hearer,
        host: Peer | None,
        clock: Clock,
        lasting: Lasting,
        unwelcome: Callable[[], None],
    ) -> None:
        self._means = means
        self._host = host
        self._clock = clock
        self._talk = SingleFlight(self._begin)
        self._catalogue = SingleFlight(self._read_catalogue)
        self._told = ToldTools(means.dialect)
        self._audience = Audience(hearer=hearer, host=host, catalogue_changed=self._forget_tools)
        self._detours = Detours(means.dialect.agrees)
        self._lasting = lasting
        self._unwelcome = unwelcome
        self._dropping: set[asyncio.Task[None]] = set()
        self._closed = False

    async def open(self) -> Server:
        """See UpstreamSession."""
        return (await self._open()).conversation.server

    async def relay(
        self,
        method: str,
        params: Params | None,
        *,
        hearer: Hearer,
        tool: str | None = None,
        speaker: Speaker | None = None,
        log_level: str | None = None,
        repeated: Mapping[str, str] | None = None,
    ) -> Response:
        """See UpstreamSession."""
        write = self._means.dialect.call
        bounds = self._means.patience.of(tool)
        errand = Errand(method, lambda id_: write(id_, method, params), bounds, hearer, speaker, log_level)
        response = await self._ask(errand)
        if response.error is not None:
            response = await self._after_detours(errand, response)
        if response.error is None:
            self._lasting.note(method, params)
            self._told.note(method, params, response)
        return response

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
        if resumes is not None:
            raise failures.no_rounds()
        dialect = self._means.dialect
        bounds = self._means.patience.of(tool).within(within)
        write = partial(dialect.call, method=TOOLS_CALL, params=dialect.tracked(params))
        errand = Errand(TOOLS_CALL, write, bounds, hearer, speaker, log_level)
        response = await self._ask(errand)
        return response if response.error is None else await self._after_detours(errand, response)

    def outcome(self, response: Response) -> CallSucceeded | CallFaulted:
        """See UpstreamSession."""
        return self._means.dialect.outcome(response)

    def tell(self, notification: Notification) -> None:
        """See UpstreamSession. What its server was not told to expect of the host is dropped too."""
        talk, dialect = self._talk.value, self._means.dialect
        if talk is not None and dialect.passes(notification, self._host):
            talk.conversation.say(dialect.pass_on(notification), droppable=True)

    async def tools(self) -> Mapping[str, ListedTool]:
        """See UpstreamSession."""
        try:
            return await self._catalogue.get()
        except UpstreamFailed as failure:
            raise failures.unsent(failure) from None
        except Abandoned:
            raise failures.let_go(dispatched=False) from None

    def listed(self, tool: str) -> ListedTool | None:
        """See UpstreamSession."""
        known = self._catalogue.value
        return self._told.get(tool) if known is None else known.get(tool)

    async def close(self) -> None:
        """See UpstreamSession."""
        if self._closed:
            return
        self._closed = True
        self._detours.end()
        await self._catalogue.close()
        talk = self._talk.value
        await self._talk.close()
        if talk is not None:
            await talk.end()
        if self._dropping:
            await asyncio.wait(tuple(self._dropping))

    async def _open(self) -> Talk:
        if self._closed:
            raise failures.let_go(dispatched=False)
        try:
            return self._talk.value or await self._talk.get()
        except UpstreamFailed as failure:
            # Whatever became of the handshake, the call it was made for has not left.
            raise failures.unsent(failure) from None
        except Abandoned:
            raise failures.let_go(dispatched=False) from None

    async def _begin(self) -> Talk:
        means = self._means
        conversation = Conversation(means, self._audience)
        began = self._clock.elapsed()
        try:
            await conversation.begin()
        except UpstreamFailed as failure:
            means.observer.answered(INITIALIZE, self._clock.elapsed() - began, failure.reason)
            await conversation.end()
            if isinstance(failure, failures.Unwelcome):
                self._unwelcome()
            raise
        except asyncio.CancelledError:
            await conversation.end()
            raise
        means.observer.answered(INITIALIZE, self._clock.elapsed() - began, None)
        talk = Talk(means, conversation, await self._listen(conversation))
        talk.ask_again(self._lasting)
        return talk

    async def _listen(self, conversation: Conversation) -> ServerStream | None:
        if conversation.session is None:
            return None
        means = self._means
        stream = ServerStream(
            means.transport,
            conversation.headers,
            hear=conversation.hear_aside,
            observer=means.observer,
            clock=self._clock,
        )
        try:
            await stream.known(STREAM_PATIENCE)
        except asyncio.CancelledError:
            await stream.close()
            await conversation.end()
            raise
        return stream

    async def _after_detours(self, errand: Errand, response: Response) -> Response:
        """The answer to a refused request, sent again after what its server wanted to be done first (10.3)."""
        if errand.hearer is None:
            return response
        loop = asyncio.get_running_loop()
        ends = loop.time() + errand.bounds.ceiling
        for _ in range(MAX_ROUNDS):
            visits = self._means.dialect.visits(response, self._host)
            if not visits or not await self._agreed(visits, errand.hearer, ends):
                break
            # The server refused before it acted, so this is the first time that it may.
            left = timedelta(seconds=ends - loop.time())
            response = await self._ask(errand._replace(bounds=errand.bounds.within(left)))
        return response

    async def _agreed(self, visits: Sequence[Question], hearer: Hearer, ends: float) -> bool:
        try:
            async with asyncio.timeout_at(ends):
                return not self._closed and await self._detours.agreed(visits, hearer)
        except TimeoutError:
            raise failures.too_late(dispatched=False) from None

    async def _ask(self, errand: Errand) -> Response:
        means, clock = self._means, self._clock
        began, spent = clock.elapsed(), 0.0
        talk = self._talk.value
        if talk is None or self._closed or errand.log_level is not None:
            talk, spent = await self._made_ready(errand)
        first_byte = None if errand.method == TOOLS_CALL else means.settings.first_byte
        call = Call(next(means.ids), errand.hearer, errand.bounds, speaker=errand.speaker, spent=spent)
        error: str | None = "cancelled"
        try:
            response = await talk.conversation.ask(call, errand.write(call.id), first_byte=first_byte)
            error = None if response.error is None else str(response.error.value.get("code"))
            self._expect_era(response)
        except UpstreamFailed as failure:
            error = failure.reason
            if not self._closed and await talk.is_over(failure):
                self._lose(talk)
            elif isinstance(failure, failures.Unwelcome):
                await self._doubt(talk)
            raise
        finally:
            means.observer.answered(errand.method, clock.elapsed() - began, error)
        if response.error is not None and is_strange(call, response):
            await self._doubt(talk)
        return response

    async def _doubt(self, talk: Talk) -> None:
        """The server may have left this era: see whether it still knows a request of it, which harms none."""
        if not self._closed and not await talk.is_understood():
            self._unwelcome()

    def _expect_era(self, response: Response) -> None:
        """Take an answer that says that the server left this era for the end of the conversation; it did not act."""
        if response.error is not None and era_of_refusal(response.error.value) is not None:
            self._unwelcome()
            raise failures.session_lost()

    async def _made_ready(self, errand: Errand) -> tuple[Talk, float]:
        """A conversation that can take the request, and the seconds that it took to have one."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(errand.bounds.first):
                talk = await self._open()
                if errand.log_level is not None:
                    await talk.log_from(errand.log_level, errand.speaker)
        except TimeoutError:
            raise failures.too_late(dispatched=False) from None
        return talk, loop.time() - began

    async def _read_catalogue(self) -> Mapping[str, ListedTool]:
        return await read_catalogue(self._read_page)

    async def _read_page(self, cursor: RawJson | None) -> ToolPage:
        dialect, bounds = self._means.dialect, self._means.patience.of()
        return dialect.read_tools(
            await self._ask(Errand(TOOLS_LIST, partial(dialect.list_tools, cursor=cursor), bounds))
        )

    def _forget_tools(self) -> None:
        self._catalogue.forget()
        self._told.forget()

    def _lose(self, talk: Talk) -> None:
        """The server ended the conversation: the next call opens another. Only the first to notice does anything."""
        if self._talk.value is not talk:
            return
        self._talk.forget()
        self._forget_tools()
        self._means.observer.session_lost()
        dropping = asyncio.get_running_loop().create_task(talk.drop())
        self._dropping.add(dropping)
        dropping.add_done_callback(self._dropping.discard)
