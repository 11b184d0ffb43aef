"""An open connection to a legacy server: `SessionConnection`, and what opens it, `ConnectionOpener`.

A connection is a conversation with its GET stream and pings. `ConnectionOpener.begin` makes the
`Handshake`, then opens the GET stream, and restores log level and subscriptions. `adopt` makes a
connection to a server session that another process opened, without a handshake. `LegacySession` has
one connection at a time. It opens one on first use and after each loss, and closes it with `end`, or
with `drop` if the server ended the session. A connection also sends requests of the gateway's own.
They are pings, to see whether the session still exists, and those that set or restore log level and
subscriptions of the host.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from enum import Enum, auto
from functools import partial
from typing import Final, NamedTuple

from taskgate.clock import Clock
from taskgate.domain.versions import NEWEST_LEGACY, Peer, find_revision
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.protocol.discovery import ServerDescription
from taskgate.protocol.messages import Params, Response, value_of
from taskgate.protocol.vocabulary import (
    INITIALIZE,
    LOG_LEVELS,
    LOGGING_SET_LEVEL,
    MODERN_ERRORS,
    PING,
    RESOURCES_SUBSCRIBE,
)
from taskgate.system.background import cancel_and_wait
from taskgate.system.single_flight import Abandoned, SingleFlight
from taskgate.upstream import failures
from taskgate.upstream.calls import Principal, ResumePoint, RunningCall, briefly
from taskgate.upstream.context import Lasting, UpstreamContext, level_params, uri_params
from taskgate.upstream.failures import Unwelcome
from taskgate.upstream.legacy.channel_exchanges import ChannelStream
from taskgate.upstream.legacy.conversation import Audience, Conversation
from taskgate.upstream.legacy.event_streams import ServerStream
from taskgate.upstream.settings import TransportKind


class Handshake:
    """One handshake; `call` is the `RunningCall` under which the request is sent."""

    __slots__ = ("_answered", "_upstream_context", "call")

    def __init__(self, upstream_context: UpstreamContext) -> None:
        self._upstream_context = upstream_context
        # The revision that the answer named, for the log: `read` may refuse it.
        self._answered = ""
        self.call = RunningCall(next(upstream_context.ids), None, briefly(upstream_context.settings.first_byte))
        self.call.runs_nothing = True

    def asks(self, host: Peer | None) -> str:
        """Return the text of the `initialize` request, with the capabilities of `host`; none if it
        is None."""
        upstream_context = self._upstream_context
        return upstream_context.dialect.handshake(
            self.call.id, host, upstream_context.settings.revision or NEWEST_LEGACY
        )

    def read(self, response: Response) -> ServerDescription:
        """Return the server's identity from the answer. Raises UpstreamFailed for an answer that
        is invalid or names an unknown revision.

        For a JSON-RPC error that is an `Unwelcome`: the server may belong to another era.
        """
        if response.error is not None:
            raise failures.no_session(failures.said_in(response))
        named = (response.result.members or {}) if response.result is not None else {}
        revision = value_of(named, "protocolVersion")
        self._answered = f"revision {revision}" if isinstance(revision, str) else ""
        return self._upstream_context.dialect.read_welcome(response)

    def failed(self, failure: UpstreamFailed) -> None:
        """Log that the handshake failed, but only if the server may have seen some of it.

        A refusal (`Unwelcome`) is not logged here if no era is configured: the server may be a
        modern one. `EraFinder` finds that out, and logs the refusal if it is not.
        """
        settings = self._upstream_context.settings
        # With HTTP+SSE the server may refuse the event stream before the request is sent: that is
        # an answer of the server, too.
        was_asked = self.call.sent or settings.transport is TransportKind.SSE
        if was_asked and not (isinstance(failure, Unwelcome) and settings.era is None):
            self._upstream_context.reception.failed(settings, failure, self._answered)


SIGN_OF_LIFE: Final = timedelta(seconds=2)
"""Time for a server to answer a request of the gateway itself."""

REFUSING: Final = 10.0
"""Seconds after the refusal of a call in a new session in which its server may refuse all that the caller asks."""
DYING: Final = 0.1
"""Seconds after a cancellation in which a server may be ending its session."""
_OVER: Final = frozenset({UpstreamReason.CLOSED.value, UpstreamReason.SESSION_LOST.value})


class SessionLoss(Enum):
    """Whether a failure shows that its session is lost, and since when."""

    NONE = auto()
    ENDED = auto()
    """It has ended, perhaps after the request ran."""
    UNKNOWN = auto()
    """The server did not know it when the request came, so the request did not run."""


class PingOutcome(NamedTuple):
    """The outcome of a ping: the reason of its failure, and how the server refused it.

    `said` has the HTTP status and body, or is the error about a session. Both are None for a usual answer.
    """

    reason: str | None = None
    said: str | None = None


class SessionConnection:
    """An open conversation; `stream` is None if it has no GET stream."""

    __slots__ = (
        "_level",
        "_level_lock",
        "_outlives_check",
        "_pinged",
        "_pinging",
        "_restoring",
        "_upstream_context",
        "conversation",
        "makes_tasks",
        "outlived",
        "refusals",
        "stream",
    )  # fmt: skip

    def __init__(
        self, upstream_context: UpstreamContext, conversation: Conversation, stream: ServerStream | ChannelStream | None
    ) -> None:
        self._upstream_context = upstream_context
        self.conversation = conversation
        self.stream = stream
        self.makes_tasks = upstream_context.dialect.tasks.is_supported(conversation.server.peer)
        """Whether the server makes tasks of calls on request; False in an adopted session, where
        nothing is known of it."""
        self._pinging = SingleFlight(self._ping)
        # The last outcome; before one, what it means that a ping is cut off by the end of the connection.
        self._pinged = PingOutcome(UpstreamReason.SESSION_LOST.value)
        self._outlives_check = SingleFlight(self._ping_after_cancels)
        self.refusals: dict[str | None, float] = {}
        """The statuses of refusals in the new session, and until when none says that it is unknown."""
        self.outlived = 0
        """How many of `conversation.cancels` the session is known to have survived."""
        logs = isinstance(conversation.server.peer.capabilities.get("logging"), dict)
        # The index of the least severe level that the server logs. At first it is above all, so
        # that any level is asked for; 0, so that none is, for a server without logging.
        self._level = len(LOG_LEVELS) if logs else 0
        self._level_lock = asyncio.Lock()
        self._restoring: asyncio.Task[None] | None = None

    async def log_from(self, level: str, principal: Principal | None) -> None:
        """Ask the server to log from `level` on, unless it already logs as much.

        The server has a short time to agree; a refusal is ignored. A server without logging is not
        asked.
        """
        index = LOG_LEVELS.index(level)
        if index >= self._level:
            return
        async with self._level_lock:
            if index < self._level:
                await self._answers(LOGGING_SET_LEVEL, level_params(level), principal)
                self._level = index

    def ask_again(self, lasting: Lasting) -> None:
        """Send the host's settings from earlier connections again, in the background.

        Refusals are ignored. Called once, in a new connection.
        """
        if lasting.level is not None or lasting.uris:
            self._restoring = asyncio.get_running_loop().create_task(self._restore(lasting))

    async def judge(self, failure: UpstreamFailed) -> SessionLoss:
        """Return whether a failed request means that the session has ended, and was unknown before it.

        If a call broke off, a ping decides. Released servers let a session die without notice, for
        example after a cancellation: then every call of it breaks off. A call that was refused with a
        status of SESSION_REFUSALS met an unknown session if the ping is refused with the same words. A
        status in `refusals` is no sign of it.
        """
        if isinstance(failure, failures.SessionDoubted):
            if asyncio.get_running_loop().time() < self.refusals.get(failure.cause, 0.0):
                return SessionLoss.NONE
            outcome = await self.ping()
            # Without an id, the session ends with its channel.
            is_gone = self.conversation.session is None and outcome.reason in _OVER
            if outcome.said == _said_by(failure) or is_gone:
                return SessionLoss.UNKNOWN
            return SessionLoss.ENDED if outcome.reason == UpstreamReason.SESSION_LOST.value else SessionLoss.NONE
        if failure.reason == UpstreamReason.CLOSED.value:
            return SessionLoss.ENDED if (await self.ping()).reason in _OVER else SessionLoss.NONE
        return SessionLoss.UNKNOWN if failure.reason == UpstreamReason.SESSION_LOST.value else SessionLoss.NONE

    async def ping(self) -> PingOutcome:
        """Return what the server says to a ping in the session, one for all calls that ask together."""
        try:
            return await self._pinging.get()
        except Abandoned:
            # The last outcome may be why the connection is closed.
            return self._pinged
        finally:
            self._pinging.forget()

    async def outlives_cancels(self) -> bool:
        """Whether the session survived all cancellations so far; if unknown, a ping decides.

        Calls that ask together share one ping. Servers on released SDKs accept a cancellation and
        let the whole session die without notice.
        """
        while self.outlived != self.conversation.cancels:
            try:
                if not await self._outlives_check.get():
                    return False
            except Abandoned:
                return True
            finally:
                self._outlives_check.forget()
        return True

    async def is_understood(self) -> bool:
        """Whether the server answers a ping as a legacy server does.

        A failure counts as yes, unless it shows another era or a lost session.
        """
        try:
            call, response = await self._ask(PING, None)
        except UpstreamFailed as failure:
            return not isinstance(failure, Unwelcome) and failure.reason != UpstreamReason.SESSION_LOST.value
        return not is_strange(call, response)

    async def end(self) -> None:
        """Close the connection, and end the session at the server."""
        await self._stop()
        await self.conversation.end()

    async def drop(self) -> None:
        """Close a connection whose session the server no longer knows."""
        await self._stop()
        await self.conversation.drop()

    async def _stop(self) -> None:
        """Stop the pings, the restoring of settings and the GET stream."""
        await self._pinging.close()
        await self._outlives_check.close()
        if self._restoring is not None:
            await cancel_and_wait(self._restoring)
        if self.stream is not None:
            await self.stream.close()

    async def _ping_after_cancels(self) -> bool:
        """Ping after all cancellations so far are sent; returns whether the session survived."""
        cancels = self.conversation.cancels
        await self.conversation.said(SIGN_OF_LIFE.total_seconds())
        # Some servers crash on a request that arrives while a session dies of a cancellation.
        if asyncio.get_running_loop().time() - self.conversation.cancelled_at < SIGN_OF_LIFE.total_seconds():
            await asyncio.sleep(DYING)
        is_alive = (await self._ping()).reason not in _OVER
        self.outlived = cancels
        return is_alive

    async def _ping(self) -> PingOutcome:
        try:
            _, response = await self._ask(PING, None)
        except UpstreamFailed as failure:
            self._pinged = PingOutcome(failure.reason, _said_by(failure))
        else:
            self._pinged = PingOutcome(said=failures.refusal_of_session(response))
        return self._pinged

    async def _answers(self, method: str, params: Params | None, principal: Principal | None = None) -> bool:
        """Send a request; returns False only for a failure that shows the end of the session."""
        try:
            await self._ask(method, params, principal)
        except UpstreamFailed as failure:
            return failure.reason not in _OVER
        return True

    async def _ask(
        self, method: str, params: Params | None, principal: Principal | None = None
    ) -> tuple[RunningCall, Response]:
        upstream_context = self._upstream_context
        call = RunningCall(next(upstream_context.ids), None, briefly(SIGN_OF_LIFE), principal=principal)
        # A ping, a log level, or a subscription, which the session had before.
        call.runs_nothing = True
        message = upstream_context.dialect.call(call.id, method, params)
        return call, await self.conversation.ask(call, message, first_byte=SIGN_OF_LIFE)

    async def _restore(self, lasting: Lasting) -> None:
        """Send log level and subscriptions; stop when the session turns out to have ended."""
        if lasting.level is not None:
            await self._answers(LOGGING_SET_LEVEL, level_params(lasting.level))
        for uri in tuple(lasting.uris):
            # The host may have unsubscribed meanwhile.
            if uri in lasting.uris and not await self._answers(RESOURCES_SUBSCRIBE, uri_params(uri)):
                return


def _said_by(failure: UpstreamFailed) -> str:
    """Return what a refusal says: two that say the same have one reason, such as an unknown session.

    The words of a 404 do not count, since many name a time or the request.
    """
    body = failure.refusal.get("body")
    is_in_words = isinstance(body, str) and failure.reason == UpstreamReason.SESSION_LOST.value
    return f"{failure.cause} {None if is_in_words else body}"


def is_strange(call: RunningCall, response: Response) -> bool:
    """Whether an error is like those of modern servers, by its HTTP status or by its code."""
    return response.error is not None and (call.refused_with is not None or response.error_code in MODERN_ERRORS)


STREAM_PATIENCE: Final = 0.1
"""Seconds that a new connection waits for its GET stream: notifications before that are lost."""


class ConnectionOpener:
    """The opener of the connections (`SessionConnection`) of one session.

    The settings in `lasting` are sent again after each handshake. `met` is called with the server's
    identity after each handshake. `unwelcome` is called when the server refused a handshake in a
    way that may mean another era. `lost` is called when the GET stream shows that the server ended
    the session of a conversation.
    """

    def __init__(
        self,
        upstream_context: UpstreamContext,
        audience: Audience,
        *,
        clock: Clock,
        lasting: Lasting,
        met: Callable[[ServerDescription], None],
        unwelcome: Callable[[], None],
        lost: Callable[[Conversation], None],
    ) -> None:
        self._upstream_context = upstream_context
        self._audience = audience
        self._clock = clock
        self._lasting = lasting
        self._met = met
        self._unwelcome = unwelcome
        self._lost = lost

    async def begin(self) -> SessionConnection:
        """Open a new connection, with its handshake. Raises UpstreamFailed.

        A server that is deployed anew in between no longer knows the session that it gave. A handshake
        runs nothing, so another one is made once.
        """
        try:
            return await self._begin()
        except failures.SessionDoubted:
            pass
        try:
            return await self._begin()
        except failures.SessionDoubted as failure:
            raise failures.settled(failure, is_lost=False) from None

    async def _begin(self) -> SessionConnection:
        """Open a new connection. Raises UpstreamFailed, SessionDoubted if the session it got is refused."""
        upstream_context = self._upstream_context
        conversation, handshake = Conversation(upstream_context, self._audience), Handshake(upstream_context)
        began = self._clock.elapsed()
        asks, first_byte = handshake.asks(self._audience.host), upstream_context.settings.first_byte
        try:
            server = handshake.read(await conversation.ask(handshake.call, asks, first_byte=first_byte))
            await conversation.begin(server)
        except UpstreamFailed as failure:
            handshake.failed(failure)
            upstream_context.observer.answered(INITIALIZE, self._clock.elapsed() - began, failure.reason, False)
            await conversation.end()
            if isinstance(failure, failures.Unwelcome):
                self._unwelcome()
            raise
        except asyncio.CancelledError:
            await conversation.end()
            raise
        upstream_context.observer.answered(INITIALIZE, self._clock.elapsed() - began, None, False)
        self._met(server)
        connection = SessionConnection(upstream_context, conversation, await self._listen(conversation))
        connection.ask_again(self._lasting)
        return connection

    def adopt(self, resume_point: ResumePoint) -> SessionConnection:
        """Return a connection to the server session of a resume point. Nothing is sent for it.

        Raises Gone if its revision is no legacy one.
        """
        revision = find_revision(resume_point.revision)
        if revision is None:
            raise failures.Gone
        conversation = Conversation(self._upstream_context, self._audience)
        conversation.adopt(resume_point.session, revision)
        return SessionConnection(
            self._upstream_context, conversation, conversation.listen(partial(self._lost, conversation), self._clock)
        )

    async def _listen(self, conversation: Conversation) -> ServerStream | ChannelStream | None:
        """Start the GET stream, and give the server a short time to accept it."""
        stream = conversation.listen(partial(self._lost, conversation), self._clock)
        if stream is None:
            return None
        try:
            await stream.known(STREAM_PATIENCE)
        except asyncio.CancelledError:
            await stream.close()
            await conversation.end()
            raise
        return stream
