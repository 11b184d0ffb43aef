"""The answer that nearly every request gets: one JSON document, written together with its head.

What must not live here: any other answer; those are aiohttp's own responses. What holds: the bytes are those that
aiohttp would send. The names of the base class that are used here are each covered by a test over a real socket.
"""

from typing import Final

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.helpers import rfc822_formatted_time

from taskgate.downstream.protocol import SERVER_NAME, HostConnection

_HEAD: Final = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nServer: {SERVER_NAME}\r\n"
_CLOSE: Final = "Connection: close\r\n"
_ONE_PIECE: Final = 64 * 1024
"""Bytes of a body that are copied to leave together with the head; a larger one leaves after it."""
_LONG_PIECE: Final = 256 * 1024
"""Bytes that are handed to the event loop at once: it copies what the network does not take."""


class Document(web.StreamResponse):
    """Status 200 and a JSON text, to a host on HTTP/1.1.

    Costs a third of the general response, which keeps headers that can be changed, cookies, codings and ranges.
    """

    _connection: HostConnection

    def __init__(self, text: str) -> None:
        # Not the base's: it would make what nobody asks this answer for.
        self._status = 200
        self._document = text.encode()

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Take note of the connection; the head leaves with the body."""
        connection = request.protocol
        assert isinstance(connection, HostConnection)
        self._connection = connection
        if self._keep_alive is None:
            self._keep_alive = request.keep_alive
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """Write everything, and wait for a host that reads slowly. Raises ConnectionError where it has left."""
        body = self._document
        close = "" if self._keep_alive else _CLOSE
        head = f"{_HEAD}Date: {rfc822_formatted_time()}\r\nContent-Length: {len(body)}\r\n{close}\r\n".encode()
        if len(body) < _ONE_PIECE:
            await self._connection.write(head + body)
            return
        await self._connection.write(head)
        whole = memoryview(body)
        for at in range(0, len(body), _LONG_PIECE):
            await self._connection.write(whole[at : at + _LONG_PIECE])
