"""One session at a server, from its handshake to its end: requests go out, and whatever the server says is heard.

A conversation is never opened again; after the server ended it there is another one. What must not live here: when to
open one (`session`), HTTP (`exchanges`), what a message means (a dialect).
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from taskgate.dialects.base import Answered, Asked, Noticed, ProgressTold, Questioned, Server, Withdrawn
from taskgate.errors import UpstreamFailed
from taskgate.interruption import Interrupted
from taskgate.mcp.jsonrpc import Notification, Response
from taskgate.mcp.versions import NEWEST_LEGACY, Peer
from taskgate.mcp.vocabulary import NOTE_TOOLS_CHANGED
from taskgate.upstream import failures
from taskgate.upstream.base import Hearer, Speaker
from taskgate.upstream.calls import Call, Means
from taskgate.upstream.initialize.asides import Asides
from taskgate.upstream.initialize.exchanges import Exchanges
from taskgate.upstream.initialize.questions import Questions
from taskgate.upstream.patience import briefly

FAREWELL: Final = 2.0
"""Seconds that a server has for what it is told last."""

UNWANTED: Final = "Nobody waits for the answer any more"


@dataclass(frozen=True, slots=True, kw_only=True)
class Audience:
    """Who hears what a server says in a session, but for what belongs to a call.

    `host` is who can be asked. `catalogue_changed` is told of a change of the server's tools, besides whoever hears it.
    """

    hearer: Hearer
    host: Peer | None
    catalogue_changed: Callable[[], None]


class Conversation:
    """One session at a server."""

    def __init__(self, means: Means, audience: Audience) -> None:
        self._means = means
        self._audience = audience
        self._calls: dict[int, Call] = {}
        self._exchanges = Exchanges(means, self.hear)
        self._asides = Asides(self._exchanges.say)
        self._questions = Questions(means.dialect, self.say, self._answer)
        self._server: Server | None = None
        self._ended = False

    @property
    def session(self) -> str | None:
        """The server's id of it, where it gave one."""
        return self._exchanges.session

    @property
    def headers(self) -> Mapping[str, str]:
        """What goes with whatever is sent in it."""
        return self._exchanges.headers

    @property
    def server(self) -> Server:
        """What the server said in the handshake."""
        assert self._server is not None, "a conversation is handed out after its handshake"
        return self._server

    async def begin(self) -> None:
        """The handshake. Raises UpstreamFailed, or Unwelcome of them; `end` is still to be called then."""
        dialect, settings = self._means.dialect, self._means.settings
        call = Call(next(self._means.ids), None, briefly(settings.first_byte))
        handshake = dialect.handshake(call.id, self._audience.host, settings.revision or NEWEST_LEGACY)
        response = await self.ask(call, handshake, first_byte=settings.first_byte)
        if response.error is not None:
            raise failures.no_session(response.error.value)
        self._server = dialect.read_welcome(response)
        self._exchanges.welcome(self._server.peer.revision)
        status = await self._exchanges.say(dialect.initialized())
        if not 200 <= status < 300:
            raise failures.refused(status)

    async def ask(self, call: Call, message: str, *, first_byte: timedelta | None) -> Response:
        """The server's response to one request. Raises UpstreamFailed; to cancel it tells the server."""
        self._calls[call.id] = call
        call.begin(self._means.alarms, self._means.running)
        try:
            with call.wait:
                return await self._exchanges.ask(call, message, first_byte)
        except asyncio.CancelledError:
            self._give_up(call)
            raise
        except Interrupted:
            self._give_up(call)
            if call.answer is not None:
                return call.answer
            if call.was_let_go:
                raise failures.let_go(dispatched=call.sent) from None
            raise failures.too_late(dispatched=call.sent) from None
        finally:
            call.stop()
            del self._calls[call.id]
            self._questions.end_of(call)

    def hear(self, message: bytes, call: Call | None) -> Response | None:
        """Act on a message of the server; its response to a call is handed back instead.

        `call` is the one on whose stream it came, None for the session's own (U-HTTP-3).
        """
        match self._means.dialect.hear(message, self._audience.host):
            case Answered(response):
                return response
            case ProgressTold(token, notification):
                self._hear_progress(token, notification)
            case Noticed(notification):
                if notification.method == NOTE_TOOLS_CHANGED:
                    self._audience.catalogue_changed()
                self._hearer_of(call).notice(notification)
            case Asked() as asked:
                self._hear_question(asked, call)
            case Withdrawn(id):
                self._questions.withdraw(id)
            case Questioned(reply, required):
                self.say(reply, droppable=True)
                if required is not None:
                    self._hearer_of(self._asking(call)).refused(required)
        return None

    def hear_aside(self, message: bytes) -> None:
        """Act on a message that came on no call's own stream: some servers answer calls there."""
        response = self.hear(message, None)
        call = None if response is None or isinstance(response.id, str) else self._calls.get(response.id)
        if call is not None and call.answer is None:
            call.answer = response
            call.wake()

    def say(self, message: str, *, droppable: bool = False) -> None:
        """Send a message that has no answer, in the background; whether it arrives is the server's affair."""
        if not self._ended:
            self._asides.say(message, droppable=droppable)

    async def end(self) -> None:
        """Let go of every call, and tell the server that the session is over."""
        for call in tuple(self._calls.values()):
            call.was_let_go = True
            call.wake()
        self._questions.end()
        try:
            async with asyncio.timeout(FAREWELL):
                await self._asides.sent()
                await self._part()
        except (TimeoutError, UpstreamFailed):
            pass
        finally:
            await self.drop()

    async def drop(self) -> None:
        """Forget a session that the server does not know any more; calls that still run may end by themselves."""
        self._ended = True
        self._questions.end()
        await self._asides.drop()

    async def _part(self) -> None:
        if self.session is None or self._ended:
            return
        self._ended = True
        await self._exchanges.part()

    def _give_up(self, call: Call) -> None:
        # The handshake must not be cancelled, and before its end there is nobody to tell.
        if call.sent and call.answer is None and self._server is not None:
            self.say(self._means.dialect.cancel(call.id, UNWANTED))

    def _answer(self, message: str, speaker: Speaker | None) -> None:
        if not self._ended:
            self._asides.answer(message, speaker)

    # --- what the server says

    def _hearer_of(self, call: Call | None) -> Hearer:
        return self._audience.hearer if call is None or call.hearer is None else call.hearer

    def _hear_progress(self, token: int, notification: Notification) -> None:
        call = self._calls.get(token)
        if call is not None:
            call.progressed()
            if call.hearer is not None:
                call.hearer.notice(notification)

    def _hear_question(self, asked: Asked, call: Call | None) -> None:
        if self._ended:
            return
        came_aside = call is None
        asks_for = self._asking(call)
        question = self._questions.ask(asked, asks_for, came_aside=came_aside)
        if question is not None:
            self._hearer_of(asks_for).asked(question)

    def _asking(self, call: Call | None) -> Call | None:
        """The call that a question is for which came on a call's stream, or on none: the only one that can be asked."""
        if call is not None:
            return call
        heard = [call for call in self._calls.values() if call.hearer is not None]
        return heard[0] if len(heard) == 1 else None
