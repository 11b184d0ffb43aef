"""A scripted MCP server on a real socket: it does what a test tells it to, and remembers what it was told.

    async with ScriptedServer() as server:
        server.script["slow"] = hold = Hold()
        ...                                      # somebody calls the tool `slow` at server.url
        await hold.begun.wait()
        hold.release({"content": []})

Without a script it opens sessions, lists `tools`, answers every tool with `{"content": [], "structuredContent":
<the arguments>}` and any other request with an empty result. A reply is `async (Turn) -> web.StreamResponse`; those
that tests want again and again are here: `result`, `error`, `stream`, `Hold`, `raw`, `status`, `redirect`,
`breaks_off`, `resets`, `elsewhere`, `asks`, `Chapters`. `script` is for tools by name, `methods` for any method of
JSON-RPC.
"""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

from aiohttp import web

from helpers.scripted_replies import (
    Chapters,
    Hold,
    Reply,
    Turn,
    asks,
    breaks_off,
    elsewhere,
    error,
    event,
    in_turn,
    note,
    open_stream,
    progress_note,
    raw,
    redirect,
    resets,
    result,
    status,
    stream,
    transport_of,
)
from helpers.waiting import bounded

__all__ = [
    "Chapters",
    "Hold",
    "Recorded",
    "Reply",
    "ScriptedServer",
    "Turn",
    "asks",
    "breaks_off",
    "elsewhere",
    "error",
    "event",
    "in_turn",
    "note",
    "open_stream",
    "progress_note",
    "raw",
    "redirect",
    "resets",
    "result",
    "status",
    "stream",
]

SESSION = "Mcp-Session-Id"


@dataclass(frozen=True, slots=True)
class Recorded:
    """A request as it arrived; `message` is the parsed body, None without one. Header names are in small letters."""

    verb: str
    path: str
    headers: dict[str, str]
    message: Any
    peer: tuple[str, int]
    """The client's address: the same for two requests that shared a connection."""


