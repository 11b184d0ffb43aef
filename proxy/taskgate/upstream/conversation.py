"""One session at a server, from its handshake to its end: requests go out, and whatever the server says is heard.

A conversation is never opened again; after the server ended it there is another one. What must not live here: when to
open one (`session`), bytes (`transport`), what a message means (a dialect).
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from taskgate.alarms import Alarms
from taskgate.dialects.base import Answered, Noticed, ProgressTold, Questioned, Server, UpstreamDialect
from taskgate.errors import UpstreamFailed
from taskgate.interruption import Interrupted, Interruptible
from taskgate.mcp.jsonrpc import Response
from taskgate.mcp.versions import Revision
from taskgate.mcp.vocabulary import SESSION_HEADER, VERSION_HEADER
from taskgate.upstream import failures
from taskgate.upstream.base import Incoming, Notice, Outgoing, Speaker, Transport
from taskgate.upstream.settings import UpstreamObserver, UpstreamSettings

MAX_ASIDES: Final = 64
"""Messages that may be on their way at once beside the calls before a server that asks for more gets no answer."""

FAREWELL: Final = 2.0
"""Seconds that a server has for what it is told last."""

UNWANTED: Final = "Nobody waits for the answer any more"

_POSTED: Final = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
_WITHOUT_VERSION_HEADER: Final = frozenset({Revision.R2024_11_05, Revision.R2025_03_26})


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What every session with one server shares. Ids are unique among all of them, as tokens of progress must be.

    `alarms` bound the calls.
    """

    transport: Transport
    settings: UpstreamSettings
    dialect: UpstreamDialect
    observer: UpstreamObserver
    ids: Iterator[int]
    alarms: Alarms


class Call:
    """A request that waits for its answer; `wait` ends when its time is up, or when the answer comes another way.

    `sent` tells whether any of it may have reached the server: while its way is made, none has.
    """

    __slots__ = ("answer", "id", "notice", "sent", "speaker", "wait", "was_let_go", "within")

    def __init__(self, id: int, notice: Notice | None, within: timedelta, speaker: Speaker | None = None) -> None:
        self.id = id
        self.notice = notice
        self.within = within
        self.speaker = speaker
        self.wait = Interruptible()
        self.sent = False
        self.answer: Response | None = None
        self.was_let_go = False

    def leave(self) -> None:
        """Its first byte is on its way."""
        self.sent = True

    def wake(self) -> None:
        """End the wait now."""
        self.wait.interrupt()


