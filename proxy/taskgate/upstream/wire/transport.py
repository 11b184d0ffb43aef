"""Streamable HTTP to one server: `HttpTransport`, where each request is a POST or GET to one URL.

A redirect within the server's own origin is remembered for later requests. `Origin` makes one
request. Wrapped by `http.HttpUpstream`, used by the sessions of both eras.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from taskgate.upstream import failures
from taskgate.upstream.base import Outgoing
from taskgate.upstream.beside import LeftOut
from taskgate.upstream.settings import UpstreamSettings
from taskgate.upstream.wire.answer import HttpIncoming
from taskgate.upstream.wire.origin import REDIRECTS, Origin, seconds

UNKNOWN: Final = 404


class HttpTransport:
    """The `Transport` over HTTP. Connections are opened on demand, one for each concurrent request.

    `retried` is called with the reason of every further attempt to connect. Its creation raises
    TlsFileRefused.
    """

    def __init__(self, settings: UpstreamSettings, retried: Callable[[str], None] = lambda reason: None) -> None:
        self._left_out = LeftOut(settings.name)
        self._limit = settings.max_result
        self._origin = Origin(settings, retried)
        self._target = self._origin.configured

    async def send(self, outgoing: Outgoing) -> HttpIncoming:
        patience = seconds(outgoing.first_byte)
        until = None if patience is None else asyncio.get_running_loop().time() + patience
        answer = await self._origin.request(outgoing, self._target, until)
        if answer[1].code in REDIRECTS:
            answer, self._target = await self._origin.follow(outgoing, answer, self._target, until)
        connection, message, body = answer
        if message.code == UNKNOWN:
            # The target of an earlier redirect may be gone.
            self._target = self._origin.configured
        try:
            return HttpIncoming(
                connection,
                message,
                body,
                limit=self._limit,
                idle=seconds(outgoing.idle),
                left_out=self._left_out,
                placed=outgoing.placed,
            )
        except ValueError:
            connection.drop()
            raise failures.malformed("its answer has an invalid Content-Type") from None

    async def close(self) -> None:
        """Drop every connection; no further request can be sent."""
        await self._origin.close()
