"""The transport of one session, for those who have to know of whatever is sent whose it is.

What must not live here: what somebody is shown as (`credentials`), and what follows from who it is.
"""

from collections.abc import Coroutine
from typing import Any

from taskgate.upstream.base import Incoming, Outgoing, Transport
from taskgate.upstream.principal import PrincipalSource


class AttributedTransport:
    """Sends as `inner` does; what names nobody as its speaker is of whom the session speaks for."""

    def __init__(self, inner: Transport, principal_source: PrincipalSource) -> None:
        self._inner = inner
        self._speaks = principal_source

    # Hands on what is to be awaited: another coroutine to wait through would cost every request.
    def send(self, outgoing: Outgoing) -> Coroutine[Any, Any, Incoming]:
        """See Transport."""
        if outgoing.principal is None:
            outgoing = outgoing._replace(principal=self._speaks())
        return self._inner.send(outgoing)

    async def close(self) -> None:
        """Nothing: the ways to the server are not the session's."""
