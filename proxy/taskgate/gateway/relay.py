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

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from taskgate.admission.concurrency import Permit
from taskgate.cluster.remote_sessions import SETTING_METHODS
from taskgate.domain.record import RequestId
from taskgate.errors import CutOff
from taskgate.gateway.host_listener import HostListener, Keepalives
from taskgate.gateway.outbound_calls import SLOW_METHODS, CallSender, OutboundCall
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.protocol.messages import Notification, Response
from taskgate.protocol.server_messages import progress_done
from taskgate.protocol.vocabulary import NOTE_PROGRESS
from taskgate.sessions.host_session import HostSession
from taskgate.sessions.questions import QuestionStream
from taskgate.streams.exchange import Exchange
from taskgate.system.cancel_scope import CancelScope, ScopeCancelled
from taskgate.system.timer_wheel import TimerWheel
from taskgate.upstream.call_listener import ServerQuestion


@dataclass(slots=True, kw_only=True, eq=False)
class LegacyCall(OutboundCall):
    """A request of a legacy host for its server.

    `lasts` is set for extension methods that last as long as the host listens: when the host
    disconnects, such a request is cancelled.
    """

    session: HostSession
    progress_token: RequestId | None
    lasts: bool = False


class PlainCallProxy:
    """The proxy of plain calls. `patience` is the keep-alive interval, after which an answer
    becomes an event stream.
    """

    def __init__(self, *, dialect: LegacyDownstream, patience: timedelta, sender: CallSender) -> None:
        self._dialect = dialect
        interval = patience.total_seconds()
        self._keepalives = Keepalives(TimerWheel(interval), interval, dialect.progress)
        self._sender = sender
        self._running: set[CancelScope] = set()
        self._stopping = False

    async def send(self, call: LegacyCall) -> Response:
        """Send a request, or wait for an equal one that runs; return the server's response.

        Raises UpstreamFailed, QueueFull, ScopeCancelled when the host cancelled the request, and
        CutOff when the gateway shuts down. Raises InvalidParams for an idempotency key of another
        call.
        """
        exchange, host_session = call.exchange, call.session
        listener = _CallForwarder(exchange, call.progress_token, self._keepalives, host_session, self._dialect)
        # `scope` covers only this request. A call that equal requests share runs while one waits.
        scope, permit = CancelScope(), None
        host_session.calls[scope] = call.id
        self._running.add(scope)
        try:
            with listener, scope:
                if self._stopping:
                    # The gateway is stopping, and the other calls have been cancelled before this
                    # one was registered.
                    scope.cancel()
                if call.coalesce_key is not None:
                    return await self._sender.send_joined(call, call.coalesce_key, listener)
                if call.method in SLOW_METHODS:
                    permit = self._sender.acquire(call)
                    if not permit.is_granted:
                        _cancel_while_queued(exchange, scope, permit)
                        await self._sender.wait(call, permit)
                    self._sender.count(call, "direct")
                if call.lasts:
                    exchange.on_disconnect(scope.cancel)
                response = await call.send(listener)
                # A setting of the session at its server is remembered, for other replicas.
                if call.method in SETTING_METHODS and response.error is None:
                    host_session.settings.record(call.method, call.params)
                return response
        except ScopeCancelled:
            if self._stopping:
                raise CutOff from None
            raise
        finally:
            if permit is not None:
                permit.release()
            del host_session.calls[scope]
            self._running.discard(scope)

    def stop(self) -> None:
        """Cancel the running calls and every later one, which then raise CutOff. Called at
        shutdown.
        """
        self._stopping = True
        for scope in self._running:
            scope.cancel()

    def cancel(self, host_session: HostSession, id: RequestId) -> bool:
        """Cancel the request of that id, and return whether it runs in this process."""
        # The newest, in case the host used an id twice.
        scope = next((scope for scope, its in reversed(host_session.calls.items()) if its == id), None)
        if scope is not None:
            scope.cancel()
        return scope is not None

    def close(self) -> None:
        """Stop the timers, after the last call has ended."""
        self._keepalives.wheel.close()


def _cancel_while_queued(exchange: Exchange, scope: CancelScope, permit: Permit) -> None:
    """Cancel a call if its host disconnects while it still waits for its permit."""
    exchange.on_disconnect(lambda: None if permit.is_granted else scope.cancel())


@dataclass(slots=True, eq=False)
class _CallForwarder(HostListener):
    """The listener of one plain call. Messages of the server go to the host on the call's own
    stream, or on the session's GET stream if that is not possible.

    Progress must grow for the host. A keep-alive invents a number. After that, a number of the
    server that is not higher is not sent; its text is sent with a number of the gateway.

    `_watches_host` is whether the callback for the end of the call's stream is registered.
    """

    host_session: HostSession
    dialect: LegacyDownstream
    _watches_host: bool = field(default=False, init=False)

    def on_notification(self, notification: Notification) -> None:
        self._has_sent = True
        if self.token is not None and notification.method == NOTE_PROGRESS and not self._may_be_sent(notification):
            message = self.reword(notification)
            if message is None:
                return
        else:
            message = self.dialect.notification(notification, self.token)
        if not (self.exchange.head.accepts_stream and self.exchange.stream().send(message)):
            self.host_session.publish_anywhere(message)

    @property
    def passes_rounds(self) -> bool:
        return False

    def asked(self, question: ServerQuestion) -> None:
        questions, exchange = self.host_session.questions, self.exchange
        questions.ask(question, self, self.host_session)
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
        if not self.exchange.head.accepts_stream:
            return None
        feed = self.exchange.stream()
        return feed if feed.send_now(message) else None

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
