"""One message channel with its requests: `Channel`, the listener (`Ears`) of a `MessageChannel`.

A message channel (`line`) carries messages to one server and back. Sessions and modern requests
send through the `Channel`, and the message channel delivers to it. Each request has a *reply*
(`ChannelReply`), which stores its messages for a reader. An answer or progress goes to the reply of
its request. A request of the server, or another notification, goes to `company`, which is the
`ChannelUsers` of the channel (`company.SharedBy`). An answer to no request is dropped.

It begins when the message channel is first taken, and ends with `lost`. While too many bytes wait
for readers, reading from the message channel pauses.
"""

import asyncio
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Final, Protocol

from taskgate.domain.record import RequestId
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.jsontext.edits import dump
from taskgate.protocol.jsonrpc import error_text
from taskgate.protocol.vocabulary import INTERNAL_ERROR, NOTE_PROGRESS
from taskgate.system.offload import LARGE, in_thread
from taskgate.upstream import failures
from taskgate.upstream.base import Outgoing
from taskgate.upstream.duplex.base import MessageChannel
from taskgate.upstream.duplex.contents import Read, message_in, response_in
from taskgate.upstream.duplex.replies import OK, ChannelReply
from taskgate.upstream.duplex.strange import Strange, look_at, may_be_message
from taskgate.upstream.duplex.tasks import RunningTasks
from taskgate.upstream.duplex.under_way import UnderWay
from taskgate.upstream.duplex.waiting import RequestsInFlight
from taskgate.upstream.duplex.words import Answers, Kind, NotificationPeek, RequestPeek, Tells, is_bounded, kind_of

KEPT_MOST: Final = 2**20
"""Bytes stored for readers at which reading pauses; it continues below a quarter of them."""

FAREWELL: Final = timedelta(seconds=2)
"""Time for the server to accept a message that no request waits for."""

TOO_LARGE: Final = dump({"code": INTERNAL_ERROR, "message": "The request is too large"})

_GONE: Final = frozenset({400, 404})
"""Statuses by which a server says that it no longer knows the channel."""


class ChannelUsers(Protocol):
    """Receivers of messages that belong to no request; `company.SharedBy` implements it.

    No method raises or waits. A parameter `read` is what the functions of `contents` take: the
    bytes of a message, or, if it is large, the result of `message_in`. That is None for an invalid
    message.
    """

    def noted(self, method: str, message: bytes, read: Read) -> None:
        """Receive a notification, also progress whose token is of no request in flight."""
        ...

    def asked(self, asks: RequestPeek, message: bytes, read: Read) -> None:
        """Receive a request of the server, to give it to a session or refuse it."""
        ...

    def lost(self, failure: UpstreamFailed) -> None:
        """The channel is closed. Called once, after the requests in flight have failed."""
        ...

    def is_wanted(self, uri: str) -> bool:
        """Whether any session subscribes to that resource. If so, no unsubscription is sent, since
        the sessions share the server's subscription."""
        ...


