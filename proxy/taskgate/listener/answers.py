"""The answers to hosts that are no event stream: `JsonDocument`, and `Answer` for all others.

`HostExchange` sends the gateway's reply as a `JsonDocument` if it has status 200, a body and no
extra headers, and the host speaks HTTP/1.1. `plain_answer` makes an `Answer` of any other reply.
`Endpoint` sends public documents (`public_document`), answers to browsers (`preflight`) and its own
rejections (`refuse`). Head and
body are written in one piece, except for large documents.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import ClassVar, Final

from aiohttp import hdrs
from aiohttp.helpers import rfc822_formatted_time
from aiohttp.http import HttpVersion10, HttpVersion11
from multidict import CIMultiDict

from taskgate.jsontext.large import JsonChunks, MessageText
from taskgate.listener.door import HostHead, Rejection, RequestRejected
from taskgate.listener.protocol import SERVER_NAME, HostConnection, HostRequest, HttpResponse
from taskgate.protocol.faults import error_object, own_data
from taskgate.protocol.jsonrpc import unread_error_text
from taskgate.protocol.vocabulary import INVALID_REQUEST, OVER_LIMIT, UNAVAILABLE
from taskgate.streams.exchange import HttpReply

_HEAD: Final = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nServer: {SERVER_NAME}\r\n"
CLOSE: Final = "Connection: close\r\n"
_ONE_PIECE: Final = 64 * 1024
"""Bytes of a body that are copied to be sent with the head. A larger body is sent after it."""
_LONG_PIECE: Final = 256 * 1024
"""Characters or bytes that are written at once; the event loop copies what the network does not
take."""
_CODES: Final = {429: OVER_LIMIT, 503: UNAVAILABLE}
"""JSON-RPC codes of rejections by their HTTP status; INVALID_REQUEST for any other."""
_REASONS: Final = {each.value: each.phrase for each in HTTPStatus}
_FORBIDDEN: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
"""Characters that would end a header field, or that a field must not have."""

_EMPTY: Final = CIMultiDict({hdrs.SERVER: SERVER_NAME})
_JSON: Final = CIMultiDict({hdrs.CONTENT_TYPE: "application/json", hdrs.SERVER: SERVER_NAME})
_METHODS: Final = "GET, HEAD, OPTIONS"
_PUBLIC: Final = {hdrs.SERVER: SERVER_NAME, "Access-Control-Allow-Origin": "*"}
FRONT_PAGE: Final = "/"
"""The path of the page for people, unless a mount has it."""
PAGE_HEADERS: Final = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; form-action 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
"""The headers of a page that needs nothing but itself."""
_PAGE: Final = CIMultiDict({hdrs.SERVER: SERVER_NAME, **PAGE_HEADERS})
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
_CORS_PREFLIGHT: Final = CIMultiDict(
    {
        hdrs.SERVER: SERVER_NAME,
        "Access-Control-Allow-Methods": "POST, GET, DELETE",
        "Access-Control-Max-Age": "7200",
    }
)
_REQUEST_FIELDS: Final = (
    "Accept, Authorization, Content-Type, Last-Event-ID, Mcp-Method, Mcp-Name, Mcp-Protocol-Version, Mcp-Session-Id, "
    "X-API-Key, Traceparent, Tracestate"
)
"""The header fields that a page may send; those that repeat arguments are allowed by their beginning."""
_ARGUMENT_FIELD: Final = re.compile(r"mcp-param-[a-z0-9_-]{1,128}").fullmatch
_WRONG_METHOD: Final = Rejection(status=405, text="Method not allowed", allow=_METHODS)


@dataclass(slots=True, eq=False)
class Answer:
    """An answer of any status, with a body that is small or absent.

    `is_rejection`: it is sent as HTTP/1.1, not in the version that may be what was rejected.
    """

    status: int
    fields: CIMultiDict[str]
    body: bytes = b""
    is_rejection: bool = False
    keep_alive: bool | None = None

    def send(self, request: HostRequest) -> Awaitable[None] | None:
        """Write head and body, and return the wait for a slow host."""
        if request.is_answered:
            return None
        fields, body = self.fields, self.body
        is_head = request.head.method == hdrs.METH_HEAD
        if self.status not in (204, 304) and (body or not is_head):
            fields = CIMultiDict(fields)
            fields[hdrs.CONTENT_LENGTH] = str(len(body))
        head = _begin(self, request, fields, HttpVersion11 if self.is_rejection else request.head.version)
        connection = request.connection
        connection.transport.write(head if is_head else head + body)
        return connection.drain() if connection.writing_paused else None


def _begin(answer: HttpResponse, request: HostRequest, fields: CIMultiDict[str], version: tuple[int, int]) -> bytes:
    """Return the head of the answer, which is written next.

    Raises ConnectionError if the host has disconnected, and ValueError for a field that could be
    read as several.
    """
    if answer.keep_alive is None:
        answer.keep_alive = request.head.keep_alive
    lines = [f"HTTP/{version[0]}.{version[1]} {answer.status} {_REASONS.get(answer.status, '')}"]
    lines.extend(f"{name}: {value}" for name, value in fields.items())
    lines.append(f"{hdrs.DATE}: {rfc822_formatted_time()}")
    if answer.keep_alive and version == HttpVersion10:
        lines.append("Connection: keep-alive")
    elif not answer.keep_alive and version == HttpVersion11:
        lines.append("Connection: close")
    if any(_FORBIDDEN.search(line) for line in lines):
        raise ValueError("a control character in a header field")
    if request.connection.transport.is_closing():
        raise ConnectionResetError
    request.is_answered = True
    # As aiohttp wrote it: without what UTF-8 cannot express.
    return "\r\n".join([*lines, f"{request.head.cors}\r\n"]).encode(errors="ignore")


class JsonDocument:
    """Status 200 and a JSON text, for a host on HTTP/1.1. `size` is its size in bytes."""

    __slots__ = ("keep_alive", "size", "text")

    status: ClassVar[int] = 200

    def __init__(self, text: MessageText, size: int) -> None:
        self.text = text
        self.size = size
        self.keep_alive: bool | None = None

    def send(self, request: HostRequest) -> Awaitable[None] | None:
        """Write head and body, and return the wait for a slow host. Raises ConnectionError if it has
        disconnected.
        """
        if request.is_answered:
            return None
        request.is_answered = True
        text, self.text = self.text, ""
        connection = request.connection
        if self.keep_alive is None:
            self.keep_alive = request.head.keep_alive
        close = "" if self.keep_alive else CLOSE
        length = f"Content-Length: {self.size}\r\n"
        head = f"{_HEAD}Date: {rfc822_formatted_time()}\r\n{length}{request.head.cors}{close}\r\n"
        if self.size >= _ONE_PIECE:
            return _send_pieces(connection, head, text)
        if connection.transport.is_closing():
            # The error of a host that disconnected holds all frames until cycles are collected.
            # They must hold neither the text nor the request, whose head has the token.
            del request, text
            raise ConnectionResetError
        connection.transport.write(head.encode() + text.encode())
        return connection.drain() if connection.writing_paused else None


async def _send_pieces(connection: HostConnection, head: str, text: MessageText) -> None:
    """Write a large document in pieces, and wait for a slow host after each."""
    piece: bytes | memoryview = b""
    try:
        # The head goes with the first piece.
        for piece in pieces(text, head):
            if connection.transport.is_closing():
                raise ConnectionResetError
            connection.transport.write(piece)
            if connection.writing_paused:
                await connection.drain()
            # A fast host must not make the others wait.
            await asyncio.sleep(0)
    finally:
        # As for a small one.
        del text, piece


def encoded_size(text: MessageText) -> int:
    """Return the size of a text in bytes. Raises UnicodeEncodeError if it has none."""
    return len(text) if isinstance(text, JsonChunks) or text.isascii() else sum(map(len, pieces(text)))


def pieces(text: MessageText, head: str = "") -> Iterator[bytes | memoryview]:
    """Return a large text behind a head as bytes, in pieces, without a second copy of the whole."""
    if isinstance(text, JsonChunks):
        return text.wrapped(head, "").windows(_LONG_PIECE)
    starts = range(0, len(text), _LONG_PIECE)
    return (f"{'' if at else head}{text[at : at + _LONG_PIECE]}".encode() for at in starts)


class WatchedAnswer:
    """An answer whose end is reported.

    `settled` is called once, with whether the operating system has taken all of it. It gets False when the
    answer is dropped unsent, or its host has disconnected before.
    """

    __slots__ = ("_answer", "_settled")

    def __init__(self, answer: HttpResponse, settled: Callable[[bool], None]) -> None:
        self._answer = answer
        self._settled: Callable[[bool], None] | None = settled

    def __del__(self) -> None:
        # An answer that was not written has a host that disconnected before.
        self._settle(was_sent=False)

    @property
    def status(self) -> int:
        return self._answer.status

    @property
    def keep_alive(self) -> bool | None:
        return self._answer.keep_alive

    @keep_alive.setter
    def keep_alive(self, keep_alive: bool | None) -> None:
        self._answer.keep_alive = keep_alive

    async def send(self, request: HostRequest) -> None:
        """Write the answer, and wait until it has left."""
        was_sent = False
        try:
            unsent = self._answer.send(request)
            if unsent is not None:
                await unsent
            await request.connection.flush()
            was_sent = True
        finally:
            self._settle(was_sent=was_sent)

    def _settle(self, *, was_sent: bool) -> None:
        settled, self._settled = self._settled, None
        if settled is not None:
            settled(was_sent)


def plain_answer(reply: HttpReply) -> Answer:
    """Return a reply of any status as an answer."""
    fields = CIMultiDict(_EMPTY if reply.body is None else _JSON)
    for name, value in reply.headers:
        fields[name] = value
    return Answer(reply.status, fields, b"" if reply.body is None else bytes(reply.body.encode()))


async def refuse(request: HostRequest, refusal: Rejection) -> Answer:
    """Return an answer with the constant text of a rejection: a JSON-RPC error to a POST, else text.

    Only a POST has a message, whose host shows such an error to its user. If the rejection closes the
    connection, or the body has not all arrived, the answer is also sent, as the last one.
    """
    fields, body = CIMultiDict(_EMPTY), b""
    if refusal.text and request.head.method == hdrs.METH_POST:
        fields, body = CIMultiDict(_JSON), _error_of(refusal)
    elif refusal.text:
        fields[hdrs.CONTENT_TYPE], body = "text/plain; charset=utf-8", f"{refusal.text}\n".encode()
    if refusal.allow is not None:
        fields[hdrs.ALLOW] = refusal.allow
    answer = Answer(refusal.status, fields, body, is_rejection=True)
    if refusal.close or request.body is None:
        await request.connection.answer_last(request, answer)
    return answer


def _error_of(refusal: Rejection) -> bytes:
    data = None if refusal.reason is None else own_data(refusal.reason)
    code = _CODES.get(refusal.status, INVALID_REQUEST)
    return unread_error_text(error_object(code, refusal.text, data)).encode()


def preflight(head: HostHead) -> Answer | None:
    """Return the answer to a browser that asks for its page what the gateway accepts; None for another request.

    It is the same for all paths and needs no authentication, because browsers send none.
    """
    if not head.cors or head.method != hdrs.METH_OPTIONS or "Access-Control-Request-Method" not in head.headers:
        return None
    asked = ",".join(head.headers.getall("Access-Control-Request-Headers", ())).lower().split(",")
    fields = CIMultiDict(_CORS_PREFLIGHT)
    arguments = filter(_ARGUMENT_FIELD, map(str.strip, asked))
    fields["Access-Control-Allow-Headers"] = ", ".join((_REQUEST_FIELDS, *arguments))
    return Answer(204, fields)


def is_page_request(method: str, accept: Sequence[str]) -> bool:
    """Whether a browser asks for a page, and no host for a mount."""
    return method in (hdrs.METH_GET, hdrs.METH_HEAD) and any("text/html" in each for each in accept)


def front_page(document: bytes) -> Answer:
    """Return the page for people who open the address of the listener in a browser."""
    return Answer(200, CIMultiDict(_PAGE), document)


def public_document(method: str, document: bytes) -> Answer:
    """Return a public document, or the answer to a browser's preflight request.

    Such a document is the metadata of a protected resource (RFC 9728), by which a host finds the
    authorization server. It needs no authentication, because it is the same for all. Raises
    RequestRejected for another method.
    """
    if method == hdrs.METH_OPTIONS:
        return Answer(204, CIMultiDict(_PREFLIGHT))
    if method not in (hdrs.METH_GET, hdrs.METH_HEAD):
        raise RequestRejected(_WRONG_METHOD)
    return Answer(200, CIMultiDict(_DOCUMENT), document)
