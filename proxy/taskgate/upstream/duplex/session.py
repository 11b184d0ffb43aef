"""One legacy session on a channel: `ChannelSession`, with a session id that the gateway makes up.

Programs know no session ids; the id lets the legacy session address it as over HTTP.
`ChannelTransport` creates it for an `initialize` and finds it by its id. `router` gives it messages
of no request. It ends when the legacy session deletes it, its handshake fails, its channel is lost,
or nothing has used it for a minute.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Self

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
from taskgate.upstream.duplex.dispatcher import Dispatcher
from taskgate.upstream.duplex.peek import NotificationPeek, RequestPeek, ResponsePeek, kind_of, task_in, uri_in
from taskgate.upstream.duplex.pending import OK, PendingRequest, Status

MOST_UNHEARD: Final = 256
BYTES_UNHEARD: Final = 2**20
"""At most MOST_UNHEARD messages and BYTES_UNHEARD bytes wait without a reader. A session reads
right after its handshake, or never."""


class BufferedNotifications:
    """Messages of one session that wait for its reader, the newest `AsideStream`.

    `released` is called whenever the reader is released, also after `end`; not when a newer one
    replaces it.
    """

    __slots__ = ("_bytes", "_failure", "_is_over", "_ready", "_released", "_stream", "_waiter")

    def __init__(self, released: Callable[[], None]) -> None:
        self._ready: deque[bytes] = deque()
        self._bytes = 0
        self._released = released
        self._stream: AsideStream | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._failure: UpstreamFailed | None = None
        self._is_over = False

    @property
    def are_heard(self) -> bool:
        """Whether there is a reader now."""
        return self._stream is not None

    def say(self, message: bytes) -> bool:
        """Store a message for the reader. False if there is neither a reader nor room: it is
        dropped."""
        size = self._bytes + len(message)
        if self._stream is None and (len(self._ready) >= MOST_UNHEARD or size > BYTES_UNHEARD):
            return False
        self._bytes = size
        self._ready.append(message)
        self._wake()
        return True

    def listen(self) -> "AsideStream":
        """Return a stream of the stored and all further messages, the new reader. The iteration of
        the reader before it ends."""
        self._stream = AsideStream(self)
        self._wake()
        return self._stream

    def end(self, failure: UpstreamFailed | None = None) -> None:
        """End the buffer with its session: after the stored messages the reader gets `failure`, or
        without one the end of the stream."""
        self._is_over, self._failure = True, failure
        self._wake()

    async def next(self, stream: "AsideStream") -> bytes:
        """Wait for the next message of `stream`.

        Raises StopAsyncIteration once the buffer has ended or `stream` is not the reader any more,
        and the failure of `end`.
        """
        while stream is self._stream:
            if self._ready:
                message = self._ready.popleft()
                self._bytes -= len(message)
                return message
            if self._failure is not None:
                raise self._failure
            if self._is_over:
                break
            waiter = self._waiter = asyncio.get_running_loop().create_future()
            await waiter
        raise StopAsyncIteration

    def let_go(self, stream: "AsideStream") -> None:
        """Detach `stream` and call `released`; nothing if it is not the reader any more."""
        if stream is self._stream:
            self._stream = None
            self._released()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class AsideStream:
    """An `Incoming`, as the answer to a GET, that yields the messages of a buffer. It is its own
    iterator."""

    __slots__ = ("_asides",)

    status: int = OK
    session: str | None = None
    streams: bool = True
    last_event: Final = None
    retry: Final = None
    unfinished: Final = 0

    def __init__(self, asides: BufferedNotifications) -> None:
        self._asides = asides

    async def document(self) -> None:
        """Return None: it is a stream."""

    def messages(self) -> Self:
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        return await self._asides.next(self)

    def release(self, *, answered: bool = False) -> None:
        self._asides.let_go(self)


UNHEARD: Final = 60.0
"""Seconds without a reader and without requests after which a session ends. A live session has a
reader, except right before its end."""

TAKEN: Final = 202
UNANSWERED: Final = dump({"code": INTERNAL_ERROR, "message": "The session that could answer has ended"})


class ChannelSession:
    """One session of an auth context; the `RequestOwner` of its requests.

    `over` is called once, as soon as it ends, and gives its use of the channel back.
    """

    def __init__(self, id: str, dispatcher: Dispatcher, context: str, over: Callable[["ChannelSession"], None]) -> None:
        self.id = id
        self.dispatcher = dispatcher
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

    async def begin(self, outgoing: Outgoing, asks: RequestPeek, until: float | None) -> PendingRequest:
        """Make the handshake and return its answer. After a refusal or a failure the session has
        ended. Raises UpstreamFailed."""
        self._like = outgoing
        request = PendingRequest(asks.id, self, outgoing.idle)
        try:
            await self.dispatcher.initialize(outgoing, request, until=until)
        except BaseException:
            self.end()
            raise
        if self.dispatcher.pending.handshake.is_welcome:
            request.session = self.id
        else:
            self.end()
        return request

    async def post(self, outgoing: Outgoing, until: float | None) -> PendingRequest | Status:
        """Send a message of the session and return its answer. Raises UpstreamFailed."""
        assert outgoing.body is not None, "a message has a body"
        self._like = outgoing
        kind = kind_of(outgoing.body)
        if isinstance(kind, RequestPeek):
            return await self._ask(outgoing, kind, until)
        if isinstance(kind, ResponsePeek):
            self._questions.pop(kind.id, None)
        # The server gets one confirmation of its one handshake, however many sessions share it.
        elif kind == _CONFIRMS and not self.dispatcher.pending.handshake.confirms():
            return Status(TAKEN)
        return Status(await self.dispatcher.tell(outgoing))

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
        for request in [request for request in self.dispatcher.pending.requests.values() if request.owner is self]:
            self.dispatcher.pending.abandon(request)
            self._say(cancelled(request.id))
            request.fail(failures.let_go(dispatched=True))
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

    # --- the observer of its requests -------------------------------------------------------------------------------

    def keep(self, size: int) -> None:
        """Count bytes that wait in its requests. While too many wait, the channel is not read."""
        self.dispatcher.keep(size)

    def read(self, size: int) -> None:
        """Count bytes that left its requests."""
        self.dispatcher.read(size)

    def let_go(self, request: PendingRequest) -> None:
        """Called once by each request at its end. The legacy session cancels the request at the
        server itself."""
        self.dispatcher.pending.abandon(request)

    async def _ask(self, outgoing: Outgoing, asks: RequestPeek, until: float | None) -> PendingRequest:
        """Send a request of the session; a redundant unsubscription is answered here."""
        request = PendingRequest(asks.id, self, outgoing.idle)
        if asks.method in _NOTED:
            assert outgoing.body is not None, "a request has a body"
            if asks.method == TASKS_RESULT:
                request.about = task_in(outgoing.body)
            elif self._is_still_wanted(asks.method, uri_in(outgoing.body) or ""):
                request.answer(result_text(asks.id, "{}").encode())
                return request
        try:
            await self.dispatcher.ask(outgoing, request, until=until)
        except BaseException:
            request.end()
            raise
        return request

    def _is_still_wanted(self, method: str, uri: str) -> bool:
        """Note a subscription or its end. True for an end while other sessions subscribe to the
        resource: the server is not told."""
        if method == RESOURCES_SUBSCRIBE:
            self.uris.add(uri)
            return False
        self.uris.discard(uri)
        return self.dispatcher.router.is_wanted(uri)

    def _say(self, message: str) -> None:
        """Send a message in the background, with the headers of the session's last request."""
        # An acknowledging channel (SSE) belongs to this session and ends with it.
        if not self.dispatcher.channel.acknowledges:
            self.dispatcher.say(message, self._like)

    def _fall_silent(self) -> None:
        """Called when the reader of its other messages was released: end the session later, unless
        another reader comes."""
        if not self._has_ended:
            self._silence = asyncio.get_running_loop().call_later(UNHEARD, self._end_unused)

    def _end_unused(self) -> None:
        """End the session that had no reader for a time, unless requests of it are in flight."""
        self._silence = None
        if any(request.owner is self for request in self.dispatcher.pending.requests.values()):
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
