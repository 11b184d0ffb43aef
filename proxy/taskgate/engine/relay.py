"""Plain calls: a request of a host crosses to its server, the answer comes back, nothing is stored.

The answer is one JSON document unless the host has to wait: the first thing that the server says or asks besides, or
the first keep-alive interval without an answer, turns it into an event stream. A host that leaves does not stop the
call (H-LEG-10); only its `notifications/cancelled` does.
"""

from collections.abc import Awaitable, Mapping
from datetime import timedelta
from typing import Any, Final, NamedTuple

from taskgate.alarms import Alarms
from taskgate.auth.context import AuthContext
from taskgate.dialects.base import DownstreamDialect, Params
from taskgate.dialects.progress import done_of
from taskgate.engine.guard.callers import speaker
from taskgate.engine.messages import Exchange, Feed
from taskgate.engine.pulse import Pulse
from taskgate.engine.sessions import HostSession
from taskgate.errors import CutOff
from taskgate.interruption import Interrupted, Interruptible
from taskgate.mcp.jsonrpc import Notification, RequestId, Response
from taskgate.mcp.vocabulary import NOTE_PROGRESS
from taskgate.upstream.base import ServerQuestion

STEP: Final = 1e-6
"""How much further each sign of life of ours says that a call is: it must grow, and get in no server's way."""


CUT_OFF: Final = "The gateway shut down while the call was running; it may or may not have completed"


class Asked(NamedTuple):
    """A request of a host that is for its server; `tool` is what a `tools/call` calls."""

    id: RequestId
    method: str
    params: Params | None
    progress_token: RequestId | None
    tool: str | None = None


class Relaying:
    """Carries plain calls. `patience` is the time after which a silent answer becomes a stream."""

    def __init__(self, *, dialect: DownstreamDialect, patience: timedelta) -> None:
        self._dialect = dialect
        self._patience = patience.total_seconds()
        self._alarms = Alarms(self._patience)
        self._running: set[Interruptible] = set()
        self._stopping = False

    async def forward(
        self, exchange: Exchange, caller: AuthContext, host_session: HostSession, asked: Asked
    ) -> Response:
        """The server's response.

        Raises UpstreamFailed, Interrupted when the host cancelled the request, and CutOff when the gateway ends.
        """
        streams = exchange.inbound.accepts_stream
        if streams and not exchange.inbound.accepts_json:
            exchange.stream()
        hearer = _CallHearer(exchange, host_session, self._dialect, asked.progress_token)
        pulse = Pulse(self._alarms, self._patience, hearer.live) if streams else None
        call = Interruptible()
        host_session.calls[call] = asked.id
        self._running.add(call)
        try:
            with call:
                if self._stopping:
                    # It was late to come here: those that were carried have been given up.
                    call.interrupt()
                return await host_session.upstream.relay(
                    asked.method, asked.params, hearer=hearer, tool=asked.tool, speaker=speaker(caller)
                )
        except Interrupted:
            if self._stopping:
                raise CutOff(CUT_OFF) from None
            raise
        finally:
            if pulse is not None:
                pulse.stop()
            del host_session.calls[call]
            self._running.discard(call)

    def stop(self) -> None:
        """Give up what is still carried, or begins to be: hosts are told so."""
        self._stopping = True
        for call in self._running:
            call.interrupt()

    def cancel(self, host_session: HostSession, id: RequestId) -> None:
        """The host gave a request up; one that is not in flight is none of ours to know."""
        # The newest, should the host have used an id twice.
        call = next((call for call, its in reversed(host_session.calls.items()) if its == id), None)
        if call is not None:
            call.interrupt()

    def close(self) -> None:
        """No call is carried any more."""
        self._alarms.close()


class _CallHearer:
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

    def notice(self, notification: Notification) -> None:
        """See Hearer."""
        self._spoke = True
        if self._token is not None and notification.method == NOTE_PROGRESS and not self._is_further(notification):
            return
        message = self._dialect.notice(notification, self._token)
        if not (self._exchange.inbound.accepts_stream and self._exchange.stream().put(message)):
            self._host_session.publish(message)

    def clog(self) -> Awaitable[None] | None:
        """See Hearer."""
        return self._exchange.stream().clog() if self._exchange.streams else None

    @property
    def passes_rounds(self) -> bool:
        """See Hearer."""
        return False

    def asked(self, question: ServerQuestion) -> None:
        """See Hearer."""
        questions, exchange = self._host_session.questions, self._exchange
        questions.ask(question, self, self._host_session)
        if exchange.inbound.accepts_stream and not self._watches_host:
            self._watches_host = True
            feed = exchange.stream()
            feed.when_lost(lambda: questions.stream_ended(feed))

    def refused(self, required: Mapping[str, Any]) -> None:
        """See Hearer: in the initialize era the server alone is told."""

    def carry(self, message: str) -> Feed | None:
        """Ask something on the call's own stream; see Carrier."""
        if not self._exchange.inbound.accepts_stream:
            return None
        feed = self._exchange.stream()
        return feed if feed.put_now(message) else None

    def live(self) -> None:
        """Show the host that the call still runs, where nothing else did: its own bound may end with silence."""
        feed = self._exchange.stream()
        if self._token is not None and not self._spoke:
            self._done = 0.0 if self._done is None else self._done + STEP
            self._has_made_up = True
            feed.put_now(self._dialect.progress(self._token, self._done, "Still running"))
        self._spoke = False

    def _is_further(self, notification: Notification) -> bool:
        """Whether progress of the server may be told: not where it is behind what we made up, for it must grow."""
        done = done_of(notification)
        if self._has_made_up and (done is None or (self._done is not None and done <= self._done)):
            return False
        if done is not None:
            self._done = done
        return True
