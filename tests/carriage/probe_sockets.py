"""Sockets for the probe server: Streamable HTTP in each era, and HTTP+SSE in the legacy one."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol

from aiohttp import web

from helpers.modern_schema import VERSION
from helpers.server import event, open_stream
from helpers.server.sse import SseServer

from .probe_server import LEGACY, MODERN, UNKNOWN_METHOD, Line, Record, Say

SESSION: Final = "Mcp-Session-Id"


class Conversation(Protocol):
    """One conversation with a server; see `probe_server.Line`."""

    def receive(self, message: dict[str, Any], reply: Say, headers: dict[str, str] | None = None) -> None:
        """Take a message of the host."""

    def close(self, id: Any) -> None:
        """Forget a request that its host gave up."""


Conversations = Callable[[str, Callable[[Record], None], Say], Conversation]
Queue = asyncio.Queue[dict[str, Any]]


class HttpProbe:
    """A probe server behind Streamable HTTP; `records` are what it heard."""

    def __init__(self, era: str, line: Conversations = Line) -> None:
        self.era, self._conversation = era, line
        self.records: list[Record] = []
        self._unsaid: dict[str, Queue] = {}
        self._lines: dict[str, Conversation] = {"": self._line(Queue())} if era == MODERN else {}

    def _line(self, unsaid: Queue) -> Conversation:
        return self._conversation(self.era, self.records.append, unsaid.put_nowait)

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one HTTP request."""
        session = request.headers.get(SESSION, "")
        if request.method == "GET" and self.era == LEGACY and session in self._unsaid:
            return await self._open(request, session)
        if request.method == "DELETE" and self.era == LEGACY:
            return web.Response(status=204)
        if request.method != "POST":
            return web.Response(status=405, headers={"Allow": "POST"})
        message = json.loads(await request.read())
        if self.era == LEGACY and message.get("method") == "initialize":
            session = f"session-{len(self._lines)}"
            self._unsaid[session] = Queue()
            self._lines[session] = self._line(self._unsaid[session])
        if session not in self._lines and self.era == LEGACY:
            return web.Response(status=404)
        line = self._lines["" if self.era == MODERN else session]
        return await self._carry(request, message, line, {SESSION: session} if session else {})

    async def _carry(
        self, request: web.BaseRequest, message: dict[str, Any], line: Conversation, head: Mapping[str, str]
    ) -> web.StreamResponse:
        said = Queue()
        headers = {name.lower(): value for name, value in request.headers.items() if name.lower().startswith("mcp-")}
        line.receive(message, said.put_nowait, headers)
        if "id" not in message or "method" not in message:
            return web.Response(status=202)
        first = await said.get()
        if "method" not in first:
            return web.json_response(first, status=self._status(message, first), headers=head)
        response = await open_stream(request)
        try:
            await response.write(event(first))
            while "method" in first:
                first = await said.get()
                await response.write(event(first))
        except (asyncio.CancelledError, ConnectionError):
            line.close(message["id"])
            raise
        await response.write_eof()
        return response

    def _status(self, message: dict[str, Any], answer: dict[str, Any]) -> int:
        if self.era == LEGACY or VERSION not in message.get("params", {}).get("_meta", {}):
            return 200
        return 404 if answer.get("error", {}).get("code") == UNKNOWN_METHOD else 200

    async def _open(self, request: web.BaseRequest, session: str) -> web.StreamResponse:
        response = await open_stream(request)
        unsaid = self._unsaid[session]
        while True:
            await response.write(event(await unsaid.get()))


class SseProbe(SseServer):
    """A probe server of the legacy era behind HTTP+SSE: each stream is a conversation with the probe."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[Record] = []
        self._conversations: dict[str, Line] = {}

    def receive(self, line: Any, message: dict[str, Any]) -> None:
        if line.session not in self._conversations:
            self._conversations[line.session] = Line(LEGACY, self.records.append, line.say)
        self._conversations[line.session].receive(message, line.say)


@asynccontextmanager
async def over_http(era: str, line: Conversations = Line) -> AsyncIterator[tuple[str, list[Record]]]:
    """A probe server for the length of the block: its URL, and what it hears."""
    probe = HttpProbe(era, line)
    listening = socket.create_server(("127.0.0.1", 0))
    runner = web.ServerRunner(web.Server(probe.serve, handler_cancellation=True, access_log=None), shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.SockSite(runner, listening).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", probe.records
    finally:
        await runner.cleanup()


@asynccontextmanager
async def over_sse() -> AsyncIterator[tuple[str, list[Record]]]:
    """The same over HTTP+SSE."""
    async with SseProbe() as probe:
        yield probe.url, probe.records
