"""A stretch of network that a fault can befall: it passes bytes on, keeps them back, or breaks what is open.

What must not live here: when it does which (`schedule`).
"""

import asyncio
from enum import Enum
from typing import Self

from helpers.waiting import bounded


class Way(Enum):
    """What becomes of what is sent."""

    OPEN = "open"
    SILENT = "silent"
    """Nothing arrives, and nobody is told: what was on its way arrives later."""
    BROKEN = "broken"
    """Connections are reset, and new ones refused."""


class Stretch:
    """Between whoever connects to `port` and the first of `targets` that lets it; the one asked first moves on."""

    def __init__(self, *targets: tuple[str, int]) -> None:
        self.targets = list(targets)
        self.port = 0
        self._way = Way.OPEN
        self._opened = asyncio.Event()
        self._opened.set()
        self._turn = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._passing: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def way(self) -> Way:
        """What becomes of what is sent now."""
        return self._way

    @way.setter
    def way(self, way: Way) -> None:
        self._way = way
        if way is Way.SILENT:
            self._opened.clear()
        else:
            self._opened.set()
        if way is Way.BROKEN:
            for writer in tuple(self._writers):
                writer.transport.abort()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._take, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.way = Way.BROKEN
        async with bounded():
            while self._passing:
                await asyncio.wait(tuple(self._passing))
            await self._server.wait_closed()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        beyond = None if self._way is Way.BROKEN else await self._beyond()
        if beyond is None:
            writer.transport.abort()
            return
        for each in (self._pass(reader, beyond[1]), self._pass(beyond[0], writer)):
            task = asyncio.create_task(each)
            self._passing.add(task)
            task.add_done_callback(self._passing.discard)

    async def _beyond(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        self._turn += 1
        for number in range(len(self.targets)):
            host, port = self.targets[(self._turn + number) % len(self.targets)]
            try:
                return await asyncio.open_connection(host, port)
            except OSError:
                continue
        return None

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while piece := await reader.read(65_536):
                await self._opened.wait()
                writer.write(piece)
                await writer.drain()
        except OSError:
            pass
        finally:
            self._writers.discard(writer)
            writer.close()
