"""The `initialize` request of one conversation, and its answer: `Handshake`.

`Beginnings.begin` creates one for each new connection. It sends the text of `asks` under `call`, and
passes the answer to `read`. If any of this fails, it calls `failed` once, which logs the failure.
"""

from taskgate.domain.versions import NEWEST_LEGACY, Peer
from taskgate.errors import UpstreamFailed
from taskgate.protocol.discovery import ServerDescription
from taskgate.protocol.messages import Response, value_of
from taskgate.upstream import failures
from taskgate.upstream.calls import Call, briefly
from taskgate.upstream.context import UpstreamContext
from taskgate.upstream.failures import Unwelcome
from taskgate.upstream.settings import TransportKind


class Handshake:
    """One handshake; `call` is the `Call` under which the request is sent."""

    __slots__ = ("_answered", "_upstream_context", "call")

    def __init__(self, upstream_context: UpstreamContext) -> None:
        self._upstream_context = upstream_context
        # The revision that the answer named, for the log: `read` may refuse it.
        self._answered = ""
        self.call = Call(next(upstream_context.ids), None, briefly(upstream_context.settings.first_byte))

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
