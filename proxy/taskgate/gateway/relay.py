"""The proxy of plain calls of legacy hosts: `PlainCallProxy`.

A request goes to the server, the answer comes back, and nothing is stored. `InSessionMessages` uses
it for every request that is no task. The answer is one JSON document unless the host has to wait.
The first notification or question of the server, or the first keep-alive interval without an
answer, turns the answer into an event stream.

A slow method needs a permit of the server's concurrency limit, and may wait for it briefly. A
`tools/call` may join an equal one that runs. A call ends with the server's response, when the host
cancels it, or when the gateway shuts down. A host that disconnects cancels only a call that still
waits for a permit, not one that was sent (H-LEG-10). `notifications/cancelled` cancels either.
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

    `lasts` is set for extension methods that last as long as the host listens: when the host
    disconnects, such a request is cancelled.
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
        self._coalescer = joining
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
        # In shadow mode the operator's rules are counted and not applied. The session then offers no
        # tasks, so its revision tells whether the host could have had one.
        if decision.would_promote and host_session.peer.revision.has_tasks:
            self._event_sink.emit(ShadowPromotion(host_session.mount.name))
        request = RelayedRequest(intent.id, TOOLS_CALL, intent.params, intent.progress_token, intent.tool)
        coalesce_key = None
        if intent.idempotency_key is not None or decision.join_retries is not None:
            coalesce_key = CoalesceKey(
                host_session.owner, intent, decision.join_retries, features=client_features(host_session.peer)
            )
        return self._send(exchange, caller, host_session, request, coalesce_key)

    def forward(
        self, exchange: Exchange, caller: AuthContext, host_session: HostSession, request: RelayedRequest
    ) -> Coroutine[Any, Any, Response]:
        """Send a request, and return the server's response.

        Raises UpstreamFailed, QueueFull, ScopeCancelled when the host cancelled the request, and
        CutOff when the gateway shuts down.
        """
        return self._send(exchange, caller, host_session, request, None)

    async def _send(
        self,
        exchange: Exchange,
        caller: AuthContext,
        host_session: HostSession,
        request: RelayedRequest,
        coalesce_key: CoalesceKey | None,
    ) -> Response:
        # With `coalesce_key`, an equal call that runs is joined instead.
        streams = exchange.head.accepts_stream
        if streams and not exchange.head.accepts_json:
            # This host can read an answer only as an event.
            exchange.stream()
        listener = _CallForwarder(exchange, host_session, self._dialect, request.progress_token)
        pulse = Keepalive(self._alarms, self._patience, listener.live) if streams else None

        relay, who = host_session.upstream.relay, principal_of(caller)
        send = partial(relay, request.method, request.params, listener=listener, tool=request.tool, principal=who)
        # `call` covers only this request. A call that equal requests share runs while one waits.
        call, permit = CancelScope(), None
        host_session.calls[call] = request.id
        self._running.add(call)
        try:
            with call:
                if self._stopping:
                    # The gateway is stopping, and the other calls have been cancelled before this
                    # one was registered.
                    call.cancel()
                if coalesce_key is not None:
                    response = await self._coalescer.run(
                        coalesce_key, partial(self._send_shared, caller, host_session, request, send)
                    )
                    assert isinstance(response, Response), "a plain call yields a response, not a task"
                    return response
                if request.method in IN_TURN:
                    permit = self._ask(caller, host_session, request.tool)
                    if not permit.is_granted:
                        _cancel_while_queued(exchange, call, permit)
                        await self._wait(host_session, request.tool, permit)
                    self._count(host_session, request.tool, "direct")
                if request.lasts:
                    exchange.on_disconnect(call.cancel)
                response = await send()
                # A setting of the session at its server is remembered, for other replicas.
                if request.method in SETTING_METHODS and response.error is None:
                    host_session.settings.record(request.method, request.params)
                return response
        except ScopeCancelled:
            if self._stopping:
                raise CutOff from None
            raise
        finally:
            if permit is not None:
                permit.release()
            if pulse is not None:
                pulse.stop()
            del host_session.calls[call]
            self._running.discard(call)

    async def _send_shared(
        self, caller: AuthContext, host_session: HostSession, request: RelayedRequest, send: Send
    ) -> Response:
        """Send a call that other requests may join.

        The first request may end before the call, so the call keeps the session open itself.
        """
        host_session.acquire()
        try:
            permit = self._ask(caller, host_session, request.tool)
            try:
                if not permit.is_granted:
                    await self._wait(host_session, request.tool, permit)
                self._count(host_session, request.tool, "direct")
                return await send()
            finally:
                permit.release()
        finally:
            host_session.release()

    def _ask(self, caller: AuthContext, host_session: HostSession, tool: str | None) -> Permit:
        """Return a permit of the server, granted or queued, which must be released. Raises
        QueueFull, counted.
        """
        try:
            return host_session.mount.bulkhead.acquire(host_session.owner.context, caller)
        except QueueFull:
            self._count(host_session, tool, "rejected")
            raise

    async def _wait(self, host_session: HostSession, tool: str | None, permit: Permit) -> None:
        """Wait briefly until the permit is granted. Raises QueueFull, counted."""
        try:
            await permit.wait_briefly()
        except QueueFull:
            self._count(host_session, tool, "rejected")
            raise

    def _count(self, host_session: HostSession, tool: str | None, disposition: str) -> None:
        if tool is not None:
            is_listed = host_session.upstream.listed(tool) is not None
            self._event_sink.emit(ToolCalled(host_session.mount.name, tool if is_listed else None, disposition))

    def stop(self) -> None:
        """Cancel the running calls and every later one, which then raise CutOff. Called at
        shutdown.
        """
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


def _cancel_while_queued(exchange: Exchange, call: CancelScope, permit: Permit) -> None:
    """Cancel a call if its host disconnects while it still waits for its permit."""
    exchange.on_disconnect(lambda: None if permit.is_granted else call.cancel())


class _CallForwarder(UnsavedCallListener):
    """The listener of one plain call. Messages of the server go to the host on the call's own
    stream, or on the session's GET stream if that is not possible.

    Progress must grow for the host. A keep-alive invents a number. After that, a number of the
    server that is not higher is not sent; its text is sent with a number of the gateway.

    - `_token`: the host's progress token; None if it wants no progress.
    - `_has_sent`: the server has sent a notification since the last keep-alive.
    - `_has_invented`: a keep-alive has sent a number of the gateway's own.
    - `_watches_host`: the callback for the end of the call's stream is registered.
    """

    __slots__ = (
        "_dialect",
        "_exchange",
        "_has_invented",
        "_has_sent",
        "_host_session",
        "_last_progress",
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
        self._last_progress: float | None = None
        self._has_sent = False
        self._has_invented = False
        self._watches_host = False

    def on_notification(self, notification: Notification) -> None:
        self._has_sent = True
        if self._token is not None and notification.method == NOTE_PROGRESS and not self._may_be_sent(notification):
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
        """Ignore it: in the legacy era the server gets the refusal, and the host no error."""

    def send_question(self, message: str) -> QuestionStream | None:
        """Send a question on the call's own stream; return the stream, or None if that is not
        possible.
        """
        if not self._exchange.head.accepts_stream:
            return None
        feed = self._exchange.stream()
        return feed if feed.send_now(message) else None

    def live(self) -> None:
        """Keep the host waiting: called once in each keep-alive interval.

        Turns the answer into an event stream, and sends progress if the server sent nothing since
        the last interval. Without a progress token nothing is sent.
        """
        feed = self._exchange.stream()
        if self._token is not None and not self._has_sent:
            self._last_progress = 0.0 if self._last_progress is None else self._last_progress + STEP
            self._has_invented = True
            feed.send_now(self._dialect.progress(self._token, self._last_progress, "Still running"))
        self._has_sent = False

    def _reworded(self, token: RequestId, notification: Notification) -> str | None:
        """Return progress with the server's text and a number that grows; None without a text."""
        words = text_of_progress(notification)
        if words is None or self._last_progress is None:
            return None
        self._last_progress += STEP
        return self._dialect.progress(token, self._last_progress, words)

    def _may_be_sent(self, notification: Notification) -> bool:
        """Return whether the server's progress may be sent as it is; if so, remember its number.

        Until a keep-alive has invented a number, it always may.
        """
        done = progress_done(notification)
        if self._has_invented and (done is None or (self._last_progress is not None and done <= self._last_progress)):
            return False
        if done is not None:
            self._last_progress = done
        return True
