"""Resumption of calls that another process made to a legacy server: `AdoptedSessions`, `CallResumption`.

After a takeover, each call comes here as a `Resumed`, with the resume point that the other process
stored. It is resumed in the server session in which it was made. That session is adopted: used
without a new handshake. `AdoptedSessions`, one per upstream, shares one connection among all calls
of one auth context in one server session. `CallResumption`, one per `LegacySession`, takes such a
connection for its first resumed call, and gives it back when the `LegacySession` is closed.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from taskgate.errors import UpstreamFailed
from taskgate.protocol.messages import Response
from taskgate.system.single_flight import SingleFlight
from taskgate.upstream import failures
from taskgate.upstream.calls import CallListener, Resumed, ResumePoint, RunningCall, UpstreamCall
from taskgate.upstream.context import UpstreamContext
from taskgate.upstream.legacy.connection import SessionConnection


class _Key(NamedTuple):
    """Key of an adopted session: auth context of its calls, and session id at the server."""

    context: str
    session: str


class AdoptedSession:
    """One adopted server session, with its connection `connection`. Its users are `LegacySession`s."""

    __slots__ = ("_adopted_sessions", "_key", "_users", "connection")

    def __init__(self, connection: SessionConnection, adopted_sessions: "AdoptedSessions", key: _Key | None) -> None:
        self.connection = connection
        self._adopted_sessions = adopted_sessions
        self._key = key
        self._users = 0

    def use(self) -> None:
        """Count one more user. It calls `give_back` once, unless the server lost the session."""
        self._users += 1

    def forget(self) -> None:
        """Give it to no further user: it has ended, or the server no longer knows the session."""
        if self._key is not None:
            self._adopted_sessions.forget(self._key, self)

    async def give_back(self, resumed: Resumed) -> None:
        """Count one user less; close the connection after the last one.

        The session is ended at the server too, but not if another process may have a call in it.
        """
        self._users -= 1
        if self._users:
            return
        self.forget()
        if not await resumed.is_last():
            self.connection.conversation.leave()
        await self.connection.end()


class AdoptedSessions:
    """All adopted sessions with one server."""

    def __init__(self) -> None:
        self._shared: dict[_Key, AdoptedSession] = {}

    def take(self, resumed: Resumed, adopt: Callable[[ResumePoint], SessionConnection]) -> AdoptedSession:
        """Return the adopted session of a resume point, with one more user.

        `adopt` makes the connection if the auth context has none in that session yet. It may raise
        Gone.
        """
        session = resumed.resume_point.session
        # Without a session id there is nothing to share.
        key = None if session is None else _Key(resumed.context, session)
        found = None if key is None else self._shared.get(key)
        if found is None:
            found = AdoptedSession(adopt(resumed.resume_point), self, key)
            if key is not None:
                self._shared[key] = found
        found.use()
        return found

    def forget(self, key: _Key, adopted: AdoptedSession) -> None:
        """Remove the entry; later callers do not find it."""
        if self._shared.get(key) is adopted:
            del self._shared[key]


class CallResumption:
    """Resumption of calls in one `LegacySession`.

    `connection` holds the current connection of the `LegacySession`, adopted or opened by a handshake.
    `adopt` makes a connection from a resume point.
    """

    def __init__(
        self,
        upstream_context: UpstreamContext,
        adopted_sessions: AdoptedSessions,
        *,
        connection: SingleFlight[SessionConnection],
        adopt: Callable[[ResumePoint], SessionConnection],
    ) -> None:
        self._upstream_context = upstream_context
        self._adopted_sessions = adopted_sessions
        self._connection = connection
        self._adopt = adopt
        self._adopted: AdoptedSession | None = None
        self._resumed: Resumed | None = None

    async def go_on(self, call: UpstreamCall, listener: CallListener, resumed: Resumed) -> Response:
        """Resume a call of another process and return its answer.

        `call` is the call as this process would send it. It is not sent: its bounds and principal
        are used. Raises UpstreamFailed, always as `dispatched`, because the other
        process sent the call. Gone: the server no longer knows the call.
        """
        try:
            return await self._resume(call, listener, self.stand(resumed), resumed)
        except UpstreamFailed as failure:
            raise failures.sent(failure) from None

    def stand(self, resumed: Resumed) -> SessionConnection:
        """Return a connection to the server session in which the call was made.

        Without a connection, the `LegacySession` gets an adopted one, and uses it for all requests.
        Raises Gone if it has a connection to another server session, or is opening one.
        """
        if self._connection.is_empty:
            self._adopted, self._resumed = self._adopted_sessions.take(resumed, self._adopt), resumed
            self._connection.put(self._adopted.connection)
        connection = self._connection.value
        if connection is None or connection.conversation.session != resumed.resume_point.session:
            raise failures.Gone
        return connection

    def lost(self) -> None:
        """Forget the adopted session, which the server no longer knows, without giving it back."""
        adopted, self._adopted = self._adopted, None
        if adopted is not None:
            adopted.forget()

    async def gave_back(self, connection: SessionConnection) -> bool:
        """Give the connection back if it is the adopted one, and return whether it is.

        If not, the caller has to end it.
        """
        adopted, resumed, self._adopted = self._adopted, self._resumed, None
        if adopted is None or resumed is None or adopted.connection is not connection:
            return False
        await adopted.give_back(resumed)
        return True

    async def _resume(
        self, call: UpstreamCall, listener: CallListener, connection: SessionConnection, resumed: Resumed
    ) -> Response:
        """Reopen the stream of the call after its last event, and return the answer."""
        resume_point = resumed.resume_point
        # Without both, the stream with the answer cannot be reopened.
        if resume_point.event is None or resume_point.request is None:
            raise failures.Gone
        assert call.bounds is not None, "the session has set its timeouts"
        pending = RunningCall(resume_point.request, listener, call.bounds, principal=call.principal)
        pending.has_token = True
        pending.is_lasting = True
        began = asyncio.get_running_loop().time()
        error: str | None = "cancelled"
        try:
            response = await connection.conversation.ask(pending, resumed)
            error = None if response.error is None else str(response.error_code)
        except UpstreamFailed as failure:
            error = failure.reason
            raise
        finally:
            seconds = asyncio.get_running_loop().time() - began
            self._upstream_context.observer.answered(call.method, seconds, error, False)
        if self._upstream_context.dialect.url_questions(response, connection.conversation.host):
            # It is unknown whether the call was sent again after its host had visited the URL.
            raise failures.Gone
        return response
