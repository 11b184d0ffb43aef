"""JSON-RPC on one message channel: `Dispatcher`, the `ChannelListener` of a `MessageChannel`.

A message channel carries messages to one server and back. Sessions and modern requests send through
the `Dispatcher`, and the message channel delivers to it. A `PendingRequest` stores the messages of
one request for its reader: progress, and the answer. A request of the server, or another
notification, goes to `router`, the `MessageRouter` of the channel (`sharing.SharedChannel`). An
answer to no request is dropped.

It begins when the message channel is first taken, and ends with `on_closed`. While too many bytes
wait for readers, reading from the message channel pauses.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from contextvars import Context
from datetime import timedelta
from functools import partial
from typing import Any, Final, Protocol

from taskgate.domain.record import RequestId
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.jsontext.edits import dump
from taskgate.protocol.jsonrpc import error_text
from taskgate.protocol.vocabulary import INTERNAL_ERROR, NOTE_PROGRESS
from taskgate.system.background import cancel_and_wait
from taskgate.system.offload import LARGE, in_thread
from taskgate.upstream import failures
from taskgate.upstream.base import Outgoing
from taskgate.upstream.duplex.base import MessageChannel
from taskgate.upstream.duplex.outstanding import RequestsInFlight, RunningTasks
from taskgate.upstream.duplex.peek import (
    Kind,
    MalformedInput,
    NotificationPeek,
    ProgressPeek,
    Read,
    RequestPeek,
    ResponsePeek,
    inspect_malformed,
    is_bounded,
    kind_of,
    may_be_message,
    message_in,
    response_in,
)
from taskgate.upstream.duplex.pending import ACCEPTED, OK, PendingRequest, Receipt, UnreadBytes


class BackgroundSends:
    """The background tasks of one `ChannelTransport`."""

    __slots__ = ("_tasks",)

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run the coroutine in the background, in an empty context; it must not raise."""
        task = asyncio.get_running_loop().create_task(work, context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """Cancel all that still run."""
        await cancel_and_wait(*self._tasks)


SEND_TIMEOUT: Final = timedelta(seconds=2)
"""Time for the server to accept a message that no request waits for."""

TOO_LARGE: Final = dump({"code": INTERNAL_ERROR, "message": "The request is too large"})


class MessageRouter(Protocol):
    """Receivers of messages that belong to no request; `sharing.SharedChannel` implements it.

    No method raises or waits. A parameter `read` is what the functions of `peek` take: the
    bytes of a message, or, if it is large, the result of `message_in`. That is None for an invalid
    message.
    """

    def on_notification(self, method: str, message: bytes, read: Read) -> None:
        """Receive a notification, also progress whose token is of no request in flight."""
        ...

    def on_request(self, asks: RequestPeek, message: bytes, read: Read) -> None:
        """Receive a request of the server, to give it to a session or refuse it."""
        ...

    def on_closed(self, failure: UpstreamFailed) -> None:
        """The channel is closed. Called once, after the requests in flight have failed."""
        ...

    def is_wanted(self, uri: str) -> bool:
        """Whether any session subscribes to that resource. If so, no unsubscription is sent, since
        the sessions share the server's subscription."""
        ...


class Dispatcher:
    """One message channel, `channel`, in use.

    - `pending`: the requests in flight. A request is added before `ask`, and its end removes it.
    - `tasks`: the server tasks that are polled on the channel.
    - `router`: the receiver of messages of no request.
    - `background`: runs background sends.

    To send: `initialize` for `initialize`, `ask` for another request, `send` for a message without
    answer, `send_in_background` for one without even a wait. `unread` counts bytes for the pause.
    """

    def __init__(self, channel: MessageChannel, router: MessageRouter, background: BackgroundSends) -> None:
        self.channel = channel
        self.pending = RequestsInFlight()
        self.tasks = RunningTasks()
        self.router = router
        self.unread = UnreadBytes(channel)
        self._background = background

    # --- the listener of its message channel --------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """How many requests wait for answers, plus how many server tasks run."""
        return len(self.pending) + self.tasks.count(asyncio.get_running_loop().time())

    def on_message(self, message: bytes) -> bool:
        """Give a message to its receiver. False if it is no valid message, which the message
        channel then may log."""
        kind = kind_of(message)
        if isinstance(kind, ResponsePeek):
            return self._deliver_answer(kind.id, message, message)
        if kind is None:
            return self._receive_malformed(inspect_malformed(message), message)
        return self._deliver(kind, message, message)

    async def on_large_message(self, message: bytes) -> bool:
        """Give a large message to its receiver, like `on_message`, but decode it on another thread.

        The message channel delivers nothing else meanwhile, so messages stay in order.
        """
        kind = await in_thread(partial(kind_of, message))
        if is_bounded(kind):
            # A large notification is dropped, unless it may hold the result of a task.
            return True
        is_waited_for = isinstance(kind, ResponsePeek) and kind.id in self.pending.requests
        # An answer to a request in flight is decoded by its reader, so not here.
        read = None if kind is None or is_waited_for else await in_thread(partial(message_in, message))
        # An invalid answer of no request in flight may name its request elsewhere: see below. An
        # invalid request or notification goes to its receiver with `read` None.
        if kind is not None and (read is not None or is_waited_for or not isinstance(kind, ResponsePeek)):
            return self._deliver(kind, message, read)
        malformed = await in_thread(partial(inspect_malformed, message))
        if not malformed.parts:
            return self._receive_malformed(malformed, message)
        were_messages = []
        for part in malformed.parts:
            is_message = _is_one(part) and (
                await self.on_large_message(part) if len(part) > LARGE else self.on_message(part)
            )
            were_messages.append(is_message)
        return all(were_messages)

    def on_truncated(self, ends: bytes) -> bool:
        """Handle the two ends of a message that was too large to store; False if it cannot be a
        message.

        An answer fails its request, a request of the server is refused, and a notification is
        dropped. If its kind is unknown, it may be any answer: the only request in flight fails, or
        all do.
        """
        kind = kind_of(ends)
        if isinstance(kind, ResponsePeek):
            self.pending.fail(kind.id, failures.too_large())
        elif isinstance(kind, RequestPeek):
            self.send_in_background(error_text(kind.id, TOO_LARGE), Outgoing(verb="POST", headers={}))
        elif kind is None:
            if not may_be_message(ends):
                return False
            if not self.pending.fail_the_only_one(failures.too_large()):
                self.pending.fail_all(failures.too_large_for_somebody())
        return True

    def on_closed(self, failure: UpstreamFailed) -> None:
        """Fail all requests in flight and tell `router`."""
        if failure.reason == UpstreamReason.CLOSED.value:
            # Unlike a closed HTTP connection, this ends the server's streams for good: `Severed`
            # tells the readers not to resume them.
            failure = failures.Severed(str(failure))
        self.pending.lost(failure)
        self.router.on_closed(failure)

    # --- sending ------------------------------------------------------------------------------------------------------

    async def ask(self, outgoing: Outgoing, request: PendingRequest, until: float | None) -> None:
        """Send a request, and wait until the first message of its answer arrives.

        `until` is the loop time at which the wait ends. On an acknowledging channel the send and
        the wait are at once. The caller has added the request to `pending`, and must end it, also
        after an error or a cancellation. Raises UpstreamFailed.
        """
        if not self.channel.acknowledges:
            try:
                refusal = await self.channel.send(outgoing)
            except UpstreamFailed:
                self.pending.forget(request)
                raise
            request.was_sent = True
            if refusal is not None:
                request.refuse(refusal)
            await request.wait(until)
            return
        # The answer may arrive before the server accepts the request.
        request.was_sent = True
        posting = self._background.begin(self._post(outgoing, request))
        try:
            await request.wait(until)
        except BaseException:
            posting.cancel()
            raise

    async def initialize(self, outgoing: Outgoing, request: PendingRequest, *, until: float | None) -> None:
        """Get the answer to `initialize` into `request`, accepted or not. The first caller sends
        it; others wait for the same answer.

        Raises UpstreamFailed, also if `until` has passed. The channel is dropped if the server was
        silent for a whole timeout after `initialize` was sent. A caller whose program started late
        has less time than that. When its time is over, the channel is dropped only if no other
        caller waits.
        """
        handshake, loop = self.pending.handshake, asyncio.get_running_loop()
        try:
            if handshake.join(request, loop.time()):
                await request.wait(until)
                return
            await self.ask(outgoing, request, until)
            if request.status != OK:
                handshake.fail(failures.refused(request.status, retry_after=request.retry_after))
        except UpstreamFailed as failure:
            # The timeout of one caller says nothing about the others. Any other failure is of the
            # message, and so of all who wait for its answer.
            if failure.reason != UpstreamReason.TIMEOUT.value and request in handshake.waiting:
                handshake.fail(failure)
            raise
        finally:
            # On every path, also when the caller is cancelled: is the channel still of use?
            handshake.leave(request)
            if outgoing.first_byte is not None and until is not None:
                patience, now = outgoing.first_byte.total_seconds(), loop.time()
                if handshake.is_hopeless(patience, now, left=until - now):
                    self.channel.drop()

    async def send(self, outgoing: Outgoing) -> Receipt:
        """Send a message that gets no answer, and wait until it is sent.

        An HTTP status that refuses it is not raised, but may drop the channel: a call may wait for what it
        answers. Raises UpstreamFailed if it could not be sent.
        """
        refusal = await self.channel.send(outgoing)
        if refusal is None:
            return Receipt(ACCEPTED)
        if refusal.status in failures.CHANNEL_REFUSALS:
            self.channel.drop()
        return Receipt(*refusal)

    def send_in_background(self, message: str, like: Outgoing) -> None:
        """Send a message that gets no answer in the background; failures are ignored.

        `like` is a request of the same caller, whose headers are used.
        """
        body = message.encode()
        outgoing = Outgoing(verb="POST", headers=like.headers, body=body, first_byte=SEND_TIMEOUT, follows=True)
        self._background.begin(self._send_quietly(outgoing))

    async def _post(self, outgoing: Outgoing, request: PendingRequest) -> None:
        """Send a request of an acknowledging channel; a failure goes to the `PendingRequest`."""
        try:
            refusal = await self.channel.send(outgoing)
            if refusal is not None:
                request.refuse(refusal)
        except UpstreamFailed as failure:
            request.fail(failure)

    async def _send_quietly(self, outgoing: Outgoing) -> None:
        with suppress(UpstreamFailed):
            await self.send(outgoing)

    def _deliver(self, kind: Kind, message: bytes, read: Read) -> bool:
        """Give a message of a known kind to its request or to `router`. False only for an invalid
        response. `read` is as in `MessageRouter`."""
        if isinstance(kind, ResponsePeek):
            return self._deliver_answer(kind.id, message, read)
        if isinstance(kind, ProgressPeek):
            request = self.pending.requests.get(kind.token)
            if request is None:
                self.router.on_notification(NOTE_PROGRESS, message, read)
            else:
                request.arrive(message)
        elif isinstance(kind, NotificationPeek):
            self.router.on_notification(kind.method, message, read)
        else:
            self.router.on_request(kind, message, read)
        return True

    def _deliver_answer(self, id: RequestId, message: bytes, read: Read) -> bool:
        """Give a response to its request or the handshake; drop it if nothing waits for it. False
        if it is dropped and invalid."""
        was_asked = id in self.pending.requests or id in self.pending.abandoned or self.pending.handshake.awaits(id)
        if was_asked:
            self.channel.answered(len(message))
        request, handshake = self.pending.answered(id), self.pending.handshake
        if request is not None:
            self.tasks.look(message, request.owner, asyncio.get_running_loop().time())
            request.answer(message)
        elif not handshake.awaits(id):
            # A valid answer of no request in flight is late or stray, and is dropped. An invalid
            # one may be meant for another request.
            return response_in(read) is not None or self._receive_malformed(inspect_malformed(message), message)
        elif not handshake.receive(read):
            # A result of `initialize` that accepts no session: the server's state is unknown.
            self.channel.drop()
        return True

    def _receive_malformed(self, malformed: MalformedInput, message: bytes) -> bool:
        """Handle what is not one valid message: each part of an array, or an answer whose request
        can be told.

        Returns whether it is an array of valid messages. False for everything else, also if a
        request failed on it.
        """
        if malformed.parts:
            were_messages = [_is_one(part) and self.on_message(part) for part in malformed.parts]
            return all(were_messages)
        requests, handshake = self.pending.requests, self.pending.handshake
        waited_for = [id_ for id_ in malformed.answered if id_ in requests or handshake.awaits(id_)]
        if len(waited_for) == 1:
            # The reader of this request decodes the answer, and so fails with what is wrong in it.
            self._deliver_answer(waited_for[0], message, None)
        elif malformed.reports_parse_error:
            self.pending.fail_the_only_one(failures.unread())
        return False


def _is_one(part: bytes) -> bool:
    return part[:1] == b"{"
