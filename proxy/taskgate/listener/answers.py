"""The answers to hosts that are no event stream: `JsonDocument`, `plain_answer`, `public_document`.

`HostExchange` sends the gateway's reply as a `JsonDocument` if it has status 200, a body and no
extra headers, and the host speaks HTTP/1.1. `plain_answer` makes any other reply one of aiohttp's
own responses. `Endpoint` answers a request for a public document with `public_document`.

Each name of aiohttp's base class that is used here is covered by a test over a real socket.
"""

import asyncio
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final

from aiohttp import hdrs, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.helpers import rfc822_formatted_time
from multidict import CIMultiDict

from taskgate.jsontext.large import JsonChunks, MessageText
from taskgate.listener.door import Rejection, RequestRejected
from taskgate.listener.protocol import SERVER_NAME
from taskgate.streams.exchange import HttpReply

_HEAD: Final = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nServer: {SERVER_NAME}\r\n"
_CLOSE: Final = "Connection: close\r\n"
_ONE_PIECE: Final = 64 * 1024
"""Bytes of a body that are copied to be sent with the head. A larger body is sent after it."""
_LONG_PIECE: Final = 256 * 1024
"""Characters that are encoded and written at once; the event loop copies what the network does not
take."""

_EMPTY: Final = CIMultiDict({hdrs.SERVER: SERVER_NAME})
_JSON: Final = CIMultiDict({hdrs.CONTENT_TYPE: "application/json", hdrs.SERVER: SERVER_NAME})

_METHODS: Final = "GET, HEAD, OPTIONS"
_PUBLIC: Final = {hdrs.SERVER: SERVER_NAME, "Access-Control-Allow-Origin": "*"}
_DOCUMENT: Final = CIMultiDict(
    {**_PUBLIC, hdrs.CONTENT_TYPE: "application/json", hdrs.CACHE_CONTROL: "public, max-age=300"}
)
_PREFLIGHT: Final = CIMultiDict(
    {
        **_PUBLIC,
        "Access-Control-Allow-Methods": _METHODS,
        "Access-Control-Allow-Headers": "*",
        "Access-Control-Max-Age": "86400",
    }
)
_WRONG_METHOD: Final = Rejection(status=405, text="Method not allowed\n", allow=_METHODS)


class JsonDocument(web.StreamResponse):
    """Status 200 and a JSON text, for a host on HTTP/1.1.

    It costs a third of the general response, which has changeable headers, cookies, codings and
    ranges. The bytes are those that aiohttp would send, head and body together.
    """

    _http: web.BaseRequest

    def __init__(self, text: MessageText) -> None:
        # The base class's initializer is skipped: it creates objects that this answer does not
        # need.
        self._status = 200
        self._document: MessageText = text
        # Encoded sizes are computed here, because here an unencodable text can still be reported.
        counts_bytes = isinstance(text, JsonChunks) or text.isascii()
        self._size = len(text) if counts_bytes else sum(map(len, _pieces(text)))

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Store the request. The head is sent with the body."""
        self._http = request
        if self._keep_alive is None:
            self._keep_alive = request.keep_alive
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """Write head and body, and wait for a slow host. Raises ConnectionError if it has
        disconnected.
        """
        # A connection refers to its last answer until the next one is complete. That must hold
        # neither the text nor the request, whose head has the token.
        text, size, self._document = self._document, self._size, ""
        http = self._http
        del self._http
        connection = http.protocol
        close = "" if self._keep_alive else _CLOSE
        head = f"{_HEAD}Date: {rfc822_formatted_time()}\r\nContent-Length: {size}\r\n{close}\r\n".encode()
        is_large = size >= _ONE_PIECE
        piece: bytes | memoryview = b""
        try:
            for piece in chain((head,), _pieces(text)) if is_large else (head + text.encode(),):
                transport = connection.transport
                if transport is None or transport.is_closing():
                    raise ConnectionResetError
                transport.write(piece)
                if connection.writing_paused:
                    await http.writer.drain()
                if is_large:
                    # A fast host must not make the others wait.
                    await asyncio.sleep(0)
        finally:
            # The error of a host that disconnected holds all frames until cycles are collected.
            del http, text, piece


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


def plain_answer(reply: HttpReply) -> web.Response:
    """Return a reply of any status as a response of aiohttp."""
    if reply.body is None:
        response = web.Response(status=reply.status, headers=_EMPTY)
    else:
        response = web.Response(status=reply.status, body=reply.body.encode(), headers=_JSON)
    for name, value in reply.headers:
        response.headers[name] = value
    return response


def public_document(method: str, document: bytes) -> web.Response:
    """Return a public document, or the answer to a browser's preflight request.

    Such a document is the metadata of a protected resource (RFC 9728), by which a host finds the
    authorization server. It needs no authentication, because it is the same for all. Raises
    RequestRejected for another method.
    """
    if method == hdrs.METH_OPTIONS:
        return web.Response(status=204, headers=_PREFLIGHT)
    if method not in (hdrs.METH_GET, hdrs.METH_HEAD):
        raise RequestRejected(_WRONG_METHOD)
    return web.Response(body=document, headers=_DOCUMENT)
