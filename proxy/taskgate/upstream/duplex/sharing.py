"""Receivers of the messages on a shared channel: `SharedChannel` decides who gets one of no request.

Nothing in such a message names a session (U-STDIO-4). The rules, in this order:

1. A notification on the stream of a modern request goes to that request.
2. Some notifications say nothing of a caller (`_FOR_ALL`): every session gets them. Any session
   answers a ping. A request about a server task goes to the session that follows the task.
3. If the server works for one caller only, also counting abandoned requests, other messages go to
   sessions of that caller. All sessions get a notification. A request of the server goes to the
   only session that it can be for, else to the one with the newest request.
4. Else no session gets what may be another caller's: notifications are dropped, except updates of
   a resource that a session subscribes to. Requests of the server are refused.

`ChannelTransport` creates one when it first takes a message channel, and adds and removes its
sessions. It ends when the channel is lost. A session is *at work* here while a request of it is in
flight or abandoned, or a server task of it runs. The `owner` of a request is the session or modern
request that sent the request.
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
from taskgate.upstream.duplex.dispatcher import BackgroundSends, Dispatcher
from taskgate.upstream.duplex.peek import Read, RequestPeek, subscription_of, task_in, uri_in
from taskgate.upstream.duplex.pending import PendingRequest, RequestOwner
from taskgate.upstream.duplex.session import ChannelSession

NOBODY: Final = dump({"code": INTERNAL_ERROR, "message": "The request cannot be matched to a session"})

NOTE_RESOURCE_UPDATED: Final = "notifications/resources/updated"


class SharedChannel:
    """The `MessageRouter` of one channel: the sessions that share it, by the order of their
    creation.

    - `on_notification`: gives a notification to its receivers, or drops it.
    - `on_request`: gives a request of the server to one session, or refuses it.
    - `on_closed`: ends every session, because the channel is closed.
    - `is_wanted`: whether any session subscribes to a resource.

    `gone` is called once, when the channel is lost, before its sessions are told.
    """

    def __init__(
        self, channel: MessageChannel, background: BackgroundSends, gone: Callable[[MessageChannel], None]
    ) -> None:
        self.dispatcher = Dispatcher(channel, self, background)
        self.sessions: dict[ChannelSession, None] = {}
        self._gone = gone

    def on_notification(self, method: str, message: bytes, read: Read) -> None:
        stream = self._stream_of(method, read)
        if stream is None:
            for session in self._receivers_of(method, read):
                session.on_notification(message)
        elif method == NOTE_CANCELLED:
            # By this notification the server ends the stream of a modern request.
            self.dispatcher.pending.forget(stream)
            stream.close()
        else:
            stream.arrive(message)

    def on_request(self, asks: RequestPeek, message: bytes, read: Read) -> None:
        """Give a request of the server to a session, or refuse it. Without sessions it is ignored:
        modern servers send no requests, and get no answer (U-STDIO-5)."""
        session = self._session_to_ask(asks, read)
        if session is not None:
            session.on_request(asks, message)
        elif self.sessions:
            self.dispatcher.send_in_background(error_text(asks.id, NOBODY), Outgoing(verb="POST", headers={}))

    def on_closed(self, failure: UpstreamFailed) -> None:
        self._gone(self.dispatcher.channel)
        for session in tuple(self.sessions):
            session.on_lost(failure)

    def is_wanted(self, uri: str) -> bool:
        return any(uri in session.uris for session in self.sessions)

    # --- modern era ---------------------------------------------------------------------------------------------------

    def _stream_of(self, method: str, read: Read) -> PendingRequest | None:
        """Return the modern request on whose stream a notification belongs (U-STDIO-5).

        None if it is of no stream, or of an unknown one.
        """
        requests, listening = self.dispatcher.pending.requests, self.dispatcher.pending.listening
        if method == NOTE_MESSAGE:
            # A log message belongs to a request, but does not name it. Which one is clear only if one
            # modern request alone is in flight, and no abandoned one may still log.
            others = [
                request for id_, request in requests.items() if id_ not in listening and not _is_of_session(request)
            ]
            is_the_only_one = len(others) == 1 and self._is_of_one() and not self._abandoned()
            return others[0] if is_the_only_one else None
        # Without subscriptions, only notifications of extensions can name a stream.
        if not listening and method in ERA_NOTICES:
            return None
        named = subscription_of(read)
        if named is None:
            # It can only be of the one subscription that is open.
            is_the_only_one = len(listening) == 1 and not self.sessions and self._is_of_one()
            return requests[next(iter(listening))] if is_the_only_one else None
        # Compared as text, since some servers write the number as a string. All requests are
        # searched: extensions name streams of other requests too.
        return next((request for id_, request in requests.items() if str(id_) == str(named)), None)

    # --- possible receivers -------------------------------------------------------------------------------------------

    def _abandoned(self) -> list[str]:
        """Return the session id of each abandoned request that may still run; an empty string for
        one of a modern request."""
        return self.dispatcher.pending.abandoned.sessions(asyncio.get_running_loop().time())

    def _waited_for(self) -> list[RequestOwner]:
        """Return the owners of requests in flight, and the last pollers of running server
        tasks."""
        waiting = [request.owner for request in self.dispatcher.pending.requests.values()]
        return waiting + self.dispatcher.tasks.followers(asyncio.get_running_loop().time())

    def _is_of_one(self) -> bool:
        """Whether everything on the channel is of one caller: sessions, requests, server tasks, and
        requests that were abandoned."""
        contexts = {each.context for each in (*self.sessions, *self._waited_for())}
        return len(contexts | self.dispatcher.pending.abandoned.contexts) <= 1

    def _only_one(self) -> ChannelSession | None:
        """Return the only session that a message can be for: the one at work, if no other work
        runs. None if that is not clear, or that session has ended.

        The only open session counts, even if it is not at work.
        """
        at_work = {each.id for each in self._waited_for()} | set(self._abandoned())
        if len(self.sessions) == 1:
            at_work |= {session.id for session in self.sessions}
        # An id at work without an open session is of an ended session or a modern request. The
        # message can be theirs, so then no session is the only one.
        found = [session for session in self.sessions if session.id in at_work]
        return found[0] if len(found) == len(at_work) == 1 else None

    # --- legacy era ---------------------------------------------------------------------------------------------------

    def _receivers_of(self, method: str, read: Read) -> Iterable[ChannelSession]:
        """Return the sessions that get a notification of no stream; none if it is to be
        dropped."""
        sessions = tuple(self.sessions)
        if method in _FOR_ALL:
            return sessions
        if self._is_of_one():
            # A log message is of a request: if one session alone can have it, the others need not
            # get it.
            only = self._only_one() if method == NOTE_MESSAGE else None
            return sessions if only is None else (only,)
        if method != NOTE_RESOURCE_UPDATED:
            return ()
        uri = uri_in(read)
        return [session for session in sessions if uri in session.uris]

    def _session_to_ask(self, asks: RequestPeek, read: Read) -> ChannelSession | None:
        """Return the session that gets a request of the server; None if it must be refused."""
        if asks.method == PING:
            # Any session answers a ping alike.
            return next(iter(self.sessions), None)
        # Allowed with several callers too: the task names its session.
        following = self._that_follows(task_in(read))
        if following is not None:
            return following
        return self._only_one() or self._newest_at_work() if self._is_of_one() else None

    def _newest_at_work(self) -> ChannelSession | None:
        """Return the session with the newest request in flight, else the newest that polled a
        running server task, else the newest of all. None without sessions."""
        followed = self.dispatcher.tasks.followers(asyncio.get_running_loop().time())
        waiting = (request.owner for request in self.dispatcher.pending.requests.values())
        at_work = [each for each in (*followed, *waiting) if isinstance(each, ChannelSession) and each in self.sessions]
        return next(reversed(at_work or [*self.sessions]), None)

    def _that_follows(self, task: str | None) -> ChannelSession | None:
        """Return the session that follows a server task: it waits for the result, or polled the
        task last. None if no open session does."""
        if task is None:
            return None
        waiting = (request.owner for request in self.dispatcher.pending.requests.values() if request.about == task)
        who = next(waiting, None) or self.dispatcher.tasks.of(task)
        return who if isinstance(who, ChannelSession) and who in self.sessions else None


def _is_of_session(request: PendingRequest) -> bool:
    return isinstance(request.owner, ChannelSession)


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
