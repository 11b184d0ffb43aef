"""A server that accepts connections and leaves it to the test what is said on them, byte by byte."""

import asyncio
import ssl
from typing import Self

from helpers.waiting import bounded


class Line:
    """One accepted connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def head(self) -> str:
        """The head of the next request."""
        async with bounded():
            return (await self.reader.readuntil(b"\r\n\r\n")).decode()

    async def request(self) -> tuple[str, bytes]:
        """The next request, head and body."""
        head = await self.head()
        _, found, rest = head.partition("Content-Length: ")
        async with bounded():
            return head, await self.reader.readexactly(int(rest.split("\r\n")[0]) if found else 0)

    async def say(self, *pieces: bytes) -> None:
        """Write pieces one after another."""
        for piece in pieces:
            self.writer.write(piece)
            async with bounded():
                await self.writer.drain()

    async def at_end(self) -> bool:
        """Whether the other side ends the connection; waits for it."""
        async with bounded():
            try:
                while await self.reader.read(2**16):
                    pass
            except ConnectionError:
                pass
        return True


class RawServer:
    """Listens for the length of a block; `accepted` has every connection, `next` waits for one."""

    def __init__(self, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None, port: int = 0) -> None:
        self._host = host
        self._tls = tls
        self._new: asyncio.Queue[Line] = asyncio.Queue()
        self.accepted: list[Line] = []
        self.port = port

    async def next(self) -> Line:
        """The next connection that was not yet handed out."""
        async with bounded():
            return await self._new.get()

    def url(self, scheme: str = "http") -> str:
        """Where it listens."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{scheme}://{host}:{self.port}/mcp"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, self._host, self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for line in self.accepted:
            line.writer.transport.abort()
        async with bounded():
            await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = Line(reader, writer)
        self.accepted.append(line)
        self._new.put_nowait(line)
