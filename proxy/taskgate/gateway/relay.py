"""The proxy of plain calls: `PlainCallProxy`. A request goes to the server, the answer comes back,
and nothing is stored.

`InSessionMessages` uses it for every request of a legacy host that does not become a task. The
answer is one JSON document unless the host has to wait. The first notification or question of the
server, or the first keep-alive interval without an answer, turns it into an event stream.

A host that disconnects cancels only a call that still waits for a permit, not one that was sent
(H-LEG-10). `notifications/cancelled` cancels either.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, Final, NamedTuple

from taskgate.admission.callers import principal_of
from taskgate.admission.coalescing import CoalesceKey, RequestCoalescer
from taskgate.admission.concurrency import Permit
from taskgate.auth.context import AuthContext
from taskgate.cluster.remote_sessions import SETTING_METHODS
from taskgate.domain.policy import PromotionDecision
from taskgate.domain.record import RequestId
from taskgate.errors import CutOff, QueueFull
from taskgate.protocol.dialects import LegacyDownstreamDialect
from taskgate.protocol.host_requests import CallTool
from taskgate.protocol.messages import Notification, Params, Response
from taskgate.protocol.server_messages import progress_done, text_of_progress
from taskgate.protocol.vocabulary import NOTE_PROGRESS, TOOLS_CALL
from taskgate.sessions.binding import client_features
from taskgate.sessions.host_session import HostSession
from taskgate.sessions.questions import QuestionStream
from taskgate.streams.exchange import Exchange
from taskgate.streams.keepalive import Keepalive
from taskgate.system.cancel_scope import CancelScope, ScopeCancelled
from taskgate.system.timer_wheel import TimerWheel
from taskgate.telemetry.events import EventSink, ShadowPromotion, ToolCalled
from taskgate.upstream.call_listener import ServerQuestion, UnsavedCallListener

STEP: Final = 1e-6
"""The increment of progress in a keep-alive. Progress must grow, and the step is too small to pass
the numbers of a server."""


IN_TURN: Final = frozenset({TOOLS_CALL, "prompts/get", "resources/read"})
"""The methods that can be slow, and so need a permit of the server's concurrency limit. The others
are sent at once."""

Send = Callable[[], Coroutine[Any, Any, Response]]


class RelayedRequest(NamedTuple):
    """A request of a host for its server. `tool` is the tool of a `tools/call`.

    A request that `lasts` is cancelled when its host disconnects.
    """

    id: RequestId
    method: str
    params: Params | None
    progress_token: RequestId | None
    tool: str | None = None
    lasts: bool = False


class PlainCallProxy:
    """The proxy of plain calls. `patience` is the keep-alive interval, after which an answer
    becomes an event stream.
    """

    def __init__(
        self, *, dialect: LegacyDownstreamDialect, patience: timedelta, joining: RequestCoalescer, event_sink: EventSink
    ) -> None:
        self._dialect = dialect
        self._patience = patience.total_seconds()
        self._alarms = TimerWheel(self._patience)
        self._joining = joining
        self._event_sink = event_sink
        self._running: set[CancelScope] = set()
        self._stopping = False

    def call(
        self,
        exchange: Exchange,
        caller: AuthContext,
        host_session: HostSession,
        intent: CallTool,
        decision: PromotionDecision,
    ) -> Coroutine[Any, Any, Response]:
        """Send a `tools/call`, or wait for an equal one that runs, and count it.

        Raises what `forward` raises, and InvalidParams for an idempotency key of another call.
        """
        # If promotion exists only in shadow mode, `has_tasks` of the session is false; so ask the
        # revision.
        if decision.would_promote and host_session.peer.revision.has_tasks:
            self._event_sink.emit(ShadowPromotion(host_session.mount.name))
        asked = RelayedRequest(intent.id, TOOLS_CALL, intent.params, intent.progress_token, intent.tool)
        asking = None
        if intent.idempotency_key is not None or decision.join_retries is not None:
            asking = CoalesceKey(
                host_session.owner, intent, decision.join_retries, features=client_features(host_session.peer)
            )
        return self._carry(exchange, caller, host_session, asked, asking)

    def forward(
        self, exchange: Exchange, caller: AuthContext, host_session: HostSession, asked: RelayedRequest
    ) -> Coroutine[Any, Any, Response]:
        """Send a request, and return the server's response.

        Raises UpstreamFailed, QueueFull, Interrupted when the host cancelled the request, and
        CutOff when the gateway shuts down.
        """
        return self._carry(exchange, caller, host_session, asked, None)

    async def _carry(
        self,
        exchange: Exchange,
        caller: AuthContext,
        host_session: HostSession,
        asked: RelayedRequest,
        asking: CoalesceKey | None,
    ) -> Response:
        streams = exchange.head.accepts_stream
        if streams and not exchange.head.accepts_json:
            exchange.stream()
        listener = _CallHearer(exchange, host_session, self._dialect, asked.progress_token)
        pulse = Keepalive(self._alarms, self._patience, listener.live) if streams else None

        relay, who = host_session.upstream.relay, principal_of(caller)
        send = partial(relay, asked.method, asked.params, listener=listener, tool=asked.tool, principal=who)
        call, ticket = CancelScope(), None
        host_session.calls[call] = asked.id
        self._running.add(call)
        try:
            with call:
                if self._stopping:
                    # The gateway is stopping, and the other calls have been interrupted before this
                    # one was registered.
                    call.cancel()
                if asking is not None:
                    response = await self._joining.run(asking, partial(self._shared, caller, host_session, asked, send))
                    assert isinstance(response, Response), "a plain call yields a response, not a task"
                    return response
                if asked.method in IN_TURN:
                    ticket = self._ask(caller, host_session, asked.tool)
                    if not ticket.is_granted:
                        _leaves_with(exchange, call, ticket)
                        await self._wait(host_session, asked.tool, ticket)
                    self._count(host_session, asked.tool, "direct")
                if asked.lasts:
                    exchange.on_disconnect(call.cancel)
                response = await send()
                if asked.method in SETTING_METHODS and response.error is None:
                    host_session.settings.record(asked.method, asked.params)
                return response
        except ScopeCancelled:
            if self._stopping:
                raise CutOff from None
            raise
        finally:
            if ticket is not None:
                ticket.release()
            if pulse is not None:
                pulse.stop()
            del host_session.calls[call]
            self._running.discard(call)

    async def _shared(
        self, caller: AuthContext, host_session: HostSession, asked: RelayedRequest, send: Send
    ) -> Response:
        """Send a call that other requests may join. Its session stays open until the response is
        there.
        """
        host_session.acquire()
        try:
            ticket = self._ask(caller, host_session, asked.tool)
            try:
                if not ticket.is_granted:
                    await self._wait(host_session, asked.tool, ticket)
                self._count(host_session, asked.tool, "direct")
                return await send()
            finally:
                ticket.release()
        finally:
            host_session.release()

    def _ask(self, caller: AuthContext, host_session: HostSession, tool: str | None) -> Permit:
        """Request a permit of the server's concurrency limit; it must be closed. Raises QueueFull,
        counted.
        """
        try:
            return host_session.mount.bulkhead.acquire(host_session.owner.context, caller)
        except QueueFull:
            self._count(host_session, tool, "rejected")
            raise

    async def _wait(self, host_session: HostSession, tool: str | None, ticket: Permit) -> None:
        """Wait until the permit is granted. Raises QueueFull, counted."""
        try:
            await ticket.wait_briefly()
        except QueueFull:
            self._count(host_session, tool, "rejected")
            raise

    def _count(self, host_session: HostSession, tool: str | None, disposition: str) -> None:
        if tool is not None:
            is_listed = host_session.upstream.listed(tool) is not None
            self._event_sink.emit(ToolCalled(host_session.mount.name, tool if is_listed else None, disposition))

    def stop(self) -> None:
        """Interrupt the running calls and every later one; their hosts get an error."""
        self._stopping = True
        for call in self._running:
            call.cancel()

    def cancel(self, host_session: HostSession, id: RequestId) -> bool:
        """Cancel the request of that id, and return whether it runs in this process."""
        # The newest, in case the host used an id twice.
        call = next((call for call, its in reversed(host_session.calls.items()) if its == id), None)
        if call is not None:
            call.cancel()
        return call is not None

    def close(self) -> None:
        """Stop the timers, after the last call has ended."""
        self._alarms.close()


def _leaves_with(exchange: Exchange, call: CancelScope, ticket: Permit) -> None:
    """Interrupt a call that still waits for its permit if its host disconnects."""
    exchange.on_disconnect(lambda: None if ticket.is_granted else call.cancel())


class _CallHearer(UnsavedCallListener):
    """The listener of one plain call. Messages of the server go to the host on the call's own
    stream, or on the session's GET stream if that is not possible.

    Progress must grow for the host. After a keep-alive has used a number, lower numbers of the
    server are dropped, and their texts get a number of the gateway.
    """

    __slots__ = (
        "_dialect",
        "_done",
        "_exchange",
        "_has_made_up",
        "_host_session",
        "_spoke",
        "_token",
        "_watches_host",
    )

    def __init__(
        self, exchange: Exchange, host_session: HostSession, dialect: LegacyDownstreamDialect, token: RequestId | None
    ) -> None:
        self._exchange = exchange
        self._host_session = host_session
        self._dialect = dialect
        self._token = token
        self._done: float | None = None
        self._spoke = False
        self._has_made_up = False
        self._watches_host = False

    def on_notification(self, notification: Notification) -> None:
        self._spoke = True
        if self._token is not None and notification.method == NOTE_PROGRESS and not self._is_further(notification):
            message = self._reworded(self._token, notification)
            if message is None:
                return
        else:
            message = self._dialect.notification(notification, self._token)
        if not (self._exchange.head.accepts_stream and self._exchange.stream().send(message)):
            self._host_session.publish_anywhere(message)

    def clog(self) -> Awaitable[None] | None:
        return self._exchange.stream().backpressure() if self._exchange.is_streaming else None

    @property
    def passes_rounds(self) -> bool:
        return False

    def asked(self, question: ServerQuestion) -> None:
        questions, exchange = self._host_session.questions, self._exchange
        questions.ask(question, self, self._host_session)
        if exchange.head.accepts_stream and not self._watches_host:
            self._watches_host = True
            feed = exchange.stream()
            feed.on_connection_lost(lambda: questions.on_stream_ended(feed))

    def refused(self, required: Mapping[str, Any]) -> None:
        """Ignore it: in the legacy era only the server is told."""

    def send_question(self, message: str) -> QuestionStream | None:
        """Send a question on the call's own stream; return the stream, or None if that is not
        possible.
        """
        if not self._exchange.head.accepts_stream:
            return None
        feed = self._exchange.stream()
        return feed if feed.send_now(message) else None

    def live(self) -> None:
        """Send a keep-alive if the server sent nothing since the last. A timeout of the host may
        end with silence.
        """
        feed = self._exchange.stream()
        if self._token is not None and not self._spoke:
            self._done = 0.0 if self._done is None else self._done + STEP
            self._has_made_up = True
            feed.send_now(self._dialect.progress(self._token, self._done, "Still running"))
        self._spoke = False

    def _reworded(self, token: RequestId, notification: Notification) -> str | None:
        """Return progress with the server's text and a number above the gateway's own; None if it
        has no text.
        """
        words = text_of_progress(notification)
        if words is None or self._done is None:
            return None
        self._done += STEP
        return self._dialect.progress(token, self._done, words)

    def _is_further(self, notification: Notification) -> bool:
        """Return whether progress of the server grows beyond what the host was sent."""
        done = progress_done(notification)
        if self._has_made_up and (done is None or (self._done is not None and done <= self._done)):
            return False
        if done is not None:
            self._done = done
        return True
