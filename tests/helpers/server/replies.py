"""What a scripted server may reply to a request: an answer, a late one, a wrong one, none.

A reply is `async (Turn) -> Any`. Those that only say messages work over every carrier: `result`, `error`, `stream`,
`sends`, `asks`, `Hold`, `PacedProgress`, `Rounds`. The others are about HTTP.
"""

import asyncio
import json
import socket
import struct
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count
from typing import Any

from aiohttp import web


class Turn(ABC):
    """A JSON-RPC request that waits for its reply; each carrier has its own."""

    request: Any
    """The HTTP request that brought it, where HTTP carries it."""

    def __init__(self, server: Any, message: dict[str, Any]) -> None:
        self.server = server
        self.message = message
        self.is_modern: bool = server.speaks_modern(message)

    @property
    def id(self) -> Any:
        return self.message["id"]

    @property
    def meta(self) -> dict[str, Any]:
        """What the request says about itself."""
        meta: dict[str, Any] = self.message.get("params", {}).get("_meta", {})
        return meta

    @property
    def token(self) -> Any:
        """The progress token of the call; None without one."""
        return self.meta.get("progressToken")

    def answer(self, value: Any) -> dict[str, Any]:
        """The response with that result; in the modern era a complete one unless it has another type."""
        typed = {"resultType": "complete", **value} if self.is_modern else value
        return {"jsonrpc": "2.0", "id": self.id, "result": typed}

    @abstractmethod
    async def send(self, *messages: Any) -> None:
        """Send messages before the response; over HTTP this opens an event stream, even for none."""

    @abstractmethod
    async def respond(self, message: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Any:
        """Send the response, which ends the turn; status and headers are for HTTP without a stream."""

    @abstractmethod
    async def end(self) -> Any:
        """End the turn without a response."""


Reply = Callable[[Turn], Awaitable[Any]]


def result(value: Any, *, id: Any = None, status: int = 200) -> Reply:
    """Answer with a result; under another id if one is given."""

    async def reply(turn: Turn) -> Any:
        return await turn.respond(turn.answer(value) | ({} if id is None else {"id": id}), status=status)

    return reply


def error(code: int, message: str, data: Any = None, *, status: int = 200, names_request: bool = True) -> Reply:
    """Answer with a JSON-RPC error under the right id, or under none."""
    found = {"code": code, "message": message} | ({} if data is None else {"data": data})

    async def reply(turn: Turn) -> Any:
        id = turn.id if names_request else None
        return await turn.respond({"jsonrpc": "2.0", "id": id, "error": found}, status=status)

    return reply


def stream(value: Any, *, progress: int = 0, before: Sequence[Any] = ()) -> Reply:
    """Answer with an event stream: `progress` notifications 1, 2, …, then the messages of `before`, then the result.

    A value of None ends the stream without an answer.
    """

    async def reply(turn: Turn) -> Any:
        await turn.send(*(progress_note(turn.token, done) for done in range(1, progress + 1)), *before)
        return await (turn.end() if value is None else turn.respond(turn.answer(value)))

    return reply


def sends(make: Callable[[dict[str, Any]], Any]) -> Reply:
    """Send what `make` makes of the request, an object or bytes; None sends nothing. There is no other response."""

    async def reply(turn: Turn) -> None:
        made = make(turn.message)
        if made is not None:
            await turn.send(made)

    return reply


class Hold:
    """A reply that waits until it is released. Serves any number of calls, all with the same result."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        """Set when a call has arrived."""
        self.left = asyncio.Event()
        """Set when a caller closed its connection while it waited."""
        self.turns: list[Turn] = []
        self.released: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def __call__(self, turn: Turn) -> Any:
        self.turns.append(turn)
        self.begun.set()
        try:
            value = await asyncio.shield(self.released)
        except asyncio.CancelledError:
            self.left.set()
            raise
        return await result(value)(turn)

    def release(self, value: Any) -> None:
        """Let every call have this result."""
        self.released.set_result(value)


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

    async def __call__(self, turn: Turn) -> Any:
        await turn.send()
        for number in count(1):
            await self._wanted.acquire()
            if self._is_over:
                break
            await turn.send(progress_note(turn.token, number))
        return await turn.respond(turn.answer(self._value))


class Rounds:
    """A reply that asks round after round; each round is an InputRequiredResult without its type.

    A retry has to bring back the state of the round before, or none where there was none, and nothing but answers to
    what was asked. The call is answered with `answer`, or else with the answers of all rounds in its structured
    content. `states` are what the retries brought.
    """

    def __init__(self, *rounds: dict[str, Any], answer: Any = None) -> None:
        self._rounds = rounds
        self._answer = answer
        self.answers: list[Any] = []
        self.states: list[Any] = []
        self.turns: list[Turn] = []

    async def __call__(self, turn: Turn) -> Any:
        params, number = turn.message["params"], len(self.turns)
        self.turns.append(turn)
        if number > 0:
            before = self._rounds[number - 1]
            state, answers = params.get("requestState"), params.get("inputResponses", {})
            if state != before.get("requestState") or not set(answers) <= set(before.get("inputRequests", {})):
                return await error(-32602, "not what was asked for")(turn)
            self.states.append(state)
            self.answers.append(answers)
        if number < len(self._rounds):
            return await result({"resultType": "input_required", **self._rounds[number]})(turn)
        done = {"content": [], "structuredContent": {"answers": self.answers}}
        return await result(done if self._answer is None else self._answer)(turn)


def asks(*questions: Any) -> Reply:
    """Ask on the call's own stream, and answer the call with all responses once they have come."""

    async def reply(turn: Turn) -> Any:
        await turn.send(*questions)
        answers = [await turn.server.reply_to(question["id"]) for question in questions]
        return await turn.respond(turn.answer({"content": [], "structuredContent": {"answers": answers}}))

    return reply


def in_turn(*replies: Reply) -> Reply:
    """One reply after the other; the last for all that follow."""
    left = list(replies)

    async def reply(turn: Turn) -> Any:
        return await (left.pop(0) if len(left) > 1 else left[0])(turn)

    return reply


# --- over HTTP


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


def elsewhere(value: Any) -> Reply:
    """Answer on the GET stream, and never on the call's own."""

    async def reply(turn: Turn) -> Any:
        await turn.send()
        await turn.server.push(turn.answer(value))
        return await asyncio.get_running_loop().create_future()

    return reply


class Chapters:
    """An answer in parts: each has its stream, which ends with it; the next is for a GET from its last event.

    Messages of a part are objects, bytes, or made of the Turn; every event has an id, and `retry` (ms) goes first. A
    part that is a status is what the GET is answered with. `asked` has the last event ids of the GETs.
    """

    def __init__(self, *parts: Any, retry: int | None = 1) -> None:
        self._parts = list(parts)
        self._retry = b"" if retry is None else f"retry: {retry}\n".encode()
        self._turn: Turn | None = None
        self.asked: list[str] = []
        self.gets: list[web.Request] = []

    async def __call__(self, turn: Turn) -> web.StreamResponse:
        self._turn = turn
        turn.server.resume = self.resume
        return await self._write(turn.request)

    async def resume(self, request: web.Request) -> web.StreamResponse:
        """Write the next part."""
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
            sent = message(self._turn) if callable(message) else message
            await response.write(sent if isinstance(sent, bytes) else f"id: {number}-{place}\n".encode() + event(sent))
        await response.write_eof()
        return response


# --- messages


def event(message: Any) -> bytes:
    """A message as an event; bytes are sent as they are."""
    return message if isinstance(message, bytes) else f"event: message\ndata: {json.dumps(message)}\n\n".encode()


def note(method: str, **params: Any) -> dict[str, Any]:
    """A notification."""
    return {"jsonrpc": "2.0", "method": method, "params": params}


def server_request(id: Any, method: str = "elicitation/create", **params: Any) -> dict[str, Any]:
    """A request of the server."""
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def progress_note(token: Any, progress: float) -> dict[str, Any]:
    """A notification of progress."""
    return note("notifications/progress", progressToken=token, progress=progress)


async def open_stream(request: Any, content_type: str = "text/event-stream") -> web.StreamResponse:
    """The head of a streamed answer."""
    response = web.StreamResponse(headers={"Content-Type": content_type})
    response.enable_chunked_encoding()
    await response.prepare(request)
    return response


def transport_of(request: Any) -> asyncio.Transport:
    """The connection of a request."""
    assert request.transport is not None, "the caller is still there"
    transport: asyncio.Transport = request.transport
    return transport
