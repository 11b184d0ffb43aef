"""One message channel with its requests: `Channel`, the listener (`Ears`) of a `MessageChannel`.

It matches answers and progress to waiting requests (`waiting`) and gives every other message to its
`ChannelUsers` (`company.SharedBy`). Messages are stored for their readers. If those are slow,
reading from the channel pauses.
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
    """Receivers of messages that belong to no request. No method raises or waits."""

    def noted(self, method: str, message: bytes, read: Read) -> None:
        """Receive a notification; `read` is its decoded form where the content matters."""
        ...

    def asked(self, asks: RequestPeek, message: bytes, read: Read) -> None:
        """Receive a request of the server."""
        ...

    def lost(self, failure: UpstreamFailed) -> None:
        """The channel is closed."""
        ...

    def is_wanted(self, uri: str) -> bool:
        """Whether any session subscribes to that resource."""
        ...


class Channel:
    """One channel in use. `company` gets messages of no request; `under_way` runs background sends."""

    def __init__(self, line: MessageChannel, company: ChannelUsers, under_way: UnderWay) -> None:
        self.line = line
        self.waiting = RequestsInFlight()
        self.tasks = RunningTasks()
        self.company = company
        self._under_way = under_way
        self._kept = 0
        self._is_paused = False

    # --- the listener of its message channel --------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """How many requests wait for answers, and server tasks run."""
        return len(self.waiting) + self.tasks.count(asyncio.get_running_loop().time())

    def heard(self, message: bytes) -> bool:
        """Give a message to its receiver."""
        kind = kind_of(message)
        return self._hear_strange(look_at(message), message) if kind is None else self._hear(kind, message, message)

    async def heard_large(self, message: bytes) -> bool:
        """Give a large message to its receiver; it is read on another thread."""
        kind = await in_thread(partial(kind_of, message))
        if is_bounded(kind):
            # A notification above the limit, whose ends did not tell its kind.
            return True
        is_waited_for = isinstance(kind, Answers) and kind.id in self.waiting.replies
        # An answer is decoded by its reader.
        read = None if kind is None or is_waited_for else await in_thread(partial(message_in, message))
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
        """Fail the request that the message answers or may answer. A request of the server is
        refused."""
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
        """Fail all requests in flight."""
        if failure.reason == UpstreamReason.CLOSED.value:
            failure = failures.Severed(str(failure))
        self.waiting.lost(failure)
        self.company.lost(failure)

    # --- sending ------------------------------------------------------------------------------------------------------

    async def ask(self, outgoing: Outgoing, reply: ChannelReply, *, until: float | None, listens: bool = False) -> None:
        """Send a request, and wait for the start of its answer. Raises UpstreamFailed; then nothing
        follows."""
        self.waiting.replies[reply.id] = reply
        if listens:
            self.waiting.listening.add(reply.id)
        await self._carry(outgoing, reply, until)

    async def greet(self, outgoing: Outgoing, reply: ChannelReply, *, until: float | None) -> None:
        """Get the answer to `initialize`, which is sent once per channel. Raises UpstreamFailed.

        A channel whose server does not answer in time is useless and is dropped. The time is the
        timeout of a waiter who has all of it. If there is no other waiter, it is what this one had
        left, which may be less, since starting a program takes some of it.
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
            # The timeout of one waiter says nothing about the others.
            if failure.reason != UpstreamReason.TIMEOUT.value and reply in greeting.waiting:
                greeting.fails(failure)
            raise
        finally:
            greeting.leaves(reply)
            if outgoing.first_byte is not None and until is not None:
                patience, now = outgoing.first_byte.total_seconds(), loop.time()
                if greeting.is_hopeless(patience, now, left=until - now):
                    self.line.drop()

    async def tell(self, outgoing: Outgoing) -> int:
        """Send a message without an answer; return the status of its acceptance. Raises
        UpstreamFailed."""
        status = await self.line.send(outgoing)
        self._see(status)
        return status

    def say(self, message: str, like: Outgoing) -> None:
        """Send a message in the background, with the headers of the request `like`; delivery is not
        ensured."""
        body = message.encode()
        outgoing = Outgoing(verb="POST", headers=like.headers, body=body, first_byte=FAREWELL, follows=True)
        self._under_way.begin(self._say(outgoing))

    def keep(self, size: int) -> None:
        """Count bytes that wait for a reader."""
        self._kept += size
        if self._kept > KEPT_MOST and not self._is_paused:
            self._is_paused = True
            self.line.pause()

    def read(self, size: int) -> None:
        """Count bytes that were read."""
        self._kept -= size
        if self._is_paused and self._kept < KEPT_MOST // 4:
            self._is_paused = False
            self.line.resume()

    async def _carry(self, outgoing: Outgoing, reply: ChannelReply, until: float | None) -> None:
        """Send a request and wait for the start of its answer; on an acknowledging channel both at
        once."""
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
        try:
            self._judge(await self.line.send(outgoing), reply)
        except UpstreamFailed as failure:
            reply.fail(failure)

    async def _say(self, outgoing: Outgoing) -> None:
        with suppress(UpstreamFailed):
            await self.tell(outgoing)

    def _judge(self, status: int, reply: ChannelReply) -> None:
        if not 200 <= status < 300:
            reply.refuse(status)
            self._see(status)

    def _see(self, status: int) -> None:
        if status in _GONE:
            self.line.drop()

    def _hear(self, kind: Kind, message: bytes, read: Read) -> bool:
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
        """Give a response to its request or the handshake; False if it is no valid response."""
        was_asked = id in self.waiting.replies or id in self.waiting.given_up or self.waiting.greeting.awaits(id)
        if was_asked:
            self.line.answered(len(message))
        reply, greeting = self.waiting.answered(id), self.waiting.greeting
        if reply is not None:
            self.tasks.look(message, reply.keeper, asyncio.get_running_loop().time())
            reply.answer(message)
        elif not greeting.awaits(id):
            # Abandoned, or a repeated id that was meant for another request.
            return response_in(read) is not None or self._hear_strange(look_at(message), message)
        elif not greeting.hear(read):
            self.line.drop()
        return True

    def _hear_strange(self, strange: Strange, message: bytes) -> bool:
        """Handle what is not one message: each part of an array, or an answer to a request that can
        be told.

        Returns whether all of it were messages.
        """
        if strange.parts:
            were_messages = [_is_one(part) and self.heard(part) for part in strange.parts]
            return all(were_messages)
        replies, greeting = self.waiting.replies, self.waiting.greeting
        waited_for = [id_ for id_ in strange.answered if id_ in replies or greeting.awaits(id_)]
        if len(waited_for) == 1:
            # Its reader reports what is wrong with it.
            self._hear_answer(waited_for[0], message, None)
        elif strange.says_unread:
            self.waiting.fail_the_only_one(failures.unread())
        return False


def _is_one(part: bytes) -> bool:
    return part[:1] == b"{"
