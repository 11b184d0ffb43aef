"""The `initialize` request of one conversation, and its answer: `Handshake`.

`Conversation.begin` sends it; `beginning` reports a failure for the log.
"""

from taskgate.domain.versions import NEWEST_LEGACY, Peer
from taskgate.errors import UpstreamFailed
from taskgate.protocol.discovery import ServerDescription
from taskgate.protocol.messages import Response, value_of
from taskgate.upstream import failures
from taskgate.upstream.calls import Call, UpstreamContext
from taskgate.upstream.failures import Unwelcome
from taskgate.upstream.patience import briefly
from taskgate.upstream.settings import TransportKind


class Handshake:
    """One handshake; `call` waits for its answer."""

    __slots__ = ("_said", "_upstream_context", "call")

    def __init__(self, upstream_context: UpstreamContext) -> None:
        self._upstream_context = upstream_context
        self._said = ""
        self.call = Call(next(upstream_context.ids), None, briefly(upstream_context.settings.first_byte))

    def asks(self, host: Peer | None) -> str:
        """Return the request, with the capabilities of `host`."""
        upstream_context = self._upstream_context
        return upstream_context.dialect.handshake(
            self.call.id, host, upstream_context.settings.revision or NEWEST_LEGACY
        )

    def read(self, response: Response) -> ServerDescription:
        """Return the server's identity. Raises UpstreamFailed; Unwelcome if the server refuses."""
        if response.error is not None:
            raise failures.no_session(failures.said_in(response))
        named = (response.result.members or {}) if response.result is not None else {}
        revision = value_of(named, "protocolVersion")
        self._said = f"revision {revision}" if isinstance(revision, str) else ""
        return self._upstream_context.dialect.read_welcome(response)

    def failed(self, failure: UpstreamFailed) -> None:
        """Log a failed handshake if the server got it, and its era does not explain the failure.

        If the era is not configured, `era` decides that and logs it.
        """
        settings = self._upstream_context.settings
        # With HTTP+SSE the event stream may be refused before the request is sent.
        was_asked = self.call.sent or settings.transport is TransportKind.SSE
        if was_asked and not (isinstance(failure, Unwelcome) and settings.era is None):
            self._upstream_context.reception.failed(settings, failure, self._said)
