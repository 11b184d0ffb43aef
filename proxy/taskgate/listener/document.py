"""The usual answer, one JSON document: `JsonDocument`.

`Endpoint` uses it for status 200 without extra headers to an HTTP/1.1 host; other answers are
aiohttp's own responses. Head and body are written together. The bytes are those that aiohttp would
send. Each name of the base class that is used here is covered by a test over a real socket.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.helpers import rfc822_formatted_time

from taskgate.jsontext.large import JsonChunks, MessageText
from taskgate.listener.protocol import SERVER_NAME, HostConnection

_HEAD: Final = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nServer: {SERVER_NAME}\r\n"
_CLOSE: Final = "Connection: close\r\n"
_ONE_PIECE: Final = 64 * 1024
"""Bytes of a body that are copied to be sent with the head. A larger body is sent after it."""
_LONG_PIECE: Final = 256 * 1024
"""Characters that are encoded and written at once; the event loop copies what the network does not
take."""


class JsonDocument(web.StreamResponse):
    """Status 200 and a JSON text, for a host on HTTP/1.1.

    It costs a third of the general response, which has changeable headers, cookies, codings and
    ranges.
    """

    _connection: HostConnection

    def __init__(self, text: MessageText) -> None:
        # The base class's initializer is skipped: it creates objects that this answer does not
        # need.
        self._status = 200
        self._document: MessageText = text
        # Encoded sizes are computed here, because here an unencodable text can still be reported.
        counts_bytes = isinstance(text, JsonChunks) or text.isascii()
        self._size = len(text) if counts_bytes else sum(map(len, _pieces(text)))

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Store the connection. The head is sent with the body."""
        connection = request.protocol
        assert isinstance(connection, HostConnection)
        self._connection = connection
        if self._keep_alive is None:
            self._keep_alive = request.keep_alive
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """Write head and body, and wait for a slow host. Raises ConnectionError if it has
        disconnected.
        """
        # An idle connection refers to its last answer, which must not hold the text.
        text, size, self._document = self._document, self._size, ""
        close = "" if self._keep_alive else _CLOSE
        head = f"{_HEAD}Date: {rfc822_formatted_time()}\r\nContent-Length: {size}\r\n{close}\r\n".encode()
        piece: bytes | memoryview = b""
        try:
            if size < _ONE_PIECE:
                await self._connection.write(head + text.encode())
                return
            await self._connection.write(head)
            for piece in _pieces(text):
                await self._connection.write(piece)
                # A fast host must not make the others wait.
                await asyncio.sleep(0)
        finally:
            # The error of a host that disconnected holds all frames until cycles are collected.
            del text, piece


def _pieces(text: MessageText) -> Iterator[bytes | memoryview]:
    """Return a large text as bytes, in pieces, without a second copy of the whole."""
    if isinstance(text, JsonChunks):
        return text.windows()
    return (text[at : at + _LONG_PIECE].encode() for at in range(0, len(text), _LONG_PIECE))


class CountedDocument(JsonDocument):
    """A JSON document whose bytes count as in flight.

    `written` is called once: when the document is sent, or when it is dropped unsent.
    """

    def __init__(self, text: MessageText, written: Callable[[], None]) -> None:
        super().__init__(text)
        self._written: Callable[[], None] | None = written

    def __del__(self) -> None:
        # An answer that was not written has a host that disconnected before.
        self._settle()

    async def write_eof(self, data: bytes = b"") -> None:
        """Write the document, then call `written`."""
        try:
            await super().write_eof(data)
        finally:
            self._settle()

    def _settle(self) -> None:
        written, self._written = self._written, None
        if written is not None:
            written()
