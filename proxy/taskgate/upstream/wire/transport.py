"""Streamable HTTP to one server: `HttpTransport`, where each request goes to one URL.

`transport_choice` creates one per server, and `http.HttpUpstream` closes it at the end. The
sessions of both eras send through it (`sending`). `Origin` makes the single requests. The URL is
the configured one. A redirect within the server's own origin replaces it, until the server answers
404 at the new one.
"""

from collections.abc import Callable
from typing import Final

from taskgate.protocol.faults import protocol_violation
from taskgate.upstream.base import Outgoing
from taskgate.upstream.beside import LeftOut
from taskgate.upstream.settings import UpstreamSettings
from taskgate.upstream.wire.answer import HttpIncoming
from taskgate.upstream.wire.origin import Origin

UNKNOWN: Final = 404
"""The status by which a server says that it does not know the URL, or the session."""


class HttpTransport:
    """The `Transport` over HTTP. Connections are opened on demand, one for each concurrent request.

    - `send`: sends a request once, and returns the answer when its head has arrived. The caller
      must release it. Raises UpstreamFailed; an HTTP error status is not raised.
    - `close`: drops every connection.

    `retried` is called with the reason of every further attempt to connect. Creating a transport
    raises TlsFileRefused if a configured TLS file cannot be used.
    """

    def __init__(self, settings: UpstreamSettings, retried: Callable[[str], None] = lambda reason: None) -> None:
        self._left_out = LeftOut(settings.name)
        self._limit = settings.max_result
        self._origin = Origin(settings, retried)
        self._target = self._origin.configured

    async def send(self, outgoing: Outgoing) -> HttpIncoming:
        asked = self._target
        connection, message, body, target = await self._origin.request(outgoing, asked)
        if message.code == UNKNOWN:
            # The target of an earlier redirect may be gone: the next request tries the configured URL.
            self._target = self._origin.configured
        elif target is not asked:
            self._target = target
        try:
            return HttpIncoming(
                connection,
                message,
                body,
                limit=self._limit,
                idle=None if outgoing.idle is None else outgoing.idle.total_seconds(),
                left_out=self._left_out,
                placed=outgoing.placed,
            )
        except ValueError:
            connection.drop()
            raise protocol_violation("its answer has an invalid Content-Type") from None

    async def close(self) -> None:
        """Drop every connection; no further request can be sent."""
        await self._origin.close()
