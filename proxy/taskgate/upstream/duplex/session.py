"""One legacy session on a channel: `ChannelSession` sends its messages and receives the server's.

`ChannelTransport.open` creates it for an `initialize`, and the legacy session holds it. Answers
come by a `PendingRequest`; all else that the server sends to the session waits in its
`BufferedNotifications`, where `sharing` puts it. It ends when the legacy session ends it, its
handshake fails, its channel is lost, or nothing has used it for a minute.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import count
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
from taskgate.upstream.duplex.peek import Kind, NotificationPeek, RequestPeek, ResponsePeek, kind_of, task_in, uri_in
from taskgate.upstream.duplex.pending import ACCEPTED, PendingRequest, Receipt

MAX_BUFFERED_MESSAGES: Final = 256
MAX_BUFFERED_BYTES: Final = 2**20
"""At most MAX_BUFFERED_MESSAGES messages and MAX_BUFFERED_BYTES bytes wait without a reader. A
session reads right after its handshake, or never."""


class BufferedNotifications:
    """Messages of one session that wait for its reader, the newest `NotificationReader`.

    `released` is called whenever the reader is released, also after `end`; not when a newer one
    replaces it.
    """

    __slots__ = ("_bytes", "_failure", "_is_over", "_ready", "_released", "_stream", "_waiter")

    def __init__(self, released: Callable[[], None]) -> None:
        self._ready: deque[bytes] = deque()
        self._bytes = 0
        self._released = released
        self._stream: NotificationReader | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._failure: UpstreamFailed | None = None
        self._is_over = False

    def add(self, message: bytes) -> bool:
        """Store a message for the reader. False if there is neither a reader nor room: it is
        dropped."""
        size = self._bytes + len(message)
        if self._stream is None and (len(self._ready) >= MAX_BUFFERED_MESSAGES or size > MAX_BUFFERED_BYTES):
            return False
        self._bytes = size
        self._ready.append(message)
        self._wake()
        return True

    def listen(self) -> "NotificationReader":
        """Return a stream of the stored and all further messages, the new reader. The iteration of
        the reader before it ends."""
        self._stream = NotificationReader(self)
        self._wake()
        return self._stream

    def end(self, failure: UpstreamFailed | None = None) -> None:
        """End the buffer with its session: after the stored messages the reader gets `failure`, or
        without one the end of the stream."""
        self._is_over, self._failure = True, failure
        self._wake()

    async def next(self, stream: "NotificationReader") -> bytes:
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
                raise self._failure.copy()
            if self._is_over:
                break
            waiter = self._waiter = asyncio.get_running_loop().create_future()
            await waiter
        raise StopAsyncIteration

    def detach(self, stream: "NotificationReader") -> None:
        """Detach `stream` and call `released`; nothing if it is not the reader any more."""
        if stream is self._stream:
            self._stream = None
            self._released()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class NotificationReader:
    """Reader of a buffer, an iterator of its messages. `release` must be called at its end."""

    __slots__ = ("_buffer",)

    def __init__(self, buffer: BufferedNotifications) -> None:
        self._buffer = buffer

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        return await self._buffer.next(self)

    def release(self) -> None:
        """Finish with it: messages then wait for another reader."""
        self._buffer.detach(self)


UNUSED_TIMEOUT: Final = 60.0
"""Seconds without a reader and without requests after which a session ends. A live session has a
reader, except right before its end."""

UNANSWERED: Final = dump({"code": INTERNAL_ERROR, "message": "The session that could answer has ended"})


class ChannelSession:
    """One session of an auth context; the `RequestOwner` of its requests.

    `over` is called once, as soon as it ends, and gives its use of the channel back.
    """

    def __init__(self, dispatcher: Dispatcher, context: str, over: Callable[["ChannelSession"], None]) -> None:
        self.id = str(next(_IDS))
        """It tells sessions of this process apart. No server sees it."""
        self.dispatcher = dispatcher
        self.context = context
        self.uris: set[str] = set()
        """The resources that it subscribes to."""
        self.loss: str | None = None
        """Why its channel was lost, for requests that come later; None if it was not."""
        self._over = over
        self._notifications = BufferedNotifications(self._start_unused_timer)
        # Requests of the server that this session got and has not answered, in their order.
        self._questions: dict[RequestId, None] = {}
        # The last request: background messages get its headers.
        self._like = Outgoing(verb="POST", headers={})
        # The timer that ends the session; runs while it has no reader.
        self._unused_timer: asyncio.TimerHandle | None = None
        self._has_ended = False

    # --- requests -----------------------------------------------------------------------------------------------------

    async def begin(self, outgoing: Outgoing, id: RequestId, until: float | None) -> PendingRequest:
        """Make the handshake and return its answer. After a refusal or a failure the session has
        ended. Raises UpstreamFailed."""
        self._like = outgoing
        request = PendingRequest(id, self, self.dispatcher.unread, outgoing.idle)
        try:
            await self.dispatcher.initialize(outgoing, request, until=until)
        except BaseException:
            self.end()
            raise
        if not self.dispatcher.pending.handshake.is_welcome:
            self.end()
        return request

    async def ask(self, outgoing: Outgoing) -> PendingRequest:
        """Send a request of the session, and wait for the first message of its answer.

        A redundant unsubscription is answered here. The caller must end the returned request.
        Raises UpstreamFailed.
        """
        until = deadline(outgoing)
        asks = self._sends(outgoing)
        assert isinstance(asks, RequestPeek), "it is a request"
        dispatcher = self.dispatcher
        request = PendingRequest(asks.id, self, dispatcher.unread, outgoing.idle)
        if asks.method in _NOTED:
            assert isinstance(outgoing.body, bytes), "a channel takes no chunks"
            if asks.method == TASKS_RESULT:
                request.about = task_in(outgoing.body)
            elif self._is_redundant(asks.method, uri_in(outgoing.body) or ""):
                request.answer(result_text(asks.id, "{}").encode())
                return request
        try:
            dispatcher.pending.requests[request.id] = request
            await dispatcher.ask(outgoing, request, until)
        except BaseException:
            request.end()
            raise
        return request

    async def send(self, outgoing: Outgoing) -> Receipt:
        """Send a message of the session that gets no answer. Raises UpstreamFailed."""
        kind = self._sends(outgoing)
        if isinstance(kind, ResponsePeek):
            self._questions.pop(kind.id, None)
        # The server gets one confirmation of its one handshake, however many sessions share it.
        elif kind == _CONFIRMS and not self.dispatcher.pending.handshake.takes_confirmation():
            return Receipt(ACCEPTED)
        return await self.dispatcher.send(outgoing)

    def listen(self) -> NotificationReader:
        """Return a new reader of messages that are no answers; an earlier one ends."""
        if self._unused_timer is not None:
            self._unused_timer.cancel()
            self._unused_timer = None
        return self._notifications.listen()

    def end(self) -> None:
        """End the session: cancel its requests at the server, refuse its open questions. A second
        call does nothing."""
        if not self._close():
            return
        self._notifications.end()
        for request in [request for request in self.dispatcher.pending.requests.values() if request.owner is self]:
            self.dispatcher.pending.abandon(request)
            self._send_quietly(cancelled(request.id))
            request.fail(failures.let_go(dispatched=True))
        for id_ in self._questions:
            self._send_quietly(error_text(id_, UNANSWERED))

    # --- messages of its channel --------------------------------------------------------------------------------------

    def on_notification(self, message: bytes) -> None:
        """Receive a notification of the server; dropped if there is neither a reader nor room."""
        self._notifications.add(message)

    def on_request(self, asks: RequestPeek, message: bytes) -> None:
        """Receive a request of the server, which this session is to answer."""
        if self._notifications.add(message):
            self._questions[asks.id] = None
        else:
            self._send_quietly(error_text(asks.id, UNANSWERED))

    def on_lost(self, failure: UpstreamFailed) -> None:
        """End the session without a message to the server: its channel is closed."""
        self.loss = str(failure)
        if self._close():
            self._notifications.end(UpstreamFailed(UpstreamReason.SESSION_LOST, self.loss, dispatched=False))

    # --- the observer of its requests -------------------------------------------------------------------------------

    def on_ended(self, request: PendingRequest) -> None:
        """Called once by each request at its end. The legacy session cancels the request at the
        server itself."""
        pending = self.dispatcher.pending
        if pending.requests.get(request.id) is request:
            pending.abandon(request)

    def _sends(self, outgoing: Outgoing) -> Kind | None:
        """Return the kind of a message that is about to be sent. Raises UpstreamFailed after the
        end of the session."""
        if self._has_ended:
            if self.loss is None:
                raise failures.session_lost()
            raise UpstreamFailed(UpstreamReason.SESSION_LOST, self.loss, dispatched=False)
        assert isinstance(outgoing.body, bytes), "a channel takes no chunks"
        self._like = outgoing
        return kind_of(outgoing.body)

    def _is_redundant(self, method: str, uri: str) -> bool:
        """Note a subscription or its end. True for an end while other sessions subscribe to the
        resource: the server is not told."""
        if method == RESOURCES_SUBSCRIBE:
            self.uris.add(uri)
            return False
        self.uris.discard(uri)
        return self.dispatcher.router.is_wanted(uri)

    def _send_quietly(self, message: str) -> None:
        """Send a message in the background, with the headers of the session's last request."""
        # An acknowledging channel (SSE) belongs to this session and ends with it.
        if not self.dispatcher.channel.acknowledges:
            self.dispatcher.send_in_background(message, self._like)

    def _start_unused_timer(self) -> None:
        """Called when the reader of its other messages was released: end the session later, unless
        another reader comes."""
        if not self._has_ended:
            self._unused_timer = asyncio.get_running_loop().call_later(UNUSED_TIMEOUT, self._end_unused)

    def _end_unused(self) -> None:
        """End the session that had no reader for a time, unless requests of it are in flight."""
        self._unused_timer = None
        if any(request.owner is self for request in self.dispatcher.pending.requests.values()):
            self._start_unused_timer()
        else:
            self.end()

    def _close(self) -> bool:
        """Mark the session as ended and call `over`. False if it had ended before."""
        if self._has_ended:
            return False
        self._has_ended = True
        if self._unused_timer is not None:
            self._unused_timer.cancel()
            self._unused_timer = None
        self._over(self)
        return True


def deadline(outgoing: Outgoing) -> float | None:
    """Return the loop time until which the first message of an answer must arrive; None for none."""
    bound = outgoing.first_byte
    return None if bound is None else asyncio.get_running_loop().time() + bound.total_seconds()


def cancelled(id: RequestId) -> str:
    """Return the notification that cancels a request (U-STDIO-3)."""
    return notification_text(NOTE_CANCELLED, dump({"requestId": id}))


_CONFIRMS: Final = NotificationPeek(NOTE_INITIALIZED)
_NOTED: Final = frozenset({RESOURCES_SUBSCRIBE, RESOURCES_UNSUBSCRIBE, TASKS_RESULT})
_IDS: Final = count(1)
