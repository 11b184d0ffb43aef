"""A scripted server over HTTP+SSE (2024-11-05), on a real socket: each event stream is a message channel.

It can name another endpoint (`endpoint`, with `{session}` for the id; None names none), answer GET or POST with another
status, answer a POST only after `take_now` (`takes_late`), end streams, and require a token. `gets` and `posts` are the
headers of all requests, in small letters.
"""

import asyncio
import json
import socket
import ssl
from contextlib import suppress
from typing import Any, Self

from aiohttp import web

from helpers.ports import listening_socket
from helpers.server.channels import Channel, ChannelScript
from helpers.server.replies import event
from helpers.waiting import bounded


class SseStream(Channel):
    """One stream; `heard` is what was posted for it."""

    def __init__(self, response: web.StreamResponse, session: str) -> None:
        super().__init__()
        self.session = session
        self.over = asyncio.Event()
        self.left = asyncio.Event()
        """Set when the gateway closed it."""
        self._response = response
        self._unsaid: asyncio.Queue[bytes | None] = asyncio.Queue()

    def say(self, *messages: Any) -> None:
        for message in messages:
            self._unsaid.put_nowait(event(message))

    def written(self, text: str) -> bytes:
        return f"data: {text}\n\n".encode()

    def exit(self) -> None:
        self._unsaid.put_nowait(None)

    async def write(self) -> None:
        """Write what is to be said, to the end."""
        while (text := await self._unsaid.get()) is not None:
            await self._response.write(text)


class SseServer(ChannelScript):
    """The server; everything but its address may be changed while it runs."""

    lines: list[SseStream]

    def __init__(self, *, revision: str = "2024-11-05", tls: ssl.SSLContext | None = None) -> None:
        super().__init__(revision=revision)
        self._tls = tls
        self.endpoint: str | None = "/messages?session_id={session}"
        self.before: bytes = b": hello\n\n"
        """What comes first on a stream."""
        self.get: int | None = None
        self.post: int = 202
        self.forgotten: dict[str, int] = {}
        """Sessions that it knows no more, though their streams are open, and the status of POSTs in them."""
        self.refused_tools: dict[str, int] = {}
        """Tools whose calls it refuses with a status."""
        self.refuses_for: str | None = None
        """The `Retry-After` of its refusals."""
        self.content_type = "text/event-stream"
        self.ends_early = False
        self.takes_late = False
        self.token: str | None = None
        """The only one that it takes."""
        self.moved: dict[str, str] = {}
        """Paths from which requests are sent on, and where to (307)."""
        self.gets: list[dict[str, str]] = []
        self.posts: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.peers: list[object] = []
        """From where each POST came: the same for two that shared a connection."""
        self.origin = ""
        self._answered: dict[Any, asyncio.Event] = {}
        self._runner: web.ServerRunner | None = None
        self._streams: dict[str, SseStream] = {}

    @property
    def url(self) -> str:
        """Where its streams are."""
        return f"{self.origin}/sse"

    def last(self) -> SseStream:
        """The stream that was opened last."""
        return list(self._streams.values())[-1]

    async def __aenter__(self) -> Self:
        await self._serve_at(listening_socket())
        return self

    async def _serve_at(self, listening: socket.socket) -> None:
        self.origin = f"http{'s' if self._tls else ''}://127.0.0.1:{listening.getsockname()[1]}"
        self._runner = web.ServerRunner(
            web.Server(self._serve, handler_cancellation=True, access_log=None), shutdown_timeout=0.1
        )
        await self._runner.setup()
        await web.SockSite(self._runner, listening, ssl_context=self._tls).start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Go away, streams and all. May be called again."""
        runner, self._runner = self._runner, None
        if runner is None:
            return
        for stream in self._streams.values():
            stream.exit()
            stream.over.set()
        async with bounded():
            await self.stop_replies()
            await runner.cleanup()

    async def come_back(self) -> None:
        """Be where it was before it went away, and know no stream of then."""
        await self._serve_at(socket.create_server(("127.0.0.1", int(self.origin.rpartition(":")[2]))))

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        (self.gets if request.method == "GET" else self.posts).append(headers)
        self.paths.append(str(request.rel_url))
        if request.method == "POST" and request.transport is not None:
            self.peers.append(request.transport.get_extra_info("peername"))
        if request.path in self.moved:
            return web.Response(status=307, headers={"Location": self.moved[request.path]})
        if self.token is not None and headers.get("authorization") != f"Bearer {self.token}":
            return web.Response(status=401)
        if request.method == "GET":
            return await self._open(request)
        return await self._take(request)

    async def _open(self, request: web.BaseRequest) -> web.StreamResponse:
        if self.get is not None:
            return web.Response(status=self.get, text="no", headers=self._pause())
        response = web.StreamResponse(headers={"Content-Type": self.content_type, "Cache-Control": "no-store"})
        await response.prepare(request)
        await response.write(self.before)
        session = f"s{len(self._streams)}"
        stream = self._streams[session] = SseStream(response, session)
        if self.endpoint is not None:
            named = self.endpoint.format(session=session)
            await response.write(f"event: endpoint\ndata: {named}\n\n".encode())
        if not self.ends_early:
            self.lines.append(stream)
            try:
                await stream.write()
            except (ConnectionError, asyncio.CancelledError):
                stream.left.set()
                raise
        stream.over.set()
        with suppress(ConnectionError):
            await response.write_eof()
        return response

    async def _take(self, request: web.BaseRequest) -> web.StreamResponse:
        stream = self._streams.get(request.query.get("session_id", ""))
        message = json.loads(await request.read())
        tool = (message.get("params") or {}).get("name")
        refusal = self.forgotten.get(stream.session if stream else "") or self.refused_tools.get(tool)
        if stream is None or stream.over.is_set() or self.post >= 300 or refusal:
            return web.Response(
                status=refusal or (404 if self.post < 300 else self.post),
                text="Could not find session",
                headers=self._pause(),
            )
        stream.heard.append(message)
        self.receive(stream, message)
        if self.takes_late and "id" in message and "method" in message:
            self._answered.setdefault(message["id"], asyncio.Event())
            with suppress(TimeoutError):
                async with bounded():
                    await self._answered[message["id"]].wait()
        return web.Response(status=self.post, text="Accepted" if self.post == 202 else "")

    def _pause(self) -> dict[str, str]:
        return {} if self.refuses_for is None else {"Retry-After": self.refuses_for}

    def take_now(self) -> None:
        """Say of all that is posted that it is taken."""
        self.takes_late = False
        for taken in self._answered.values():
            taken.set()
