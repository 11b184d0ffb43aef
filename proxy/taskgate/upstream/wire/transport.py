"""Bytes to and from one server over HTTP/1.1: each request a POST or GET of its own, to one address.

Where the server sends us within its own origin is remembered. What must not live here: how one request is made
(`origin`), and what a message means.
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
    """Moves bytes to and from one server. Connections are made when they are needed, as many as there are calls.

    `retried` is told the reason of every further try. Raises TlsFileRefused.
    """

    def __init__(self, settings: UpstreamSettings, retried: Callable[[str], None] = lambda reason: None) -> None:
        self._left_out = LeftOut(settings.name)
        self._limit = settings.max_result
        self._origin = Origin(settings, retried)
        self._target = self._origin.configured

    async def send(self, outgoing: Outgoing) -> HttpIncoming:
        """The answer's head; see Transport."""
        patience = seconds(outgoing.first_byte)
        until = None if patience is None else asyncio.get_running_loop().time() + patience
        answer = await self._origin.request(outgoing, self._target, until)
        if answer[1].code in REDIRECTS:
            answer, self._target = await self._origin.follow(outgoing, answer, self._target, until)
        connection, message, body = answer
        if message.code == UNKNOWN:
            # What was remembered of a redirect may be what is gone.
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
        """Drop every connection; nothing can be sent any more."""
        await self._origin.close()