class ScriptedServer:
    """The server; everything but its address may be changed while it runs.

    `revision` is what it negotiates, `sessions` whether it gives session ids, `streams` whether it has a GET stream
    (False: 405), `page_size` how many tools one page of `tools/list` holds.
    """

    def __init__(
        self, *, revision: str = "2025-11-25", sessions: bool = True, streams: bool = True, page_size: int | None = None
    ) -> None:
        self.revision, self.sessions, self.streams, self.page_size = revision, sessions, streams, page_size
        self.path = "/mcp"
        self.moved = (307, self.path)
        """What every other path is answered: a status and a location."""
        self.capabilities: dict[str, Any] = {"tools": {"listChanged": True}}
        self.info: dict[str, Any] | None = {"name": "scripted", "version": "1"}
        """Who it says that it is; None says nothing."""
        self.also: dict[str, Any] = {"instructions": "Do as the script says."}
        """What else it says when it is met."""
        self.tools: list[dict[str, Any]] = [{"name": "echo", "inputSchema": {"type": "object"}}]
        self.script: dict[str, Reply] = {}
        self.methods: dict[str, Reply] = {}
        self.get: Callable[[web.Request], Awaitable[web.StreamResponse]] | None = None
        """Instead of the GET stream."""
        self.resume: Callable[[web.Request], Awaitable[web.StreamResponse]] | None = None
        """For a GET that goes on from an event; without it that is a GET as any other."""
        self.requests: list[Recorded] = []
        self.live: set[str] = set()
        """Ids of the sessions it knows."""
        self.origin = ""
        self._streams: list[tuple[web.BaseRequest, web.StreamResponse]] = []
        self._opened = 0
        self._runner: web.ServerRunner | None = None

    @property
    def url(self) -> str:
        """Where it is."""
        return f"{self.origin}{self.path}"

    async def __aenter__(self) -> Self:
        await self._listen_at(0)
        return self

    async def _listen_at(self, port: int) -> None:
        listening = socket.create_server(("127.0.0.1", port))
        self.origin = f"http://127.0.0.1:{listening.getsockname()[1]}"
        server = web.Server(self._serve, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(server, shutdown_timeout=0.01)
        await self._runner.setup()
        await web.SockSite(self._runner, listening, backlog=2048).start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Go away, connections and all. May be called again."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def come_back(self) -> None:
        """Be where it was before it went away, and know no session."""
        self.live.clear()
        await self._listen_at(int(self.origin.rpartition(":")[2]))

    # --- what it heard

    def heard(self, method: str) -> list[dict[str, Any]]:
        """The messages of that method, in order."""
        return [message for message in self._messages() if message.get("method") == method]

    @property
    def replies(self) -> list[dict[str, Any]]:
        """What it was answered to its own requests."""
        return [message for message in self._messages() if "method" not in message]

    async def reply_to(self, id: Any) -> dict[str, Any]:
        """The response to what it asked under that id, once it has come."""
        found: list[dict[str, Any]] = []
        async with bounded():
            while not found:
                await asyncio.sleep(0)
                found = [reply for reply in self.replies if reply["id"] == id]
        return found[0]

    @property
    def cancelled(self) -> list[Any]:
        """The ids of the requests that `notifications/cancelled` named."""
        return [message["params"]["requestId"] for message in self.heard("notifications/cancelled")]

    def verbs(self, verb: str) -> list[Recorded]:
        """The requests of that HTTP method."""
        return [request for request in self.requests if request.verb == verb]

    def _messages(self) -> list[dict[str, Any]]:
        return [request.message for request in self.requests if isinstance(request.message, dict)]

    # --- what it does by itself

    async def streaming(self, count: int = 1) -> None:
        """Wait until so many GET streams are open."""
        async with bounded():
            while len(self._streams) < count:
                await asyncio.sleep(0)

    async def push(self, *messages: Any, streams: int | None = None) -> None:
        """Say something on every open GET stream, or on so many, the oldest first."""
        for _, open_one in self._streams[:streams]:
            for message in messages:
                await open_one.write(event(message))

    def cut_streams(self) -> None:
        """Break every open GET stream off."""
        for request, _ in self._streams:
            transport_of(request).close()

    def forget_sessions(self) -> None:
        """From now on every known session is answered 404."""
        self.live.clear()

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        if (request.content_length or 0) > 2**20:
            # Else the largest are refused here.
            request = request.clone(client_max_size=2**26)
        body = await request.read()
        with suppress(ValueError):
            body = json.loads(body)
        headers = {name.lower(): value for name, value in request.headers.items()}
        peer = request.transport.get_extra_info("peername")
        message = body or None
        self.requests.append(Recorded(request.method, request.path, headers, message, peer))
        if request.path != self.path:
            code, location = self.moved
            return web.Response(status=code, headers={"Location": location})
        known = request.headers.get(SESSION)
        opening = isinstance(message, dict) and message.get("method") == "initialize"
        if self.sessions and not opening and known not in self.live:
            return web.Response(status=400 if known is None else 404)
        if request.method == "GET":
            goes_on = self.resume if "Last-Event-ID" in request.headers else None
            return await (goes_on or self.get or self._stream)(request)
        if request.method == "DELETE":
            self.live.discard(known)
            return web.Response(status=200)
        if "id" not in message or "method" not in message:
            return web.Response(status=202)
        return await self._reply(Turn(self, request, message))

    async def _stream(self, request: web.BaseRequest) -> web.StreamResponse:
        if not self.streams:
            return web.Response(status=405)
        response = await open_stream(request)
        self._streams.append((request, response))
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._streams.remove((request, response))
        return response

    async def _reply(self, turn: Turn) -> web.StreamResponse:
        method = turn.message["method"]
        if method in self.methods:
            return await self.methods[method](turn)
        if method == "initialize":
            return self._welcome(turn)
        if method == "tools/list":
            return web.json_response(turn.answer(self._page(turn)))
        if method == "tools/call":
            params = turn.message["params"]
            plain = result({"content": [], "structuredContent": params.get("arguments", {})})
            return await self.script.get(params["name"], plain)(turn)
        return web.json_response(turn.answer({}))

    def _welcome(self, turn: Turn) -> web.StreamResponse:
        self._opened += 1
        session = f"session-{self._opened}"
        self.live.add(session)
        named = {} if self.info is None else {"serverInfo": self.info}
        welcome = {"protocolVersion": self.revision, "capabilities": self.capabilities, **named, **self.also}
        return web.json_response(turn.answer(welcome), headers={SESSION: session} if self.sessions else None)

    def _page(self, turn: Turn) -> dict[str, Any]:
        start = int(turn.message.get("params", {}).get("cursor", 0))
        if self.page_size is None or start + self.page_size >= len(self.tools):
            return {"tools": self.tools[start:]}
        end = start + self.page_size
        return {"tools": self.tools[start:end], "nextCursor": str(end)}
