"""A stretch of network between a host and a gateway, or a gateway and a server, which a test can cut, or hold up."""

import asyncio
import socket
from typing import Self

from helpers.waiting import bounded


class Cutter:
    """Passes bytes on between whoever connects to `port` and `address` behind it; `cut` breaks what is open."""

    def __init__(self) -> None:
        self.address = ("", 0)
        self._open: set[asyncio.StreamWriter] = set()
        self._passing: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = 0
        self.connections = 0
        """How many there have been."""
        self.passed = b""
        """What has passed, both ways."""
        self.holds: bytes | None = None
        """A piece with this in it waits until `goes_on` is set; `held` tells that one does."""
        self.held, self.goes_on = asyncio.Event(), asyncio.Event()

    async def __aenter__(self) -> Self:
        listening = socket.create_server(("127.0.0.1", 0))
        self.port = listening.getsockname()[1]
        self._server = await asyncio.start_server(self._take, sock=listening)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        async with bounded():
            if self._passing:
                await asyncio.wait(self._passing)
            await self._server.wait_closed()

    def cut(self) -> None:
        """Reset every connection, towards both sides."""
        for writer in tuple(self._open):
            writer.transport.abort()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            behind_reader, behind = await asyncio.open_connection(*self.address)
        except OSError:
            writer.transport.abort()
            return
        for each in (
            asyncio.create_task(self._pass(reader, behind)),
            asyncio.create_task(self._pass(behind_reader, writer)),
        ):
            self._passing.add(each)
            each.add_done_callback(self._passing.discard)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while piece := await reader.read(65_536):
                self.passed += piece
                if self.holds is not None and self.holds in piece:
                    self.held.set()
                    await self.goes_on.wait()
                writer.write(piece)
                await writer.drain()
        except OSError:
            pass
        finally:
            self._open.discard(writer)
            writer.close()
