"""A client that sends what it is told, byte by byte, and reads answers as strictly as it can.

No HTTP library stands in between: a test says what goes onto the wire, and sees what comes back and whether the
connection is still there.
"""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Self

from helpers.waiting import bounded


@dataclass(frozen=True, slots=True, kw_only=True)
class RawAnswer:
    """One response; header names are in lower case, and no header comes twice."""

    status: int
    headers: dict[str, str]
    body: bytes = b""


class RawHost:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, address: tuple[str, int], *, limit: int = 2**20, source: str | None = None) -> Self:
        """`limit` is how many bytes are read ahead of the test, about; `source` is the own address."""
        local = None if source is None else (source, 0)
        async with bounded():
            return cls(*await asyncio.open_connection(*address, limit=limit, local_addr=local))

    async def send(self, *pieces: str | bytes) -> None:
        """Write pieces one after another, as one segment each where the network lets them."""
        for piece in pieces:
            self._writer.write(piece.encode() if isinstance(piece, str) else piece)
            async with bounded():
                await self._writer.drain()

    def send_at_once(self, piece: bytes) -> None:
        """Give a piece to the system; what the other side makes of it is not waited for."""
        self._writer.write(piece)

    async def ask(self, *pieces: str | bytes) -> RawAnswer:
        """Send, and read one whole answer."""
        await self.send(*pieces)
        return await self.answer()

    async def answer(self, *, bodiless: bool = False) -> RawAnswer:
        """The next response, with its body; `bodiless` for the answer to HEAD."""
        head = await self.head()
        if bodiless:
            return head
        if head.headers.get("transfer-encoding") == "chunked":
            body = b"".join([chunk async for chunk in self.chunks()])
        elif "content-length" in head.headers:
            body = await self._exactly(int(head.headers["content-length"]))
        else:
            body = await self.rest()
        return RawAnswer(status=head.status, headers=head.headers, body=body)

    async def head(self) -> RawAnswer:
        """The head of the next response; what follows it stays to be read."""
        async with bounded():
            text = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = text.removesuffix("\r\n\r\n").split("\r\n")
        version, status, _ = first.split(" ", 2)
        assert version in ("HTTP/1.1", "HTTP/1.0"), first
        headers: dict[str, str] = {}
        for line in lines:
            name, colon, value = line.partition(": ")
            assert colon, line
            assert name.lower() not in headers, f"{name} came twice"
            headers[name.lower()] = value
        return RawAnswer(status=int(status), headers=headers)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The chunks of a body, as they come, to the last."""
        while chunk := await self.chunk():
            yield chunk

    async def chunk(self) -> bytes:
        """The next chunk; empty at the end."""
        async with bounded():
            size = int((await self._reader.readuntil(b"\r\n")).strip(), 16)
        return (await self._exactly(size + 2))[:-2]

    async def rest(self) -> bytes:
        """Everything up to the end of the connection, which must come. A reset ends it as well."""
        async with bounded():
            try:
                return await self._reader.read()
            except ConnectionError:
                return b""

    async def some(self, most: int) -> bytes:
        """What has come of a body, at most so many bytes; waits for the first."""
        async with bounded():
            return await self._reader.read(most)

    async def at_end(self) -> bool:
        """Whether the other side closes the connection without another byte; waits for it."""
        return await self.rest() == b""

    async def close(self) -> None:
        """Leave."""
        self._writer.close()
        async with bounded():
            with suppress(ConnectionError):
                await self._writer.wait_closed()

    def stop_sending(self) -> None:
        """End this side only."""
        self._writer.write_eof()

    def abort(self) -> None:
        """Leave without a word."""
        self._writer.transport.abort()

    def reset(self) -> None:
        """Break the connection, as a system does for a process that ends before it has read all."""
        connection: socket.socket = self._writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.abort()

    async def _exactly(self, size: int) -> bytes:
        async with bounded():
            return await self._reader.readexactly(size)


@asynccontextmanager
async def raw_host(address: tuple[str, int], source: str | None = None) -> AsyncIterator[RawHost]:
    """A connection for the length of a block, from an address of this machine."""
    host = await RawHost.connect(address, source=source)
    try:
        yield host
    finally:
        await host.close()


def post(body: str | bytes = "{}", *, path: str = "/mcp", host: str = "gate.example", **headers: str) -> bytes:
    """A POST as hosts send it. Headers are named with underscores; an empty value leaves a usual header out."""
    payload = body.encode() if isinstance(body, str) else body
    usual = {
        "Host": host,
        "Content_Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "Content_Length": str(len(payload)),
    }
    return request_head("POST", path, **{**usual, **headers}) + payload


def get(path: str = "/mcp", *, host: str = "gate.example", **headers: str) -> bytes:
    """A GET as hosts send it."""
    return request_head("GET", path, **{"Host": host, "Accept": "text/event-stream", **headers})


def request_head(method: str, path: str, **headers: str) -> bytes:
    """The head of a request, with the empty line that ends it."""
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items() if value]
    return "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode("latin-1")
