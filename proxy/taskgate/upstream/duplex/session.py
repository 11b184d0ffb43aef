"""One legacy session on a channel: `ChannelSession`, with a session id that the gateway makes up.

Programs know no session ids; the id lets the legacy session address it as over HTTP.
`DuplexTransport` creates it for an `initialize` and finds it by its id. `company` gives it messages
of no request. It ends when the legacy session deletes it, its handshake fails, its channel is lost,
or nothing has used it for a minute.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from taskgate.domain.record import RequestId
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.jsontext.edits import dump
from taskgate.protocol.jsonrpc import error_text, notification_text, result_text
from taskgate.protocol.vocabulary import (
    INTERNAL_ERROR,
    NOTE_CANCELLED,
    NOTE_INITIALIZED,
    RESOURCES_SUBSCRIBE,
    RESOURCES_UNSUBSCRIBE,
    TASKS_RESULT,
)
from taskgate.upstream import failures
from taskgate.upstream.base import Outgoing
from taskgate.upstream.duplex.asides import AsideStream, BufferedNotifications
from taskgate.upstream.duplex.channel import Channel
from taskgate.upstream.duplex.contents import task_in, uri_in
from taskgate.upstream.duplex.replies import ChannelReply, Status
from taskgate.upstream.duplex.words import Answers, NotificationPeek, RequestPeek, kind_of

UNHEARD: Final = 60.0
"""Seconds without a reader and without requests after which a session ends. A live session has a
reader, except right before its end."""

TAKEN: Final = 202
UNANSWERED: Final = dump({"code": INTERNAL_ERROR, "message": "The session that could answer has ended"})


class ChannelSession:
    """One session of an auth context; the `ReplyObserver` of its replies.

    `over` is called once, as soon as it ends, and gives its use of the channel back.
    """

    def __init__(self, id: str, channel: Channel, context: str, over: Callable[["ChannelSession"], None]) -> None:
        self.id = id
        self.channel = channel
        self.context = context
        self.uris: set[str] = set()
        """The resources that it subscribes to."""
        self.loss: str | None = None
        """Why its channel was lost, for requests that come later; None if it was not."""
        self._over = over
        self._asides = BufferedNotifications(self._fall_silent)
        # Requests of the server that this session got and has not answered, in their order.
        self._questions: dict[RequestId, None] = {}
        # The last request: background messages get its headers.
        self._like = Outgoing(verb="POST", headers={})
        # The timer that ends the session; runs while it has no reader.
        self._silence: asyncio.TimerHandle | None = None
        self._has_ended = False

    @property
    def listens(self) -> bool:
        """Whether its messages besides answers have a reader."""
        return self._asides.are_heard

    # --- requests -----------------------------------------------------------------------------------------------------

    async def begin(self, outgoing: Outgoing, asks: RequestPeek, until: float | None) -> ChannelReply:
        """Make the handshake and return its answer. After a refusal or a failure the session has
        ended. Raises UpstreamFailed."""
        self._like = outgoing
        reply = ChannelReply(asks.id, self, outgoing.idle)
        try:
            await self.channel.greet(outgoing, reply, until=until)
        except BaseException:
            self.end()
            raise
        if self.channel.waiting.greeting.is_welcome:
            reply.session = self.id
        else:
            self.end()
        return reply

    async def post(self, outgoing: Outgoing, until: float | None) -> ChannelReply | Status:
        """Send a message of the session and return its answer. Raises UpstreamFailed."""
        assert outgoing.body is not None, "a message has a body"
        self._like = outgoing
        kind = kind_of(outgoing.body)
        if isinstance(kind, RequestPeek):
            return await self._ask(outgoing, kind, until)
        if isinstance(kind, Answers):
            self._questions.pop(kind.id, None)
        # The server gets one confirmation of its one handshake, however many sessions share it.
        elif kind == _CONFIRMS and not self.channel.waiting.greeting.confirms():
            return Status(TAKEN)
        return Status(await self.channel.tell(outgoing))

    def listen(self) -> AsideStream:
        """Return a new stream of messages that are no answers; an earlier stream ends."""
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None
        return self._asides.listen()

    def end(self) -> None:
        """End the session: cancel its requests at the server, refuse its open questions. A second
        call does nothing."""
        if not self._close():
            return
        self._asides.end()
        for reply in [reply for reply in self.channel.waiting.replies.values() if reply.keeper is self]:
            self.channel.waiting.give_up(reply)
            self._say(cancelled(reply.id))
            reply.fail(failures.let_go(dispatched=True))
        for id_ in self._questions:
            self._say(error_text(id_, UNANSWERED))

    # --- messages of its channel --------------------------------------------------------------------------------------

    def hear(self, message: bytes) -> None:
        """Receive a notification of the server; dropped if there is neither a reader nor room."""
        self._asides.say(message)

    def answers(self, asks: RequestPeek, message: bytes) -> None:
        """Receive a request of the server, which this session is to answer."""
        if self._asides.say(message):
            self._questions[asks.id] = None
        else:
            self._say(error_text(asks.id, UNANSWERED))

    def lose(self, failure: UpstreamFailed) -> None:
        """End the session without a message to the server: its channel is closed."""
        self.loss = str(failure)
        if self._close():
            self._asides.end(UpstreamFailed(UpstreamReason.SESSION_LOST, self.loss, dispatched=False))

    # --- the observer of its replies ----------------------------------------------------------------------------------

    def keep(self, size: int) -> None:
        """Count bytes that wait in its replies. While too many wait, the channel is not read."""
        self.channel.keep(size)

    def read(self, size: int) -> None:
        """Count bytes that left its replies."""
        self.channel.read(size)

    def let_go(self, reply: ChannelReply) -> None:
        """Called once by each reply at its end. The legacy session cancels the request at the
        server itself."""
        self.channel.waiting.give_up(reply)

    async def _ask(self, outgoing: Outgoing, asks: RequestPeek, until: float | None) -> ChannelReply:
        """Send a request of the session; a redundant unsubscription is answered here."""
        reply = ChannelReply(asks.id, self, outgoing.idle)
        if asks.method in _NOTED:
            assert outgoing.body is not None, "a request has a body"
            if asks.method == TASKS_RESULT:
                reply.about = task_in(outgoing.body)
            elif self._is_still_wanted(asks.method, uri_in(outgoing.body) or ""):
                reply.answer(result_text(asks.id, "{}").encode())
                return reply
        try:
            await self.channel.ask(outgoing, reply, until=until)
        except BaseException:
            reply.end()
            raise
        return reply

    def _is_still_wanted(self, method: str, uri: str) -> bool:
        """Note a subscription or its end. True for an end while other sessions subscribe to the
        resource: the server is not told."""
        if method == RESOURCES_SUBSCRIBE:
            self.uris.add(uri)
            return False
        self.uris.discard(uri)
        return self.channel.company.is_wanted(uri)

    def _say(self, message: str) -> None:
        """Send a message in the background, with the headers of the session's last request."""
        # An acknowledging channel (SSE) belongs to this session and ends with it.
        if not self.channel.line.acknowledges:
            self.channel.say(message, self._like)

    def _fall_silent(self) -> None:
        """Called when the reader of its other messages was released: end the session later, unless
        another reader comes."""
        if not self._has_ended:
            self._silence = asyncio.get_running_loop().call_later(UNHEARD, self._give_up)

    def _give_up(self) -> None:
        """End the session that had no reader for a time, unless requests of it are in flight."""
        self._silence = None
        if any(reply.keeper is self for reply in self.channel.waiting.replies.values()):
            self._fall_silent()
        else:
            self.end()

    def _close(self) -> bool:
        """Mark the session as ended and call `over`. False if it had ended before."""
        if self._has_ended:
            return False
        self._has_ended = True
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None
        self._over(self)
        return True


def cancelled(id: RequestId) -> str:
    """Return the notification that cancels a request (U-STDIO-3)."""
    return notification_text(NOTE_CANCELLED, dump({"requestId": id}))


_CONFIRMS: Final = NotificationPeek(NOTE_INITIALIZED)
_NOTED: Final = frozenset({RESOURCES_SUBSCRIBE, RESOURCES_UNSUBSCRIBE, TASKS_RESULT})
