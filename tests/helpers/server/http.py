"""A scripted server over Streamable HTTP, on a real socket."""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

from aiohttp import ClientConnectionError, web

from helpers.ports import listening_socket
from helpers.server.headers import refusal_of
from helpers.server.replies import Reply, Turn, event, open_stream, transport_of
from helpers.server.script import Era, Script
from helpers.waiting import bounded, eventually

SESSION = "Mcp-Session-Id"
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Recorded:
    """A request as it arrived; `message` is the parsed body, None without one. Header names are in small letters."""

    verb: str
    path: str
    headers: dict[str, str]
    message: Any
    peer: tuple[str, int]
    """The client's address: the same for two requests that shared a connection."""


class HttpTurn(Turn):
    """A request that waits for its reply on a connection."""

    def __init__(self, server: Script, request: web.BaseRequest, message: dict[str, Any]) -> None:
        super().__init__(server, message)
        self.request = request
        self._stream: web.StreamResponse | None = None

    async def send(self, *messages: Any) -> None:
        if self._stream is None:
            self._stream = await open_stream(self.request)
        for message in messages:
            await self._stream.write(event(message))

    async def respond(
        self, message: Any, *, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> web.StreamResponse:
        if self._stream is None:
            return web.json_response(message, status=status, headers=headers or None)
        await self.send(message)
        return await self.end()

    async def end(self) -> web.StreamResponse:
        await self.send()
        assert self._stream is not None
        await self._stream.write_eof()
        return self._stream


class ScriptedServer(Script):
    """The server; everything but its address may be changed while it runs.

    `sessions` is whether it gives session ids, `streams` whether it has a GET stream (False: 405), both in the legacy
    era. In the modern era it refuses a request whose headers do not repeat its body, unless `checks_headers` is False;
    `faults` has every such refusal.
    """

    def __init__(self, era: Era = "legacy", *, sessions: bool = True, streams: bool = True, **script: Any) -> None:
        super().__init__(era, **script)
        self.sessions, self.streams = sessions, streams
        self.session_form = "session-{}"
        """The id of a session, with its number. Without sessions an empty form is an empty header."""
        self.path = "/mcp"
        self.moved = (307, self.path)
        """What every other path is answered: a status and a location."""
        self.get: Handler | None = None
        """Instead of the GET stream."""
        self.resume: Handler | None = None
        """For a GET that resumes from an event; without it that is a GET as any other."""
        self.requests: list[Recorded] = []
        self.checks_headers = True
        self.faults: list[str] = []
        self.unknown_session: Reply | None = None
        """What a request in a session that it does not know is answered; 404 without it."""
        self.left: list[dict[str, Any]] = []
        """The requests whose connection was closed before the response had ended."""
        self.live: set[str] = set()
        """Ids of the sessions it knows."""
        self.origin = ""
        self.open_streams: list[tuple[web.BaseRequest, web.StreamResponse]] = []
        self.sessions_opened = 0
        self._runner: web.ServerRunner | None = None

    @property
    def url(self) -> str:
        """Where it is."""
        return f"{self.origin}{self.path}"

    async def __aenter__(self) -> Self:
        await self._serve_at(listening_socket())
        return self

    async def _serve_at(self, listening: socket.socket) -> None:
        self.origin = f"http://127.0.0.1:{listening.getsockname()[1]}"
        server = web.Server(self.serve, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(server, shutdown_timeout=0.01)
        await self._runner.setup()
        await web.SockSite(self._runner, listening, backlog=2048).start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Go away, connections and all. May be called again."""
        self.listens.end()
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def come_back(self) -> None:
        """Be where it was before it went away, and know no session."""
        self.live.clear()
        await self._serve_at(socket.create_server(("127.0.0.1", int(self.origin.rpartition(":")[2]))))

    # --- what it received

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [request.message for request in self.requests if isinstance(request.message, dict)]

    def verbs(self, verb: str) -> list[Recorded]:
        """The requests of that HTTP method."""
        return [request for request in self.requests if request.verb == verb]

    async def leaving(self, method: str, times: int = 1) -> dict[str, Any]:
        """The request of that method whose connection is closed before its end, once one is."""
        await eventually(lambda: len([each for each in self.left if each["method"] == method]) >= times)
        return [each for each in self.left if each["method"] == method][times - 1]

    # --- what it does by itself

    async def streaming(self, count: int = 1) -> None:
        """Wait until so many GET streams are open."""
        async with bounded():
            while len(self.open_streams) < count:
                await asyncio.sleep(0)

    async def push(self, *messages: Any, streams: int | None = None) -> None:
        """Send messages on every open GET stream, or on so many, the oldest first; and to each listener for them."""
        for _, open_one in self.open_streams[:streams]:
            for message in messages:
                await open_one.write(event(message))
        await self.listens.push(*messages)

    def cut_streams(self) -> None:
        """Break every open GET stream off."""
        for request, _ in self.open_streams:
            transport_of(request).close()

    def forget_sessions(self) -> None:
        """Know no session from now on."""
        self.live.clear()

    # --- how it serves a request

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        """Record a request, and answer it."""
        if (request.content_length or 0) > 2**20:
            # Else the largest are refused here.
            request = request.clone(client_max_size=2**26)
        body: Any = await request.read()
        with suppress(ValueError):
            body = json.loads(body)
        headers = {name.lower(): value for name, value in request.headers.items()}
        peer = request.transport.get_extra_info("peername") if request.transport else ("", 0)
        message = body or None
        self.requests.append(Recorded(request.method, request.path, headers, message, peer))
        if request.path != self.path:
            code, location = self.moved
            return web.Response(status=code, headers={"Location": location})
        serve = self._serve_modern if self.speaks_modern(message) else self._serve_legacy
        return await serve(request, message)

    async def _serve_legacy(self, request: web.BaseRequest, message: Any) -> web.StreamResponse:
        known = request.headers.get(SESSION)
        opening = isinstance(message, dict) and message.get("method") == "initialize"
        if self.sessions and not opening and known not in self.live:
            if self.unknown_session is not None and isinstance(message, dict):
                refused: web.StreamResponse = await self.unknown_session(HttpTurn(self, request, message))
                return refused
            return web.Response(status=400 if known is None else 404)
        if request.method == "GET":
            resume = self.resume if "Last-Event-ID" in request.headers else None
            return await (resume or self.get or self.get_stream)(request)
        if request.method == "DELETE":
            self.live.discard(str(known))
            return web.Response(status=200)
        if "id" not in message or "method" not in message:
            return web.Response(status=202)
        return await self._answer(HttpTurn(self, request, message))

    async def _serve_modern(self, request: web.BaseRequest, message: Any) -> web.StreamResponse:
        if request.method != "POST":
            return web.Response(status=405, headers={"Allow": "POST"})
        if not isinstance(message, dict) or "method" not in message:
            return web.Response(status=400)
        if "id" not in message:
            return web.Response(status=202)
        turn = HttpTurn(self, request, message)
        refused = refusal_of(turn, self.faults) if self.checks_headers else None
        return await (self._answer(turn) if refused is None else refused(turn))

    async def _answer(self, turn: HttpTurn) -> web.StreamResponse:
        try:
            response: web.StreamResponse = await self.reply(turn)
        except (asyncio.CancelledError, ClientConnectionError, ConnectionResetError):
            self.left.append(turn.message)
            raise
        return response

    async def get_stream(self, request: web.BaseRequest) -> web.StreamResponse:
        """Serve a GET stream until the client closes it."""
        if not self.streams:
            return web.Response(status=405)
        response = await open_stream(request)
        self.open_streams.append((request, response))
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.open_streams.remove((request, response))
        return response

    def new_session(self) -> dict[str, str]:
        if not self.sessions:
            return {SESSION: ""} if not self.session_form else {}
        self.sessions_opened += 1
        session = self.session_form.format(self.sessions_opened)
        self.live.add(session)
        return {SESSION: session}
