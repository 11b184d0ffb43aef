"""The server behind every target: an MCP server of either era over streamable HTTP, as cheap as Python lets it be.

What lives here is a server on `asyncio.Protocol` and its tools; nothing is validated and no session is kept, because
whatever is spent here is spent on the cores of the program under test. `/control/` is the bench's own way in: how many
calls are held and answered, and the release of the held ones. One request at a time per connection; a body needs its
length.
"""

import asyncio
import contextlib
import functools
import re
import secrets
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import orjson

from bench import serving
from bench.catalogue import CATALOGUE

EVENT_PAUSE = 0.010  # seconds between the progress events of `stream`, so that events reach a target one by one
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_ACCEPTED = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
_GONE = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
_NO_STREAM = b"HTTP/1.1 405 Method Not Allowed\r\nAllow: POST, DELETE\r\nContent-Length: 0\r\n\r\n"
_NO_LENGTH = b"HTTP/1.1 411 Length Required\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class Floor:
    """What all connections share: the held calls, and counts that only grow."""

    def __init__(self, *, get_stream: bool) -> None:
        self.get_stream = get_stream
        self.held: dict[Connection, bytes] = {}
        self.answered = 0

    def counts(self) -> bytes:
        """The counts as JSON: calls held now, tool calls answered since the start."""
        return orjson.dumps({"held": len(self.held), "answered": self.answered})

    def release(self) -> None:
        """Answer every held call."""
        held, self.held = self.held, {}
        for connection, number in held.items():
            connection.write(_result(number, _content("released")))
            self.answered += 1


def _json(body: bytes, head: bytes = b"") -> bytes:
    line = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%b\r\n%b"
    return line % (len(body), head, body)


def _result(number: bytes, result: bytes, head: bytes = b"") -> bytes:
    return _json(b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (number, result), head)


def _content(text: str) -> bytes:
    return b'{"content":[{"type":"text","text":%b}],"isError":false}' % orjson.dumps(text)


@functools.cache
def _big(size: int) -> bytes:
    return _content("begin " + "x" * (size - 6))


def content_of(tool: object, given: dict[str, Any]) -> bytes:
    """What a tool comes to that answers at once."""
    match tool:
        case "big":
            return _big(int(given["bytes"]))
        case "count":
            return _content(str(len(given["text"])))
        case _:
            return _content(str(given.get("text", "")))


def _event(body: bytes) -> bytes:
    event = b"event: message\r\ndata: %b\r\n\r\n" % body
    return b"%x\r\n%b\r\n" % (len(event), event)


class Connection(asyncio.Protocol):
    """One keep-alive connection."""

    def __init__(self, floor: Floor) -> None:
        self._floor = floor
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.write: Callable[[bytes], None] = self._transport.write

    def connection_lost(self, exc: Exception | None) -> None:
        self._floor.held.pop(self, None)

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        while (end := received.find(b"\r\n\r\n")) >= 0:
            head = bytes(received[:end])
            found = _LENGTH.search(head)
            stop = end + 4 + (int(found[1]) if found else 0)
            if len(received) < stop:
                return
            body = bytes(memoryview(received)[end + 4 : stop])
            del received[:stop]
            self._answer(head, body)

    def _answer(self, head: bytes, body: bytes) -> None:
        verb, path, _ = head.split(b" ", 2)
        if path.startswith(b"/control/"):
            self._answer_bench(path)
        elif verb == b"POST" and body:
            self._answer_message(orjson.loads(body))
        elif verb == b"POST":
            self.write(_NO_LENGTH)
        elif verb == b"GET":
            self.write(_EVENTS if self._floor.get_stream else _NO_STREAM)
        else:
            self.write(_GONE)

    def _answer_bench(self, path: bytes) -> None:
        if path == b"/control/release":
            self._floor.release()
        self.write(_json(self._floor.counts()))

    def _answer_message(self, message: dict[str, object]) -> None:
        if "id" not in message or "method" not in message:
            self.write(_ACCEPTED)
            return
        number = orjson.dumps(message["id"])
        params = message.get("params")
        match message["method"]:
            case "tools/call" if isinstance(params, dict):
                self._call(number, params)
            case "tools/list":
                self.write(_result(number, CATALOGUE))
            case "ping":
                self.write(_result(number, b"{}"))
            case "initialize":
                self.write(_result(number, INITIALIZED, b"Mcp-Session-Id: %b\r\n" % secrets.token_hex(16).encode()))
            case "server/discover":
                self.write(_result(number, _DISCOVERED))
            case _:
                error = b'{"jsonrpc":"2.0","id":%b,"error":{"code":-32601,"message":"Method not found"}}'
                self.write(_json(error % number))

    def _call(self, number: bytes, params: dict[str, object]) -> None:
        given = params.get("arguments") or {}
        assert isinstance(given, dict)
        match params["name"]:
            case "hold":
                self._floor.held[self] = number
                return
            case "stream" if given.get("at_once"):
                token, last = _token(params), int(given["events"])
                notes = b"".join(_event(_PROGRESS % (token, step, last)) for step in range(1, last + 1))
                self.write(_EVENTS + notes + _streamed(number))
            case "stream":
                self._report(number, _token(params), 1, int(given["events"]))
                return
            case name:
                self.write(_result(number, content_of(name, given)))
        self._floor.answered += 1

    def _report(self, number: bytes, token: bytes, step: int, last: int) -> None:
        """Send progress `step` of `last`, and the next one a pause later; after the last one, the answer."""
        assert self._transport is not None
        if self._transport.is_closing():
            return
        if step == 1:
            self.write(_EVENTS)
        if step > last:
            self.write(_streamed(number))
            self._floor.answered += 1
            return
        self.write(_event(_PROGRESS % (token, step, last)))
        loop = asyncio.get_running_loop()
        loop.call_later(EVENT_PAUSE, self._report, number, token, step + 1, last)


def _streamed(number: bytes) -> bytes:
    body = b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (number, _content("streamed"))
    return _event(body) + b"0\r\n\r\n"


def _token(params: dict[str, object]) -> bytes:
    meta = params.get("_meta")
    return orjson.dumps(meta.get("progressToken") if isinstance(meta, dict) else None)


_PROGRESS = (
    b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%b,"progress":%d,"total":%d,'
    b'"message":"reading the next part of the collection"}}'
)
INITIALIZED = orjson.dumps(
    {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {"listChanged": False}},
        "serverInfo": {"name": "stub", "version": "1"},
    }
)
_DISCOVERED = orjson.dumps(
    {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {}},
        "ttlMs": 0,
        "cacheScope": "private",
    }
)


@contextlib.asynccontextmanager
async def opened(port: int, *, get_stream: bool) -> AsyncIterator[serving.Server]:
    """The stub, listening on loopback."""
    floor = Floor(get_stream=get_stream)
    async with await serving.listen(lambda: Connection(floor), port) as server:
        yield server


def main() -> None:
    """Serve until told to end."""
    parser = serving.arguments("the server behind every target")
    parser.add_argument("--get-stream", action="store_true", help="hold a GET open as an event stream instead of 405")
    given = parser.parse_args()
    serving.serve(opened(given.port, get_stream=given.get_stream))


if __name__ == "__main__":
    main()
