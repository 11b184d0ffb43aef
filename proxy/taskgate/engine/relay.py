"""Plain calls: a request of a host crosses to its server, the answer comes back, nothing is stored.

The answer is one JSON document unless the host has to wait: the first notification of the call, or the first
keep-alive interval without an answer, turns it into an event stream. A host that leaves does not stop the call
(H-LEG-10); only its `notifications/cancelled` does.
"""

from collections.abc import Callable
from datetime import timedelta

from taskgate.alarms import Alarms
from taskgate.auth.context import AuthContext
from taskgate.dialects.base import DownstreamDialect, Params
from taskgate.engine.callers import speaker
from taskgate.engine.messages import Exchange
from taskgate.engine.sessions import HostSession
from taskgate.interruption import Interruptible
from taskgate.mcp.jsonrpc import Notification, RequestId, Response


class Relaying:
    """Carries plain calls. `patience` is the time after which a silent answer becomes a stream."""

    def __init__(self, *, dialect: DownstreamDialect, patience: timedelta) -> None:
        self._dialect = dialect
        self._patience = patience.total_seconds()
        self._alarms = Alarms(self._patience)

    async def forward(
        self,
        exchange: Exchange,
        caller: AuthContext,
        host_session: HostSession,
        *,
        id: RequestId,
        method: str,
        params: Params | None,
        progress_token: RequestId | None,
    ) -> Response:
        """The server's response. Raises UpstreamFailed, or Interrupted when the host cancelled the request."""
        streams = exchange.inbound.accepts_stream
        if streams and not exchange.inbound.accepts_json:
            exchange.stream()
        alarm = self._alarms.after(self._patience, exchange.stream) if streams else None
        call = Interruptible()
        host_session.calls[call] = id
        try:
            with call:
                notice = self._notice(exchange, host_session, progress_token)
                speaks = speaker(caller)
                return await host_session.upstream.relay(method, params, notice=notice, speaker=speaks)
        finally:
            if alarm is not None:
                alarm.cancel()
            del host_session.calls[call]

    def cancel(self, host_session: HostSession, id: RequestId) -> None:
        """The host gave a request up; one that is not in flight is none of ours to know."""
        # The newest, should the host have used an id twice.
        call = next((call for call, its in reversed(host_session.calls.items()) if its == id), None)
        if call is not None:
            call.interrupt()

    def close(self) -> None:
        """No call is carried any more."""
        self._alarms.close()

    def _notice(
        self, exchange: Exchange, host_session: HostSession, token: RequestId | None
    ) -> Callable[[Notification], None]:
        """Where the call's notifications go: its own stream, else the session's GET stream."""

        def tell(notification: Notification) -> None:
            message = self._dialect.notice(notification, token)
            if not (exchange.inbound.accepts_stream and exchange.stream().put(message)):
                host_session.publish(message)

        return tell
