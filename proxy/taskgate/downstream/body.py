"""The body of a request, from the moment somebody wants it: whole, in time and within bounds, or refused.

What must not live here: who may send one. What holds: nothing is waited for and nobody is told to go on before it is
asked for; what came by itself meanwhile is bounded by the connection's flow control.
"""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from aiohttp import hdrs, web
from aiohttp.http import HttpVersion11
from aiohttp.http_exceptions import HttpProcessingError

from taskgate.downstream.door import BAD_REQUEST, BODY_TOO_LARGE, TOO_SLOW, Refused

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class _Overdue(Exception):
    """The body did not come in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bodies:
    """Receives bodies of at most `max_body` bytes; each has `read_timeout` from when it is asked for."""

    max_body: int
    read_timeout: timedelta

    async def receive(self, http: web.BaseRequest) -> bytes:
        """The body of a request, for whom it is asked once. Raises Refused: too large, too slow, or broken off."""
        payload = http.content
        try:
            if not payload.is_eof():
                return await self._await(http)
            body = payload.read_nowait()
        except _Overdue:
            raise Refused(TOO_SLOW) from None
        except (web.RequestPayloadError, HttpProcessingError, OSError):
            raise Refused(BAD_REQUEST) from None
        if len(body) > self.max_body:
            raise Refused(BODY_TOO_LARGE)
        return body

    async def _await(self, http: web.BaseRequest) -> bytes:
        payload = http.content
        if hdrs.EXPECT in http.headers and http.version == HttpVersion11 and http.transport is not None:
            http.transport.write(_CONTINUE)
        overdue = asyncio.get_running_loop().call_later(
            self.read_timeout.total_seconds(), payload.set_exception, _Overdue()
        )
        pieces: list[bytes] = []
        room = self.max_body
        try:
            while piece := await payload.readany():
                room -= len(piece)
                if room < 0:
                    raise Refused(BODY_TOO_LARGE)
                pieces.append(piece)
        finally:
            overdue.cancel()
        return b"".join(pieces)