class Channel:
    """One message channel, `line`, in use.

    - `waiting`: the requests in flight. `ask` adds one; the end of its reply removes it.
    - `tasks`: the server tasks that are polled on the channel.
    - `company`: the receiver of messages of no request.
    - `under_way`: runs background sends.

    To send: `greet` for `initialize`, `ask` for another request, `tell` for a message without
    answer, `say` for one without even a wait. `keep` and `read` count bytes for the pause.
    """

    def __init__(self, line: MessageChannel, company: ChannelUsers, under_way: UnderWay) -> None:
        self.line = line
        self.waiting = RequestsInFlight()
        self.tasks = RunningTasks()
        self.company = company
        self._under_way = under_way
        # Bytes that wait for readers.
        self._kept = 0
        self._is_paused = False

    # --- the listener of its message channel --------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """How many requests wait for answers, plus how many server tasks run."""
        return len(self.waiting) + self.tasks.count(asyncio.get_running_loop().time())

    def heard(self, message: bytes) -> bool:
        """Give a message to its receiver. False if it is no valid message, which the message
        channel then may log."""
        kind = kind_of(message)
        return self._hear_strange(look_at(message), message) if kind is None else self._hear(kind, message, message)

    async def heard_large(self, message: bytes) -> bool:
        """Give a large message to its receiver, like `heard`, but decode it on another thread.

        The message channel delivers nothing else meanwhile, so messages stay in order.
        """
        kind = await in_thread(partial(kind_of, message))
        if is_bounded(kind):
            # A large notification is dropped, unless it may hold the result of a task.
            return True
        is_waited_for = isinstance(kind, Answers) and kind.id in self.waiting.replies
        # An answer to a request in flight is decoded by its reader, so not here.
        read = None if kind is None or is_waited_for else await in_thread(partial(message_in, message))
        # An invalid answer of no request in flight may name its request elsewhere: see below. An
        # invalid request or notification goes to its receiver with `read` None.
        if kind is not None and (read is not None or is_waited_for or not isinstance(kind, Answers)):
            return self._hear(kind, message, read)
        strange = await in_thread(partial(look_at, message))
        if not strange.parts:
            return self._hear_strange(strange, message)
        were_messages = []
        for part in strange.parts:
            hears = _is_one(part) and (await self.heard_large(part) if len(part) > LARGE else self.heard(part))
            were_messages.append(hears)
        return all(were_messages)

    def cut(self, ends: bytes) -> bool:
        """Handle the two ends of a message that was too large to store; False if it cannot be a
        message.

        An answer fails its request, a request of the server is refused, and a notification is
        dropped. If its kind is unknown, it may be any answer: the only request in flight fails, or
        all do.
        """
        kind = kind_of(ends)
        if isinstance(kind, Answers):
            self.waiting.fail(kind.id, failures.too_large())
        elif isinstance(kind, RequestPeek):
            self.say(error_text(kind.id, TOO_LARGE), Outgoing(verb="POST", headers={}))
        elif kind is None:
            if not may_be_message(ends):
                return False
            if not self.waiting.fail_the_only_one(failures.too_large()):
                self.waiting.fail_all(failures.too_large_for_somebody())
        return True

    def lost(self, failure: UpstreamFailed) -> None:
        """Fail all requests in flight and tell `company`."""
        if failure.reason == UpstreamReason.CLOSED.value:
            # Unlike a closed HTTP connection, this ends the server's streams for good: `Severed`
            # tells the readers not to resume them.
            failure = failures.Severed(str(failure))
        self.waiting.lost(failure)
        self.company.lost(failure)

    # --- sending ------------------------------------------------------------------------------------------------------

    async def ask(self, outgoing: Outgoing, reply: ChannelReply, *, until: float | None, listens: bool = False) -> None:
        """Send a request, and wait until the first message arrives in `reply`, at most until the
        loop time `until`.

        From before the send, `reply` gets the messages of the request. `listens`: the request only
        opens a stream, and does not count as in flight. Raises UpstreamFailed. The caller must end
        the reply, also after an error or a cancellation.
        """
        self.waiting.replies[reply.id] = reply
        if listens:
            self.waiting.listening.add(reply.id)
        await self._carry(outgoing, reply, until)

    async def greet(self, outgoing: Outgoing, reply: ChannelReply, *, until: float | None) -> None:
        """Get the answer to `initialize` into `reply`, accepted or not. The first caller sends it;
        others wait for the same answer.

        Raises UpstreamFailed, also if `until` has passed. The channel is dropped if the server was
        silent for a whole timeout after `initialize` was sent. A caller whose program started late
        has less time than that. When its time is over, the channel is dropped only if no other
        caller waits.
        """
        greeting, loop = self.waiting.greeting, asyncio.get_running_loop()
        try:
            if greeting.joins(reply, loop.time()):
                await reply.begun(until)
                return
            await self._carry(outgoing, reply, until)
            if reply.status != OK:
                greeting.fails(failures.refused(reply.status))
        except UpstreamFailed as failure:
            # The timeout of one caller says nothing about the others. Any other failure is of the
            # message, and so of all who wait for its answer.
            if failure.reason != UpstreamReason.TIMEOUT.value and reply in greeting.waiting:
                greeting.fails(failure)
            raise
        finally:
            # On every path, also when the caller is cancelled: is the channel still of use?
            greeting.leaves(reply)
            if outgoing.first_byte is not None and until is not None:
                patience, now = outgoing.first_byte.total_seconds(), loop.time()
                if greeting.is_hopeless(patience, now, left=until - now):
                    self.line.drop()

    async def tell(self, outgoing: Outgoing) -> int:
        """Send a message that gets no answer, and wait until it is sent.

        Returns the HTTP status of its acceptance, 202 without HTTP. An error status is not raised,
        but may drop the channel. Raises UpstreamFailed if it could not be sent.
        """
        status = await self.line.send(outgoing)
        self._see(status)
        return status

    def say(self, message: str, like: Outgoing) -> None:
        """Send a message that gets no answer in the background; failures are ignored.

        `like` is a request of the same caller, whose headers are used.
        """
        body = message.encode()
        outgoing = Outgoing(verb="POST", headers=like.headers, body=body, first_byte=FAREWELL, follows=True)
        self._under_way.begin(self._say(outgoing))

    def keep(self, size: int) -> None:
        """Count bytes that a reply or session has stored for its reader. Above KEPT_MOST, reading
        from the message channel pauses."""
        self._kept += size
        if self._kept > KEPT_MOST and not self._is_paused:
            self._is_paused = True
            self.line.pause()

    def read(self, size: int) -> None:
        """Count stored bytes that a reader has taken or dropped. Below a quarter of KEPT_MOST,
        reading from the message channel continues. Every byte of `keep` must be counted here
        once."""
        self._kept -= size
        if self._is_paused and self._kept < KEPT_MOST // 4:
            self._is_paused = False
            self.line.resume()

    async def _carry(self, outgoing: Outgoing, reply: ChannelReply, until: float | None) -> None:
        """Send a request and wait for the start of its answer; on an acknowledging channel both at
        once. Raises UpstreamFailed."""
        if not self.line.acknowledges:
            try:
                status = await self.line.send(outgoing)
            except UpstreamFailed:
                self.waiting.forget(reply)
                raise
            reply.was_sent = True
            self._judge(status, reply)
            await reply.begun(until)
            return
        # The answer may arrive before the server accepts the request.
        reply.was_sent = True
        posting = self._under_way.begin(self._post(outgoing, reply))
        try:
            await reply.begun(until)
        except BaseException:
            posting.cancel()
            raise

    async def _post(self, outgoing: Outgoing, reply: ChannelReply) -> None:
        """Send a request of an acknowledging channel; a failure goes to its reply."""
        try:
            self._judge(await self.line.send(outgoing), reply)
        except UpstreamFailed as failure:
            reply.fail(failure)

    async def _say(self, outgoing: Outgoing) -> None:
        with suppress(UpstreamFailed):
            await self.tell(outgoing)

    def _judge(self, status: int, reply: ChannelReply) -> None:
        """End the reply with the HTTP status of its request if that is an error."""
        if not 200 <= status < 300:
            reply.refuse(status)
            self._see(status)

    def _see(self, status: int) -> None:
        """Drop the channel if the status says that the server no longer knows it."""
        if status in _GONE:
            self.line.drop()

    def _hear(self, kind: Kind, message: bytes, read: Read) -> bool:
        """Give a message of a known kind to its reply or to `company`. False only for an invalid
        response. `read` is as in `ChannelUsers`."""
        if isinstance(kind, Answers):
            return self._hear_answer(kind.id, message, read)
        if isinstance(kind, Tells):
            reply = self.waiting.replies.get(kind.token)
            if reply is None:
                self.company.noted(NOTE_PROGRESS, message, read)
            else:
                reply.arrive(message)
        elif isinstance(kind, NotificationPeek):
            self.company.noted(kind.method, message, read)
        else:
            self.company.asked(kind, message, read)
        return True

    def _hear_answer(self, id: RequestId, message: bytes, read: Read) -> bool:
        """Give a response to its request or the handshake; drop it if nothing waits for it. False
        if it is dropped and invalid."""
        was_asked = id in self.waiting.replies or id in self.waiting.given_up or self.waiting.greeting.awaits(id)
        if was_asked:
            self.line.answered(len(message))
        reply, greeting = self.waiting.answered(id), self.waiting.greeting
        if reply is not None:
            self.tasks.look(message, reply.keeper, asyncio.get_running_loop().time())
            reply.answer(message)
        elif not greeting.awaits(id):
            # A valid answer of no request in flight is late or stray, and is dropped. An invalid
            # one may be meant for another request.
            return response_in(read) is not None or self._hear_strange(look_at(message), message)
        elif not greeting.hear(read):
            # A result of `initialize` that accepts no session: the server's state is unknown.
            self.line.drop()
        return True

    def _hear_strange(self, strange: Strange, message: bytes) -> bool:
        """Handle what is not one valid message: each part of an array, or an answer whose request
        can be told.

        Returns whether it is an array of valid messages. False for everything else, also if a
        request failed on it.
        """
        if strange.parts:
            were_messages = [_is_one(part) and self.heard(part) for part in strange.parts]
            return all(were_messages)
        replies, greeting = self.waiting.replies, self.waiting.greeting
        waited_for = [id_ for id_ in strange.answered if id_ in replies or greeting.awaits(id_)]
        if len(waited_for) == 1:
            # The reader of this request decodes the answer, and so fails with what is wrong in it.
            self._hear_answer(waited_for[0], message, None)
        elif strange.says_unread:
            self.waiting.fail_the_only_one(failures.unread())
        return False


def _is_one(part: bytes) -> bool:
    return part[:1] == b"{"
