"""The answer that nearly every request gets: one JSON document, written together with its head.

What must not live here: any other answer; those are aiohttp's own responses. What holds: the bytes are those that
aiohttp would send. The names of the base class that are used here are each covered by a test over a real socket.
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
"""Bytes of a body that are copied to leave together with the head; a larger one leaves after it."""
_LONG_PIECE: Final = 256 * 1024
"""Letters that are encoded and handed to the event loop at once: it copies what the network does not take."""


class JsonDocument(web.StreamResponse):
    """Status 200 and a JSON text, to a host on HTTP/1.1.

    Costs a third of the general response, which keeps headers that can be changed, cookies, codings and ranges.
    """

    _connection: HostConnection

    def __init__(self, text: MessageText) -> None:
        # Not the base's: it would make what nobody asks this answer for.
        self._status = 200
        self._document: MessageText = text
        # Here, where what cannot be written is told in time.
        counts_bytes = isinstance(text, JsonChunks) or text.isascii()
        self._size = len(text) if counts_bytes else sum(map(len, _pieces(text)))

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
        # An idle connection keeps its last answer: that is not to keep the text.
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
                # A host that takes all at once would keep everybody else waiting.
                await asyncio.sleep(0)
        finally:
            # Of a host that has left the error is kept with all frames, until cycles are collected.
            del text, piece


def _pieces(text: MessageText) -> Iterator[bytes | memoryview]:
    """A large text as bytes, without a second copy of all of it."""
    if isinstance(text, JsonChunks):
        return text.windows()
    return (text[at : at + _LONG_PIECE].encode() for at in range(0, len(text), _LONG_PIECE))


class CountedDocument(JsonDocument):
    """The same, of a call whose bytes count: `written` is called once the host has all of it, or has left."""

    def __init__(self, text: MessageText, written: Callable[[], None]) -> None:
        super().__init__(text)
        self._written: Callable[[], None] | None = written

    def __del__(self) -> None:
        # One that was never written has a host that left before.
        self._settle()

    async def write_eof(self, data: bytes = b"") -> None:
        """See JsonDocument."""
        try:
            await super().write_eof(data)
        finally:
            self._settle()

    def _settle(self) -> None:
        written, self._written = self._written, None
        if written is not None:
            written()
