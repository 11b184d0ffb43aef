"""A session with a server as its users see it: opened when it is first needed, and again after the server ended it.

It lives through any number of conversations, one at a time. No call is ever made twice: the one that meets the end of
a conversation fails, and the next call opens another. What must not live here: the wire (`conversation`, `transport`).
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, Final

from taskgate.clock import Clock
from taskgate.dialects.base import Params, Server, ToolPage
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.mcp.jsonrpc import Notification, RawJson, Response
from taskgate.mcp.versions import Peer
from taskgate.mcp.vocabulary import INITIALIZE, PING, TOOLS_CALL, TOOLS_LIST
from taskgate.tasks.events import CallFaulted, CallSucceeded
from taskgate.tasks.policy import TaskSupport
from taskgate.upstream import failures
from taskgate.upstream.base import Hearer, Speaker
from taskgate.upstream.calls import Call, Means
from taskgate.upstream.catalogue import read_catalogue
from taskgate.upstream.conversation import Audience, Conversation
from taskgate.upstream.listening import ServerStream
from taskgate.upstream.patience import Bounds, briefly
from taskgate.upstream.single import Abandoned, SingleFlight

SIGN_OF_LIFE: Final = timedelta(seconds=2)
"""How long a server has to show that a session is alive in which a call broke off."""

STREAM_PATIENCE: Final = 0.1
"""Seconds that the first call waits for the server's own stream to stand: what is told before that is lost."""

_OVER: Final = frozenset({UpstreamReason.CLOSED.value, UpstreamReason.SESSION_LOST.value})


class Talk:
    """One conversation, with the stream that belongs to it, and the question whether the server still takes part."""

    __slots__ = ("alive", "conversation", "stream")

    def __init__(
        self, conversation: Conversation, stream: ServerStream | None, ping: Callable[[], Coroutine[Any, Any, bool]]
    ) -> None:
        self.conversation = conversation
        self.stream = stream
        self.alive = SingleFlight(ping)


