"""The server of these tests: tools that run for as long as a call says, and books of every run.

The argument `number` tells calls apart, so that one that runs twice shows. Results have spellings that no encoder
chooses, so that a result that was encoded anew on its way shows too.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from aiohttp import web

from helpers.server import ScriptedServer, Turn, error, open_stream

PLAIN = "slow"
"""Its calls end with the connection on which they came."""
LASTING = "lasting"
"""Its calls survive that connection: the result can be received on another one."""


class _Run(NamedTuple):
    number: int
    id: object
    """That of the request, which the response has too."""
    end: float


class Books:
    """What the server ran: how often each call, and which it has answered."""

    def __init__(self) -> None:
        self.runs: Counter[int] = Counter()
        self.answered: set[int] = set()
        self._lasting: dict[str, _Run] = {}

    async def run(self, turn: Turn) -> web.StreamResponse:
        """Run a call of `slow`."""
        run = self._begin(turn)
        text = await self._response_to(run)
        return web.Response(text=text, content_type="application/json")

    async def run_lasting(self, turn: Turn) -> web.StreamResponse:
        """Run a call of `lasting`."""
        run = self._begin(turn)
        self._lasting[f"{run.number}.0"] = run
        turn.server.resume = self._resume
        return await self._stream(turn.request, run)

    async def _resume(self, request: web.Request) -> web.StreamResponse:
        run = self._lasting.get(request.headers["Last-Event-ID"])
        return web.Response(status=404) if run is None else await self._stream(request, run)

    async def _stream(self, request: web.Request, run: _Run) -> web.StreamResponse:
        response = await open_stream(request)
        await response.write(f"id: {run.number}.0\ndata:\n\n".encode())
        text = await self._response_to(run)
        await response.write(f"id: {run.number}.1\ndata: {text}\n\n".encode())
        await response.write_eof()
        return response

    def _begin(self, turn: Turn) -> _Run:
        given = turn.message["params"]["arguments"]
        self.runs[given["number"]] += 1
        return _Run(given["number"], turn.id, asyncio.get_running_loop().time() + given["seconds"])

    async def _response_to(self, run: _Run) -> str:
        await asyncio.sleep(max(0.0, run.end - asyncio.get_running_loop().time()))
        self.answered.add(run.number)
        return f'{{"jsonrpc":"2.0","id":{json.dumps(run.id)},"result":{{{result_members(run.number)}}}}}'


def result_members(number: int) -> str:
    """The members of the result of a call, as they are sent."""
    text = f'"content":[{{"type":"text","text":"caf\\u00e9 \\/ {number}"}}, {{"type":"text", "text":"\\ud83d\\ude00"}}]'
    return f'{text},"structuredContent":{{"number": {number},"large":123456789012345678901234567890,"exact":1.50}}'


@asynccontextmanager
async def counting_server(revision: str = "2025-11-25") -> AsyncIterator[tuple[str, Books]]:
    """The server for the length of a block: its URL, and its books."""
    books = Books()
    async with ScriptedServer(revision=revision) as server:
        server.methods["server/discover"] = error(-32601, "Method not found")
        server.tools = [{"name": name, "inputSchema": {"type": "object"}} for name in (PLAIN, LASTING)]
        server.script |= {PLAIN: books.run, LASTING: books.run_lasting}
        yield server.url, books
