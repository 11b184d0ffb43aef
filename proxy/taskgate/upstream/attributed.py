"""Identity of outgoing requests: `AttributedTransport` adds the session's principal to each.

`http` puts it around the transport of a session when that transport must know the principal of
every request. A stdio transport does: callers may have separate programs.
"""

from collections.abc import Coroutine
from typing import Any

from taskgate.upstream.base import Incoming, Outgoing, Transport
from taskgate.upstream.principal import PrincipalSource


class AttributedTransport:
    """Transport that fills in the principal of the session when a request names none."""

    def __init__(self, inner: Transport, principal_source: PrincipalSource) -> None:
        self._inner = inner
        self._principal_source = principal_source

    # Returns the inner coroutine: one more coroutine to await would cost every request.
    def send(self, outgoing: Outgoing) -> Coroutine[Any, Any, Incoming]:
        if outgoing.principal is None:
            outgoing = outgoing._replace(principal=self._principal_source())
        return self._inner.send(outgoing)

    async def close(self) -> None:
        """Do nothing: the inner transport is shared by all sessions with the server."""
