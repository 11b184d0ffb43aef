"""What a scripted server may reply to a request: an answer, a late one, a wrong one, none. See `scripted_upstream`."""

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from aiohttp import web


@dataclass(frozen=True, slots=True)
class Turn:
    """A JSON-RPC request that waits for its reply."""

    server: Any
    """The ScriptedServer it was sent to."""
    request: web.Request
    message: dict[str, Any]

    @property
    def id(self) -> Any:
        return self.message["id"]

    @property
    def token(self) -> Any:
        """The token that progress of the call goes by; None where nobody wants to hear of it."""
        return self.message.get("params", {}).get("_meta", {}).get("progressToken")

    def answer(self, value: Any) -> dict[str, Any]:
        """The response with that result, as an object."""
        return {"jsonrpc": "2.0", "id": self.id, "result": value}


Reply = Callable[[Turn], Awaitable[web.StreamResponse]]


def result(value: Any, *, id: Any = None, status: int = 200) -> Reply:
    """Answer with a result, as JSON; under another id if one is given."""

    async def reply(turn: Turn) -> web.StreamResponse:
        return web.json_response(turn.answer(value) | ({} if id is None else {"id": id}), status=status)

    return reply


def error(code: int, message: str, *, status: int = 200) -> Reply:
    """Answer with a JSON-RPC error under the right id."""

    async def reply(turn: Turn) -> web.StreamResponse:
        answer = {"jsonrpc": "2.0", "id": turn.id, "error": {"code": code, "message": message}}
        return web.json_response(answer, status=status)

    return reply


def stream(value: Any, *, progress: int = 0, before: Sequence[Any] = ()) -> Reply:
    """Answer with an event stream: `progress` notifications 1, 2, …, then the messages of `before`, then the result.

    A value of None ends the stream without an answer.
    """

    async def reply(turn: Turn) -> web.StreamResponse:
        response = await open_stream(turn.request)
        for done in range(1, progress + 1):
            await response.write(event(progress_note(turn.token, done)))
        for message in before:
            await response.write(event(message))
        if value is not None:
            await response.write(event(turn.answer(value)))
        await response.write_eof()
        return response

    return reply


class Hold:
    """A reply that waits until it is released. Serves any number of calls, all with the same result."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        """Set when a call has arrived."""
        self.left = asyncio.Event()
        """Set when a caller closed its connection while it waited."""
        self.turns: list[Turn] = []
        self._released: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def __call__(self, turn: Turn) -> web.StreamResponse:
        self.turns.append(turn)
        self.begun.set()
        try:
            value = await asyncio.shield(self._released)
        except asyncio.CancelledError:
            self.left.set()
            raise
        return await result(value)(turn)

    def release(self, value: Any) -> None:
        """Let every call have this result."""
        self._released.set_result(value)


def raw(body: bytes, *, content_type: str | None = "application/json", status: int = 200, **headers: str) -> Reply:
    """Answer with exactly these bytes. Header names are written with underscores."""

    async def reply(turn: Turn) -> web.StreamResponse:
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        fields |= {} if content_type is None else {"Content-Type": content_type}
        return web.Response(body=body, status=status, headers=fields)

    return reply


def status(code: int, body: bytes = b"no", *, content_type: str = "text/plain") -> Reply:
    """Answer with an HTTP status and no JSON-RPC."""
    return raw(body, content_type=content_type, status=code)


def in_turn(*replies: Reply) -> Reply:
    """One reply after the other; the last for all that follow."""
    left = list(replies)

    async def reply(turn: Turn) -> web.StreamResponse:
        return await (left.pop(0) if len(left) > 1 else left[0])(turn)

    return reply


def redirect(code: int, location: str) -> Reply:
    """Send the caller somewhere else."""
    return raw(b"", content_type=None, status=code, Location=location)


def breaks_off(*messages: Any, document: bool = False) -> Reply:
    """Begin a stream (or a JSON document), send these messages, and drop the connection in the middle."""

    async def reply(turn: Turn) -> web.StreamResponse:
        response = await open_stream(turn.request, "application/json" if document else "text/event-stream")
        for message in messages:
            await response.write(event(message))
        await response.write(b"data: {" if not document else b'{"jsonrpc":')
        transport_of(turn.request).close()
        return response

    return reply


def resets() -> Reply:
    """Reset the connection without a word."""

    async def reply(turn: Turn) -> web.StreamResponse:
        transport = transport_of(turn.request)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
        return web.Response()

    return reply


class PacedProgress:
    """A reply: an event stream with a notification of progress at each `next`, and the result at the `end`."""

    def __init__(self, value: Any) -> None:
        self._value = value
        self._wanted = asyncio.Semaphore(0)
        self._is_over = False

    def next(self) -> None:
        """Have the next notification sent."""
        self._wanted.release()

    def end(self) -> None:
        """Have the result sent."""
        self._is_over = True
        self._wanted.release()

    async def __call__(self, turn: Turn) -> web.StreamResponse:
        response = await open_stream(turn.request)
        for number in count(1):
            await self._wanted.acquire()
            if self._is_over:
                break
            await response.write(event(progress_note(turn.token, number)))
        await response.write(event(turn.answer(self._value)))
        return response


def elsewhere(value: Any) -> Reply:
    """Answer on the GET stream, and never on the call's own."""

    async def reply(turn: Turn) -> web.StreamResponse:
        response = await open_stream(turn.request)
        await turn.server.push(turn.answer(value))
        await asyncio.get_running_loop().create_future()
        return response

    return reply


