"""Plain calls: a request of a host crosses to its server, the answer comes back, nothing is stored.

The answer is one JSON document unless the host has to wait: the first thing that the server says or asks besides, or
the first keep-alive interval without an answer, turns it into an event stream. A host that leaves does not stop a call
that has left (H-LEG-10), only one that still waits for its turn; its `notifications/cancelled` stops either.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, Final, NamedTuple

from taskgate.admission.bulkhead import Ticket
from taskgate.admission.callers import principal
from taskgate.admission.joining import CoalesceKey, RequestCoalescer
from taskgate.auth.context import AuthContext
from taskgate.cluster.remote_sessions import SETTING_METHODS
from taskgate.domain.policy import PromotionDecision
from taskgate.domain.record import RequestId
from taskgate.errors import CutOff, QueueFull
from taskgate.protocol.base import CallTool, DownstreamDialect, Params
from taskgate.protocol.envelope import Notification, Response
from taskgate.protocol.progress import done_of, words_of
from taskgate.protocol.vocabulary import NOTE_PROGRESS, TOOLS_CALL
from taskgate.sessions.call_sites import asked_of
from taskgate.sessions.questions import Carrying
from taskgate.sessions.registry import HostSession
from taskgate.streams.exchange import Exchange
from taskgate.streams.keepalive import Keepalive
from taskgate.system.alarms import Alarms
from taskgate.system.interruption import Interrupted, Interruptible
from taskgate.telemetry.events import EventSink, ShadowPromotion, ToolCalled
from taskgate.upstream.call_listener import ServerQuestion, UnsavedCallListener

STEP: Final = 1e-6
"""How much further each sign of life of ours says that a call is: it must grow, and get in no server's way."""


IN_TURN: Final = frozenset({TOOLS_CALL, "prompts/get", "resources/read"})
"""What may take a server long, and so waits for its turn there; everything else goes at once."""

Send = Callable[[], Coroutine[Any, Any, Response]]


class RelayedRequest(NamedTuple):
    """A request of a host that is for its server; `tool` is what a `tools/call` calls.

    One that `lasts` is over when its host leaves.
    """

    id: RequestId
    method: str
    params: Params | None
    progress_token: RequestId | None
    tool: str | None = None
    lasts: bool = False


class PlainCallProxy:
    """Carries plain calls. `patience` is the time after which a silent answer becomes a stream."""

    def __init__(
        self, *, dialect: DownstreamDialect, patience: timedelta, joining: RequestCoalescer, event_sink: EventSink
    ) -> None:
        self._dialect = dialect
        self._patience = patience.total_seconds()
        self._alarms = Alarms(self._patience)
        self._joining = joining
        self._event_sink = event_sink
        self._running: set[Interruptible] = set()
        self._stopping = False

    def call(
        self,
        exchange: Exchange,
        caller: AuthContext,
        host_session: HostSession,
        intent: CallTool,
        decision: PromotionDecision,
    ) -> Coroutine[Any, Any, Response]:
        """The server's response to a `tools/call`, or to an equal one that runs; it is counted here. Raises as
        `forward`, and InvalidParams for an idempotency key that was used for another call.
        """
        # Where nothing but a shadow would make tasks, the session has none.
        if decision.would_promote and host_session.peer.revision.has_tasks:
            self._event_sink.emit(ShadowPromotion(host_session.mount.name))
        asked = RelayedRequest(intent.id, TOOLS_CALL, intent.params, intent.progress_token, intent.tool)
        asking = None
        if intent.repeat_key is not None or decision.join_retries is not None:
            asking = CoalesceKey(host_session.owner, intent, decision.join_retries, asks=asked_of(host_session.peer))
        return self._carry(exchange, caller, host_session, asked, asking)

    def forward(
        self, exchange: Exchange, caller: AuthContext, host_session: HostSession, asked: RelayedRequest
    ) -> Coroutine[Any, Any, Response]:
        """The server's response.

        Raises UpstreamFailed, QueueFull, Interrupted when the host cancelled the request, and CutOff when the gateway
        ends.
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

        relay, who = host_session.upstream.relay, principal(caller)
        send = partial(relay, asked.method, asked.params, listener=listener, tool=asked.tool, principal=who)
        call, ticket = Interruptible(), None
        host_session.calls[call] = asked.id
        self._running.add(call)
        try:
            with call:
                if self._stopping:
                    # It was late to come here: those that were carried have been given up.
                    call.interrupt()
                if asking is not None:
                    response = await self._joining.once(
                        asking, partial(self._shared, caller, host_session, asked, send)
                    )
                    assert isinstance(response, Response), "a plain call yields a response, not a task"
                    return response
                if asked.method in IN_TURN:
                    ticket = self._ask(caller, host_session, asked.tool)
                    if not ticket.granted:
                        _leaves_with(exchange, call, ticket)
                        await self._wait(host_session, asked.tool, ticket)
                    self._count(host_session, asked.tool, "direct")
                if asked.lasts:
                    exchange.on_disconnect(call.interrupt)
                response = await send()
                if asked.method in SETTING_METHODS and response.error is None:
                    host_session.wants.record(asked.method, asked.params)
                return response
        except Interrupted:
            if self._stopping:
                raise CutOff from None
            raise
        finally:
            if ticket is not None:
                ticket.close()
            if pulse is not None:
                pulse.stop()
            del host_session.calls[call]
            self._running.discard(call)

    async def _shared(
        self, caller: AuthContext, host_session: HostSession, asked: RelayedRequest, send: Send
    ) -> Response:
        """A call that others may come to wait for, too: its session stays open for all of them."""
        host_session.hold()
        try:
            ticket = self._ask(caller, host_session, asked.tool)
            try:
                if not ticket.granted:
                    await self._wait(host_session, asked.tool, ticket)
                self._count(host_session, asked.tool, "direct")
                return await send()
            finally:
                ticket.close()
        finally:
            host_session.release()

    def _ask(self, caller: AuthContext, host_session: HostSession, tool: str | None) -> Ticket:
        """A ticket for a turn at the server, to be closed. Raises QueueFull, counted."""
        try:
            return host_session.mount.bulkhead.ask(host_session.owner.context, caller)
        except QueueFull:
            self._count(host_session, tool, "rejected")
            raise

    async def _wait(self, host_session: HostSession, tool: str | None, ticket: Ticket) -> None:
        """Wait until it is that ticket's turn. Raises QueueFull, counted."""
        try:
            await ticket.brief_turn()
        except QueueFull:
            self._count(host_session, tool, "rejected")
            raise

    def _count(self, host_session: HostSession, tool: str | None, disposition: str) -> None:
        if tool is not None:
            is_listed = host_session.upstream.listed(tool) is not None
            self._event_sink.emit(ToolCalled(host_session.mount.name, tool if is_listed else None, disposition))

    def stop(self) -> None:
        """Give up what is still carried, or begins to be: hosts are told so."""
        self._stopping = True
        for call in self._running:
            call.interrupt()

    def cancel(self, host_session: HostSession, id: RequestId) -> bool:
        """The host gave a request up; whether it is in flight here. Any other is none of ours to know."""
        # The newest, should the host have used an id twice.
        call = next((call for call, its in reversed(host_session.calls.items()) if its == id), None)
        if call is not None:
            call.interrupt()
        return call is not None

    def close(self) -> None:
        """No call is carried any more."""
        self._alarms.close()