class HttpSession:
    """One session with one server; see UpstreamSession."""

    def __init__(self, means: Means, *, hearer: Hearer, host: Peer | None, clock: Clock) -> None:
        self._means = means
        self._host = host
        self._clock = clock
        self._talk = SingleFlight(self._begin)
        self._catalogue = SingleFlight(self._read_catalogue)
        self._audience = Audience(hearer=hearer, host=host, catalogue_changed=self._catalogue.forget)
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
    ) -> Response:
        """See UpstreamSession."""
        write = self._means.dialect.call
        bounds = self._means.patience.of(tool)
        return await self._ask(method, lambda id_: write(id_, method, params), bounds, hearer, speaker)

    async def run(
        self, tool: str, params: RawJson, *, within: timedelta, hearer: Hearer, speaker: Speaker | None = None
    ) -> CallSucceeded | CallFaulted:
        """See UpstreamSession."""
        dialect = self._means.dialect
        tracked = dialect.tracked(params)
        bounds = self._means.patience.of(tool).within(within)
        response = await self._ask(
            TOOLS_CALL, lambda id_: dialect.call(id_, TOOLS_CALL, tracked), bounds, hearer, speaker
        )
        return dialect.outcome(response)

    def tell(self, notification: Notification) -> None:
        """See UpstreamSession. What its server was not told to expect of the host is dropped too."""
        talk, dialect = self._talk.value, self._means.dialect
        if talk is not None and dialect.passes(notification, self._host):
            talk.conversation.say(dialect.pass_on(notification), droppable=True)

    async def tools(self) -> Mapping[str, TaskSupport | None]:
        """See UpstreamSession."""
        try:
            return await self._catalogue.get()
        except UpstreamFailed as failure:
            raise failures.unsent(failure) from None
        except Abandoned:
            raise failures.let_go(dispatched=False) from None

    def lists(self, tool: str) -> bool:
        """See UpstreamSession."""
        return tool in (self._catalogue.value or ())

    async def close(self) -> None:
        """See UpstreamSession."""
        if self._closed:
            return
        self._closed = True
        await self._catalogue.close()
        talk = self._talk.value
        await self._talk.close()
        if talk is not None:
            await self._end(talk)
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
            raise
        except asyncio.CancelledError:
            await conversation.end()
            raise
        means.observer.answered(INITIALIZE, self._clock.elapsed() - began, None)
        return Talk(conversation, await self._listen(conversation), partial(self._ping, conversation))

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

    async def _ask(
        self,
        method: str,
        write: Callable[[int], str],
        bounds: Bounds,
        hearer: Hearer | None = None,
        speaker: Speaker | None = None,
    ) -> Response:
        means, clock = self._means, self._clock
        began, spent = clock.elapsed(), 0.0
        talk = self._talk.value
        if talk is None or self._closed:
            talk, spent = await self._open_within(bounds.first)
        first_byte = None if method == TOOLS_CALL else means.settings.first_byte
        call = Call(next(means.ids), hearer, bounds, speaker=speaker, spent=spent)
        error: str | None = "cancelled"
        try:
            response = await talk.conversation.ask(call, write(call.id), first_byte=first_byte)
            error = None if response.error is None else str(response.error.value.get("code"))
        except UpstreamFailed as failure:
            error = failure.reason
            if await self._is_over(talk, failure):
                self._lose(talk)
            raise
        finally:
            means.observer.answered(method, clock.elapsed() - began, error)
        return response

    async def _is_over(self, talk: Talk, failure: UpstreamFailed) -> bool:
        """Whether the failure is the end of the conversation: as the server says, or by asking it once for all calls.

        Released servers let a session die without a word, of a cancellation for one: every call of it then breaks off.
        """
        if failure.reason != UpstreamReason.CLOSED.value or self._closed:
            return failure.reason == UpstreamReason.SESSION_LOST.value
        try:
            return not await talk.alive.get()
        except Abandoned:
            return False
        finally:
            talk.alive.forget()

    async def _ping(self, conversation: Conversation) -> bool:
        """Whether the server answers in the conversation, or at least does not end it again."""
        means = self._means
        call = Call(next(means.ids), None, briefly(SIGN_OF_LIFE))
        try:
            await conversation.ask(call, means.dialect.call(call.id, PING, None), first_byte=SIGN_OF_LIFE)
        except UpstreamFailed as failure:
            return failure.reason not in _OVER
        return True

    async def _open_within(self, within: float) -> tuple[Talk, float]:
        """A conversation, and the seconds that it took."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(within):
                talk = await self._open()
        except TimeoutError:
            raise failures.too_late(dispatched=False) from None
        return talk, loop.time() - began

    async def _read_catalogue(self) -> Mapping[str, TaskSupport | None]:
        return await read_catalogue(self._read_page)

    async def _read_page(self, cursor: RawJson | None) -> ToolPage:
        dialect, bounds = self._means.dialect, self._means.patience.of()
        return dialect.read_tools(await self._ask(TOOLS_LIST, lambda id_: dialect.list_tools(id_, cursor), bounds))

    def _lose(self, talk: Talk) -> None:
        """The server ended the conversation: the next call opens another. Only the first to notice does anything."""
        if self._talk.value is not talk:
            return
        self._talk.forget()
        self._catalogue.forget()
        self._means.observer.session_lost()
        dropping = asyncio.get_running_loop().create_task(self._drop(talk))
        self._dropping.add(dropping)
        dropping.add_done_callback(self._dropping.discard)

    async def _drop(self, talk: Talk) -> None:
        await talk.alive.close()
        if talk.stream is not None:
            await talk.stream.close()
        await talk.conversation.drop()

    async def _end(self, talk: Talk) -> None:
        await talk.alive.close()
        if talk.stream is not None:
            await talk.stream.close()
        await talk.conversation.end()
