"""A server with one slot, a gateway in front of it, and calls that are let go one by one."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.answers import Answer
from helpers.server import ScriptedServer, Turn, result
from helpers.waiting import bounded, eventually

DONE = {"content": [{"type": "text", "text": "done"}]}


class OneByOne:
    """A reply that waits until its own call is let go; `arrived` are the arguments of all that came, in order."""

    def __init__(self) -> None:
        self.arrived: list[dict[str, Any]] = []
        self.left = 0
        self._waiting: list[asyncio.Future[None]] = []
        self._is_open = False

    async def __call__(self, turn: Turn) -> web.StreamResponse:
        self.arrived.append(turn.message["params"].get("arguments", {}))
        if not self._is_open:
            waiting = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            try:
                await waiting
            except asyncio.CancelledError:
                self.left += 1
                raise
        return await result(DONE)(turn)

    async def comes(self, count: int) -> None:
        """Wait until so many calls have arrived."""
        await eventually(lambda: len(self.arrived) >= count)

    def let_go(self) -> None:
        """Answer the oldest call that waits."""
        waiting = next(waiting for waiting in self._waiting if not waiting.done())
        waiting.set_result(None)

    def let_all_go(self) -> None:
        """Answer every call, and any other that comes."""
        self._is_open = True
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)


def begin(*calls: Any) -> "list[asyncio.Task[Any]]":
    """Let them go on beside what comes next."""
    return [asyncio.create_task(call) for call in calls]


def narrow(server: ScriptedServer, *, size: int = 16, wait: str = "300s", **more: Any) -> dict[str, Any]:
    """The section of upstreams with one slot."""
    section = {"path": "/reports/mcp", "url": server.url, "concurrency": 1, "queue": {"size": size, "max_wait": wait}}
    return {"reports": section | more}


@asynccontextmanager
async def narrowly(
    server: ScriptedServer, *, size: int = 16, wait: str = "300s", **sections: Any
) -> AsyncIterator[Gateway]:
    """A gateway that lets one call at a time go to the server."""
    config = configuration({}, upstreams=narrow(server, size=size, wait=wait), **sections)
    async with serve(config) as gateway:
        yield gateway


async def queued(gateway: Gateway, count: int) -> None:
    """Wait until so many calls wait for their turn."""
    await gateway.upstream_is(queued=count)


async def expect_all_given_back(gateway: Gateway) -> None:
    """Nobody has a slot, and nobody waits for one."""
    await gateway.upstream_is(in_use=0, queued=0)


async def refused_in_queue(call: Awaitable[Answer]) -> dict[str, Any]:
    """The data of a call that does not come to its turn; HTTP 200, code 429 in either era."""
    async with bounded():
        answer = await call
    assert (answer.status, answer.code, answer.error["data"]["reason"]) == (200, 429, "queue"), answer.message
    assert int(answer.headers["Retry-After"]) * 1000 >= answer.error["data"]["retryAfterMs"] > 0
    data: dict[str, Any] = answer.error["data"]
    return data