def _leaves_with(exchange: Exchange, call: Interruptible, ticket: Ticket) -> None:
    """Let a call that still waits for its turn be given up if its host leaves: nobody would hear of it."""
    exchange.on_disconnect(lambda: None if ticket.granted else call.interrupt())


class _CallHearer(UnsavedCallListener):
    """Hears one plain call: what concerns it goes out on its own stream, else on the session's GET stream."""

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
        self, exchange: Exchange, host_session: HostSession, dialect: DownstreamDialect, token: RequestId | None
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
        """See CallListener."""
        self._spoke = True
        if self._token is not None and notification.method == NOTE_PROGRESS and not self._is_further(notification):
            message = self._reworded(self._token, notification)
            if message is None:
                return
        else:
            message = self._dialect.on_notification(notification, self._token)
        if not (self._exchange.head.accepts_stream and self._exchange.stream().send(message)):
            self._host_session.announce(message)

    def clog(self) -> Awaitable[None] | None:
        """See CallListener."""
        return self._exchange.stream().backpressure() if self._exchange.is_streaming else None

    @property
    def passes_rounds(self) -> bool:
        """See CallListener."""
        return False

    def asked(self, question: ServerQuestion) -> None:
        """See CallListener."""
        questions, exchange = self._host_session.questions, self._exchange
        questions.ask(question, self, self._host_session)
        if exchange.head.accepts_stream and not self._watches_host:
            self._watches_host = True
            feed = exchange.stream()
            feed.on_connection_lost(lambda: questions.stream_ended(feed))

    def refused(self, required: Mapping[str, Any]) -> None:
        """See CallListener: in the legacy era the server alone is told."""

    def carry(self, message: str) -> Carrying | None:
        """Ask something on the call's own stream; see Carrier."""
        if not self._exchange.head.accepts_stream:
            return None
        feed = self._exchange.stream()
        return feed if feed.send_now(message) else None

    def live(self) -> None:
        """Show the host that the call still runs, where nothing else did: its own bound may end with silence."""
        feed = self._exchange.stream()
        if self._token is not None and not self._spoke:
            self._done = 0.0 if self._done is None else self._done + STEP
            self._has_made_up = True
            feed.send_now(self._dialect.progress(self._token, self._done, "Still running"))
        self._spoke = False

    def _reworded(self, token: RequestId, notification: Notification) -> str | None:
        """What the server said in words, with a number that is further than what we made up; None for anything else."""
        words = words_of(notification)
        if words is None or self._done is None:
            return None
        self._done += STEP
        return self._dialect.progress(token, self._done, words)

    def _is_further(self, notification: Notification) -> bool:
        """Whether progress of the server may be told: not where it is behind what we made up, for it must grow."""
        done = done_of(notification)
        if self._has_made_up and (done is None or (self._done is not None and done <= self._done)):
            return False
        if done is not None:
            self._done = done
        return True