class Conversation:
    """One session at a server. `notice` hears what is told of the session; `headers` go with whatever is sent in it."""

    def __init__(self, means: Means, notice: Notice) -> None:
        self._means = means
        self._notice = notice
        self._calls: dict[int, Call] = {}
        self._asides: set[asyncio.Task[None]] = set()
        self._server: Server | None = None
        self._ended = False
        self.session: str | None = None
        self.headers: dict[str, str] = {}
        self._posting: dict[str, str] = _POSTED

    @property
    def server(self) -> Server:
        """What the server said in the handshake."""
        assert self._server is not None, "a conversation is handed out after its handshake"
        return self._server

    async def begin(self) -> None:
        """The handshake. Raises UpstreamFailed; `end` is still to be called then."""
        dialect, settings = self._means.dialect, self._means.settings
        call = Call(next(self._means.ids), None, settings.first_byte)
        response = await self.ask(call, dialect.handshake(call.id), first_byte=settings.first_byte)
        self._server = server = dialect.read_welcome(response)
        if server.peer.revision not in _WITHOUT_VERSION_HEADER:
            self._send_always(VERSION_HEADER, server.peer.revision.value)
        incoming = await self._post(dialect.initialized(), settings.first_byte)
        await incoming.release()
        if not 200 <= incoming.status < 300:
            raise failures.refused(incoming.status)

    async def ask(self, call: Call, message: str, *, first_byte: timedelta | None) -> Response:
        """The server's response to one request. Raises UpstreamFailed; to cancel it tells the server."""
        self._calls[call.id] = call
        alarm = self._means.alarms.after(call.within.total_seconds(), call.wake)
        try:
            with call.wait:
                return await self._exchange(call, message, first_byte)
        except Interrupted:
            if call.answer is not None:
                return call.answer
            if call.was_let_go:
                raise failures.let_go(dispatched=call.sent) from None
            raise failures.too_late(dispatched=call.sent) from None
        finally:
            alarm.cancel()
            del self._calls[call.id]

    def hear(self, message: bytes) -> Response | None:
        """Act on a message of the server; its response to a call is handed back instead."""
        match self._means.dialect.hear(message):
            case Answered(response):
                return response
            case ProgressTold(token, notification):
                call = self._calls.get(token)
                if call is not None and call.notice is not None:
                    call.notice(notification)
            case Noticed(notification):
                self._notice(notification)
            case Questioned(reply):
                self.say(reply, as_reply=True)
        return None

    def hear_aside(self, message: bytes) -> None:
        """Act on a message that came on no call's own stream: some servers answer calls there."""
        response = self.hear(message)
        call = None if response is None or isinstance(response.id, str) else self._calls.get(response.id)
        if call is not None and call.answer is None:
            call.answer = response
            call.wake()

    def say(self, message: str, *, as_reply: bool = False) -> None:
        """Send a message that has no answer, in the background; whether it arrives is the server's affair.

        Replies are bounded, since the server decides how many there are; what we have to say ourselves is not.
        """
        if not self._ended and not (as_reply and len(self._asides) >= MAX_ASIDES):
            aside = asyncio.get_running_loop().create_task(self._say(message))
            self._asides.add(aside)
            aside.add_done_callback(self._asides.discard)

    async def end(self) -> None:
        """Let go of every call, and tell the server that the session is over."""
        for call in tuple(self._calls.values()):
            call.was_let_go = True
            call.wake()
        try:
            async with asyncio.timeout(FAREWELL):
                if self._asides:
                    await asyncio.wait(tuple(self._asides))
                await self._part()
        except (TimeoutError, UpstreamFailed):
            pass
        finally:
            await self.drop()

    async def drop(self) -> None:
        """Forget a session that the server does not know any more; calls that still run may end by themselves."""
        self._ended = True
        asides = tuple(self._asides)
        for aside in asides:
            aside.cancel()
        if asides:
            await asyncio.wait(asides)

    async def _part(self) -> None:
        if self.session is None or self._ended:
            return
        self._ended = True
        incoming = await self._means.transport.send(Outgoing(verb="DELETE", headers=self.headers))
        await incoming.release()

    async def _exchange(self, call: Call, message: str, first_byte: timedelta | None) -> Response:
        try:
            incoming = await self._post(message, first_byte, call)
            answered = False
            try:
                response = await self._answer(call, incoming)
                answered = True
                return response
            finally:
                await incoming.release(answered=answered)
        except asyncio.CancelledError:
            # The handshake must not be cancelled, and before its end there is nobody to tell.
            if call.sent and call.answer is None and self._server is not None:
                self.say(self._means.dialect.cancel(call.id, UNWANTED))
            raise

    async def _answer(self, call: Call, incoming: Incoming) -> Response:
        if not 200 <= incoming.status < 300:
            return await self._refusal(call, incoming)
        if self._server is None:
            self._take_session(incoming.session)
        if not incoming.streams:
            return await self._document(call, incoming)
        self._means.observer.stream_opened("response")
        try:
            async for message in incoming.messages():
                response = self.hear(message)
                if response is not None and response.id == call.id:
                    return response
        finally:
            self._means.observer.stream_ended("response")
        raise failures.broke_off()

    async def _document(self, call: Call, incoming: Incoming) -> Response:
        async for message in incoming.messages():
            heard = self._means.dialect.hear(message)
            if isinstance(heard, Answered) and heard.response.id == call.id:
                return heard.response
        raise failures.malformed("its answer belongs to no request of ours")

    async def _refusal(self, call: Call, incoming: Incoming) -> Response:
        """The server's own answer where an error status carries one; else the failure that the status means.

        Servers that restarted answer 404 for a session they do not know, as they must, or 400, as released SDKs do.
        """
        status = incoming.status
        if status == 404 and self.session is not None:
            raise failures.session_lost()
        try:
            response = await self._document(call, incoming)
        except UpstreamFailed:
            response = None
        if response is not None and response.error is not None:
            return response
        if status == 400 and self.session is not None:
            raise failures.session_lost()
        raise failures.refused(status)

    def _take_session(self, session: str | None) -> None:
        if session is None:
            return
        if not (session.isascii() and session.isprintable() and 0 < len(session) <= 1024) or " " in session:
            raise failures.malformed("its session id is none")
        self.session = session
        self._send_always(SESSION_HEADER, session)

    def _send_always(self, name: str, value: str) -> None:
        self.headers[name] = value
        self._posting = _POSTED | self.headers

    async def _post(self, message: str, first_byte: timedelta | None, call: Call | None = None) -> Incoming:
        outgoing = Outgoing(
            verb="POST",
            headers=self._posting,
            body=message.encode(),
            first_byte=first_byte,
            idle=self._means.settings.idle,
            speaker=None if call is None else call.speaker,
            left=None if call is None else call.leave,
        )
        return await self._means.transport.send(outgoing)

    async def _say(self, message: str) -> None:
        try:
            incoming = await self._post(message, self._means.settings.first_byte)
            await incoming.release()
        except UpstreamFailed:
            pass
