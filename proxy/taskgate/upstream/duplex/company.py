"""Who share a line, and to whom of them a server says what belongs to no request of theirs.

Nothing on a line says that (U-STDIO-4). What must not live here: what becomes of it there. What holds: where a line
serves several callers, or may still be at work for one who left, nobody hears what may be said to another; and what
one caller is asked is asked of the only session whose it can be, else of the one with the newest request.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from taskgate.errors import UpstreamFailed
from taskgate.jsontext.edits import dump
from taskgate.protocol.jsonrpc import error_text
from taskgate.protocol.vocabulary import (
    ERA_NOTICES,
    INTERNAL_ERROR,
    NOTE_CANCELLED,
    NOTE_MESSAGE,
    NOTE_PROGRESS,
    NOTE_TASK_STATUS,
    NOTE_TOOLS_CHANGED,
    PING,
)
from taskgate.upstream.base import Outgoing
from taskgate.upstream.duplex.base import MessageChannel
from taskgate.upstream.duplex.channel import Channel
from taskgate.upstream.duplex.contents import Read, subscription_of, task_in, uri_in
from taskgate.upstream.duplex.replies import ChannelReply, ReplyObserver
from taskgate.upstream.duplex.session import ChannelSession
from taskgate.upstream.duplex.under_way import UnderWay
from taskgate.upstream.duplex.words import RequestPeek

NOBODY: Final = dump({"code": INTERNAL_ERROR, "message": "The request cannot be matched to a session"})

NOTE_RESOURCE_UPDATED: Final = "notifications/resources/updated"


class SharedBy:
    """A line and the sessions on it; see ChannelUsers. `gone` is told when the line is lost."""

    def __init__(self, line: MessageChannel, under_way: UnderWay, gone: Callable[[MessageChannel], None]) -> None:
        self.channel = Channel(line, self, under_way)
        self.sessions: dict[ChannelSession, None] = {}
        self._gone = gone

    def noted(self, method: str, message: bytes, read: Read) -> None:
        """See ChannelUsers."""
        stream = self._stream_of(method, read)
        if stream is None:
            for session in self._who_hears(method, read):
                session.hear(message)
        elif method == NOTE_CANCELLED:
            self.channel.waiting.forget(stream)
            stream.close()
        else:
            stream.arrive(message)

    def asked(self, asks: RequestPeek, message: bytes, read: Read) -> None:
        """See ChannelUsers. In the modern era servers ask nothing, and get no answer."""
        session = self._whom_to_ask(asks, read)
        if session is not None:
            session.answers(asks, message)
        elif self.sessions:
            self.channel.say(error_text(asks.id, NOBODY), Outgoing(verb="POST", headers={}))

    def lost(self, failure: UpstreamFailed) -> None:
        """See ChannelUsers."""
        self._gone(self.channel.line)
        for session in tuple(self.sessions):
            session.lose(failure)

    def is_wanted(self, uri: str) -> bool:
        """See ChannelUsers."""
        return any(uri in session.uris for session in self.sessions)

    # --- of the modern era

    def _stream_of(self, method: str, read: Read) -> ChannelReply | None:
        """The request of the modern era that a notification belongs to (U-STDIO-5)."""
        replies, listening = self.channel.waiting.replies, self.channel.waiting.listening
        if method == NOTE_MESSAGE:
            # Only a request has a log there, and nothing says which.
            others = [reply for id_, reply in replies.items() if id_ not in listening and not _is_of_session(reply)]
            is_the_only_one = len(others) == 1 and self._is_of_one() and not self._given_up()
            return others[0] if is_the_only_one else None
        if not listening and method in ERA_NOTICES:
            return None
        named = subscription_of(read)
        if named is None:
            is_the_only_one = len(listening) == 1 and not self.sessions and self._is_of_one()
            return replies[next(iter(listening))] if is_the_only_one else None
        # Some servers write the number as a text.
        return next((reply for id_, reply in replies.items() if str(id_) == str(named)), None)

    # --- whose it can be

    def _given_up(self) -> list[str]:
        return self.channel.waiting.given_up.sessions(asyncio.get_running_loop().time())

    def _waited_for(self) -> list[ReplyObserver]:
        """Those who wait for an answer, or follow a task of the server."""
        waiting = [reply.keeper for reply in self.channel.waiting.replies.values()]
        return waiting + self.channel.tasks.followers(asyncio.get_running_loop().time())

    def _is_of_one(self) -> bool:
        """Whether it is one caller alone for whom the server does anything."""
        contexts = {each.context for each in (*self.sessions, *self._waited_for())}
        return len(contexts | self.channel.waiting.given_up.contexts) <= 1

    def _only_one(self) -> ChannelSession | None:
        """The session that what the server says must be of; None where it can be of several, or of one that is over."""
        at_work = {each.id for each in self._waited_for()} | set(self._given_up())
        if len(self.sessions) == 1:
            at_work |= {session.id for session in self.sessions}
        found = [session for session in self.sessions if session.id in at_work]
        return found[0] if len(found) == len(at_work) == 1 else None

    # --- of the legacy era

    def _who_hears(self, method: str, read: Read) -> Iterable[ChannelSession]:
        sessions = tuple(self.sessions)
        if method in _FOR_ALL:
            return sessions
        if self._is_of_one():
            only = self._only_one() if method == NOTE_MESSAGE else None
            return sessions if only is None else (only,)
        if method != NOTE_RESOURCE_UPDATED:
            return ()
        uri = uri_in(read)
        return [session for session in sessions if uri in session.uris]

    def _whom_to_ask(self, asks: RequestPeek, read: Read) -> ChannelSession | None:
        if asks.method == PING:
            return next(iter(self.sessions), None)
        following = self._that_follows(task_in(read))
        if following is not None:
            return following
        return self._only_one() or self._newest_at_work() if self._is_of_one() else None

    def _newest_at_work(self) -> ChannelSession | None:
        """The session with the newest request; the newest of all where none waits for anything."""
        followed = self.channel.tasks.followers(asyncio.get_running_loop().time())
        waiting = (reply.keeper for reply in self.channel.waiting.replies.values())
        at_work = [each for each in (*followed, *waiting) if isinstance(each, ChannelSession) and each in self.sessions]
        return next(reversed(at_work or [*self.sessions]), None)

    def _that_follows(self, task: str | None) -> ChannelSession | None:
        """The session that waits for the outcome of the server's task, or looked at it last."""
        if task is None:
            return None
        waiting = (reply.keeper for reply in self.channel.waiting.replies.values() if reply.about == task)
        who = next(waiting, None) or self.channel.tasks.of(task)
        return who if isinstance(who, ChannelSession) and who in self.sessions else None


def _is_of_session(reply: ChannelReply) -> bool:
    return isinstance(reply.keeper, ChannelSession)


_FOR_ALL: Final = frozenset(
    {
        NOTE_CANCELLED,
        NOTE_PROGRESS,
        NOTE_TASK_STATUS,
        NOTE_TOOLS_CHANGED,
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
    }
)
"""What is of no caller, or is passed over by every session that does not know what it names; no host hears of that."""
