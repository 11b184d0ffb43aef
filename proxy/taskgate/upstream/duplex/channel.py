"""A line with all that goes over it: requests in flight, and the sessions to which everything else is said.

What must not live here: what a session is (`session`), whose a message is (`words`), and who has lines (`transport`).
What holds: what a server says is kept for whoever it is for, and where they read slowly the line is read no further.
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
from taskgate.system.offload import LARGE, aside
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
"""Bytes that wait for their readers before the line is read no further; it is read on below a quarter of them."""

FAREWELL: Final = timedelta(seconds=2)
"""How long the server may take to take what nobody waits for."""

TOO_LARGE: Final = dump({"code": INTERNAL_ERROR, "message": "The request is too large"})

_GONE: Final = frozenset({400, 404})
"""Statuses by which a server says that it knows nothing of the line any more."""


class ChannelUsers(Protocol):
    """To whom is said what belongs to no request. Nothing of it raises or waits."""

    def noted(self, method: str, message: bytes, read: Read) -> None:
        """A notification; `read` is what to look at where it matters what stands in it."""
        ...

    def asked(self, asks: RequestPeek, message: bytes, read: Read) -> None:
        """A request of the server."""
        ...

    def lost(self, failure: UpstreamFailed) -> None:
        """The line is no more."""
        ...

    def is_wanted(self, uri: str) -> bool:
        """Whether anybody wants to hear of that resource."""
        ...


class Channel:
    """One line; see Ears. `company` is who hears what belongs to no request; what nobody waits for is `under_way`."""

    def __init__(self, line: MessageChannel, company: ChannelUsers, under_way: UnderWay) -> None:
        self.line = line
        self.waiting = RequestsInFlight()
        self.tasks = RunningTasks()
        self.company = company
        self._under_way = under_way
        self._kept = 0
        self._is_paused = False

    # What its line asks and tells; see Ears.

    @property
    def in_flight(self) -> int:
        """How many requests wait for their answers, and tasks are at work; see Ears."""
        return len(self.waiting) + self.tasks.count(asyncio.get_running_loop().time())

    def heard(self, message: bytes) -> bool:
        """Hand a message to whom it is for; see Ears."""
        kind = kind_of(message)
        return self._hear_strange(look_at(message), message) if kind is None else self._hear(kind, message, message)

    async def heard_large(self, message: bytes) -> bool:
        """The same of a large message, at which another thread looks; see Ears."""
        kind = await aside(partial(kind_of, message))
        if is_bounded(kind):
            # Its ends did not tell that, or it would not have come here.
            return True
        is_waited_for = isinstance(kind, Answers) and kind.id in self.waiting.replies
        # Whoever waits for an answer reads it.
        read = None if kind is None or is_waited_for else await aside(partial(message_in, message))
        if kind is not None and (read is not None or is_waited_for or not isinstance(kind, Answers)):
            return self._hear(kind, message, read)
        strange = await aside(partial(look_at, message))
        if not strange.parts:
            return self._hear_strange(strange, message)
        were_messages = []
        for part in strange.parts:
            hears = _is_one(part) and (await self.heard_large(part) if len(part) > LARGE else self.heard(part))
            were_messages.append(hears)
        return all(were_messages)

    def cut(self, ends: bytes) -> bool:
        """Fail what it answers, or can answer; see Ears. What a server asks in too many words it is told is refused."""
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
        """Fail what is in flight; see Ears."""
        if failure.reason == UpstreamReason.CLOSED.value:
            failure = failures.Severed(str(failure))
        self.waiting.lost(failure)
        self.company.lost(failure)

    # What is said over it.

    async def ask(self, outgoing: Outgoing, reply: ChannelReply, *, until: float | None, listens: bool = False) -> None:
        """Send a request, and wait for the first of its answer. Raises UpstreamFailed; then nothing more is heard."""
        self.waiting.replies[reply.id] = reply
        if listens:
            self.waiting.listening.add(reply.id)
        await self._carry(outgoing, reply, until)

    async def greet(self, outgoing: Outgoing, reply: ChannelReply, *, until: float | None) -> None:
        """Have the welcome of the line, for which its server is greeted only once. Raises UpstreamFailed.

        A line whose server does not answer in time is of no use to anybody, and dropped. In time is what one who waits
        has, whole; where nobody else does, it is what they had, which may be less: starting a program takes of it.
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
            # That somebody's time is over says nothing to others who wait.
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
        """Send what has no answer, for the status that it was taken with. Raises UpstreamFailed."""
        status = await self.line.send(outgoing)
        self._see(status)
        return status

    def say(self, message: str, like: Outgoing) -> None:
        """The same in the background, with the headers of the request that it belongs to; it need not arrive."""
        body = message.encode()
        outgoing = Outgoing(verb="POST", headers=like.headers, body=body, first_byte=FAREWELL, follows=True)
        self._under_way.begin(self._say(outgoing))

    def keep(self, size: int) -> None:
        """So much more waits for its reader."""
        self._kept += size
        if self._kept > KEPT_MOST and not self._is_paused:
            self._is_paused = True
            self.line.pause()

    def read(self, size: int) -> None:
        """So much does not wait any more."""
        self._kept -= size
        if self._is_paused and self._kept < KEPT_MOST // 4:
            self._is_paused = False
            self.line.resume()

    async def _carry(self, outgoing: Outgoing, reply: ChannelReply, until: float | None) -> None:
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
        # The answer may come before the server has said that it took the question.
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
        was_asked = id in self.waiting.replies or id in self.waiting.given_up or self.waiting.greeting.awaits(id)
        if was_asked:
            self.line.answered(len(message))
        reply, greeting = self.waiting.answered(id), self.waiting.greeting
        if reply is not None:
            self.tasks.look(message, reply.keeper, asyncio.get_running_loop().time())
            reply.answer(message)
        elif not greeting.awaits(id):
            # Nobody waits for it any more, or it repeats its id, and was meant for somebody else.
            return response_in(read) is not None or self._hear_strange(look_at(message), message)
        elif not greeting.hear(read):
            self.line.drop()
        return True

    def _hear_strange(self, strange: Strange, message: bytes) -> bool:
        """Hear what is not one message: part by part, or for whom it can be told. Whether all of it were messages."""
        if strange.parts:
            were_messages = [_is_one(part) and self.heard(part) for part in strange.parts]
            return all(were_messages)
        replies, greeting = self.waiting.replies, self.waiting.greeting
        waited_for = [id_ for id_ in strange.answered if id_ in replies or greeting.awaits(id_)]
        if len(waited_for) == 1:
            # Its reader tells whoever waits what is wrong with it.
            self._hear_answer(waited_for[0], message, None)
        elif strange.says_unread:
            self.waiting.fail_the_only_one(failures.unread())
        return False


def _is_one(part: bytes) -> bool:
    return part[:1] == b"{"
