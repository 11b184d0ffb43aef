"""Sharing of a channel: `SharedBy` decides which session gets a message of no request.

Nothing in such a message names a session (U-STDIO-4). If a channel serves several callers, or the
server may still work for one who left, no session gets what may be another caller's. A question for
one caller goes to the only session that it can be for, else to the one with the newest request.

`DuplexTransport` creates one for each message channel that it takes first, and adds and removes its
sessions. It ends when the channel is lost. A session is "at work" here while a request of it is in
flight, or a server task of it runs.
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
    """A channel and its sessions; the `ChannelUsers` of the channel.

    `gone` is called once, when the channel is lost, before its sessions are told.
    """

    def __init__(self, line: MessageChannel, under_way: UnderWay, gone: Callable[[MessageChannel], None]) -> None:
        self.channel = Channel(line, self, under_way)
        self.sessions: dict[ChannelSession, None] = {}
        self._gone = gone

    def noted(self, method: str, message: bytes, read: Read) -> None:
        stream = self._stream_of(method, read)
        if stream is None:
            for session in self._who_hears(method, read):
                session.hear(message)
        elif method == NOTE_CANCELLED:
            # The server ends the stream of this request.
            self.channel.waiting.forget(stream)
            stream.close()
        else:
            stream.arrive(message)

    def asked(self, asks: RequestPeek, message: bytes, read: Read) -> None:
        """Give a request of the server to a session, or refuse it. Without sessions it is ignored:
        modern servers send no requests, and get no answer (U-STDIO-5)."""
        session = self._whom_to_ask(asks, read)
        if session is not None:
            session.answers(asks, message)
        elif self.sessions:
            self.channel.say(error_text(asks.id, NOBODY), Outgoing(verb="POST", headers={}))

    def lost(self, failure: UpstreamFailed) -> None:
        self._gone(self.channel.line)
        for session in tuple(self.sessions):
            session.lose(failure)

    def is_wanted(self, uri: str) -> bool:
        return any(uri in session.uris for session in self.sessions)

    # --- modern era ---------------------------------------------------------------------------------------------------

    def _stream_of(self, method: str, read: Read) -> ChannelReply | None:
        """Return the reply of the modern request that a notification belongs to (U-STDIO-5); None
        if there is none, or it is unknown."""
        replies, listening = self.channel.waiting.replies, self.channel.waiting.listening
        if method == NOTE_MESSAGE:
            # Logs belong to a request, but do not name it.
            others = [reply for id_, reply in replies.items() if id_ not in listening and not _is_of_session(reply)]
            is_the_only_one = len(others) == 1 and self._is_of_one() and not self._given_up()
            return others[0] if is_the_only_one else None
        if not listening and method in ERA_NOTICES:
            return None
        named = subscription_of(read)
        if named is None:
            is_the_only_one = len(listening) == 1 and not self.sessions and self._is_of_one()
            return replies[next(iter(listening))] if is_the_only_one else None
        # Compared as text, since some servers write the number as a string.
        return next((reply for id_, reply in replies.items() if str(id_) == str(named)), None)

    # --- possible receivers -------------------------------------------------------------------------------------------

    def _given_up(self) -> list[str]:
        """Return the sessions of abandoned requests that may still run; empty strings for modern
        ones."""
        return self.channel.waiting.given_up.sessions(asyncio.get_running_loop().time())

    def _waited_for(self) -> list[ReplyObserver]:
        """Return the owners of requests in flight and of running server tasks."""
        waiting = [reply.keeper for reply in self.channel.waiting.replies.values()]
        return waiting + self.channel.tasks.followers(asyncio.get_running_loop().time())

    def _is_of_one(self) -> bool:
        """Whether the server works for one caller only, abandoned requests included."""
        contexts = {each.context for each in (*self.sessions, *self._waited_for())}
        return len(contexts | self.channel.waiting.given_up.contexts) <= 1

    def _only_one(self) -> ChannelSession | None:
        """Return the only session that a message can be for. None if there are several, or the only
        one has ended."""
        at_work = {each.id for each in self._waited_for()} | set(self._given_up())
        if len(self.sessions) == 1:
            at_work |= {session.id for session in self.sessions}
        # Ids at work that are not found here are those of ended sessions, and of modern requests.
        found = [session for session in self.sessions if session.id in at_work]
        return found[0] if len(found) == len(at_work) == 1 else None

    # --- legacy era ---------------------------------------------------------------------------------------------------

    def _who_hears(self, method: str, read: Read) -> Iterable[ChannelSession]:
        """Return the sessions that get a notification of no request."""
        sessions = tuple(self.sessions)
        if method in _FOR_ALL:
            return sessions
        if self._is_of_one():
            # Logs go to the session that works, if that is known.
            only = self._only_one() if method == NOTE_MESSAGE else None
            return sessions if only is None else (only,)
        if method != NOTE_RESOURCE_UPDATED:
            return ()
        uri = uri_in(read)
        return [session for session in sessions if uri in session.uris]

    def _whom_to_ask(self, asks: RequestPeek, read: Read) -> ChannelSession | None:
        """Return the session that gets a request of the server; None if it must be refused."""
        if asks.method == PING:
            # Any session answers it alike.
            return next(iter(self.sessions), None)
        following = self._that_follows(task_in(read))
        if following is not None:
            return following
        return self._only_one() or self._newest_at_work() if self._is_of_one() else None

    def _newest_at_work(self) -> ChannelSession | None:
        """Return the session with the newest request; the newest of all if none has a request."""
        followed = self.channel.tasks.followers(asyncio.get_running_loop().time())
        waiting = (reply.keeper for reply in self.channel.waiting.replies.values())
        at_work = [each for each in (*followed, *waiting) if isinstance(each, ChannelSession) and each in self.sessions]
        return next(reversed(at_work or [*self.sessions]), None)

    def _that_follows(self, task: str | None) -> ChannelSession | None:
        """Return the session that waits for the result of the server's task, or polled it last."""
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
"""Notifications that every session may get. They say nothing of a caller, or a session ignores them
unless it knows what they name."""