def asks(*questions: Any) -> Reply:
    """Ask on the call's own stream, and answer the call with what came of it once every question has its response."""

    async def reply(turn: Turn) -> web.StreamResponse:
        response = await open_stream(turn.request)
        for question in questions:
            await response.write(event(question))
        answers = [await turn.server.reply_to(question["id"]) for question in questions]
        await response.write(event(turn.answer({"content": [], "structuredContent": {"answers": answers}})))
        await response.write_eof()
        return response

    return reply


class Chapters:
    """An answer in parts: each has its stream, which ends with it; the next is for who goes on from its last event.

    Messages of a part are objects, bytes, or made of the Turn; every event has an id, and `retry` (ms) goes first. A
    part that is a status is what the GET is answered with. `asked` has the ids that were gone on from.
    """

    def __init__(self, *parts: Any, retry: int | None = 1) -> None:
        self._parts = list(parts)
        self._retry = b"" if retry is None else f"retry: {retry}\n".encode()
        self._turn: Turn | None = None
        self.asked: list[str] = []
        self.gets: list[web.Request] = []

    async def __call__(self, turn: Turn) -> web.StreamResponse:
        self._turn = turn
        turn.server.resume = self._go_on
        return await self._write(turn.request)

    async def _go_on(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.headers["Last-Event-ID"])
        self.gets.append(request)
        return await self._write(request)

    async def _write(self, request: web.Request) -> web.StreamResponse:
        part = self._parts.pop(0) if self._parts else 503
        if isinstance(part, int):
            return web.Response(status=part)
        number = len(self.asked)
        response = await open_stream(request)
        await response.write(f"id: {number}-start\n".encode() + self._retry + b"data:\n\n")
        for place, message in enumerate(part):
            told = message(self._turn) if callable(message) else message
            await response.write(told if isinstance(told, bytes) else f"id: {number}-{place}\n".encode() + event(told))
        await response.write_eof()
        return response


def event(message: Any) -> bytes:
    """A message as an event; bytes are sent as they are."""
    return message if isinstance(message, bytes) else f"event: message\ndata: {json.dumps(message)}\n\n".encode()


def note(method: str, **params: Any) -> dict[str, Any]:
    """A notification."""
    return {"jsonrpc": "2.0", "method": method, "params": params}


def progress_note(token: Any, progress: int) -> dict[str, Any]:
    """A notification of progress."""
    return note("notifications/progress", progressToken=token, progress=progress)


async def open_stream(request: web.Request, content_type: str = "text/event-stream") -> web.StreamResponse:
    """The head of a streamed answer."""
    response = web.StreamResponse(headers={"Content-Type": content_type})
    response.enable_chunked_encoding()
    await response.prepare(request)
    return response


def transport_of(request: Any) -> asyncio.Transport:
    """The connection of a request."""
    assert request.transport is not None, "the caller is still there"
    return request.transport
