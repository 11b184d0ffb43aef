"""A tiny MCP host over a real socket, which says exactly what a test wants said and judges all that it hears.

Every message of the gateway is held against the published schema (where that is at hand) and kept as it came. Nothing
here retries, waits on its own account or repairs: a test that wants a broken message sends one.
"""

import asyncio
import io
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Self

import aiohttp
from orjson import loads

from helpers import schema, told
from helpers.event_decoder import EventDecoder
from helpers.waiting import bounded

ACCEPT = "application/json, text/event-stream"
NEWEST = "2025-11-25"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one POST brought: the message that answers it (None where there is none), and those that came before it."""

    status: int
    headers: Mapping[str, str]
    message: dict[str, Any] | None
    text: str
    notices: tuple[dict[str, Any], ...] = ()
    streamed: bool = False

    @property
    def result(self) -> dict[str, Any]:
        """The result; an AssertionError with what came instead."""
        assert self.message is not None, f"no message, status {self.status}: {self.text[:300]}"
        assert "result" in self.message, self.message
        result: dict[str, Any] = self.message["result"]
        return result

    @property
    def error(self) -> dict[str, Any]:
        """The JSON-RPC error; an AssertionError with what came instead."""
        assert self.message is not None, f"no message, status {self.status}: {self.text[:300]}"
        assert "error" in self.message, self.message
        error: dict[str, Any] = self.message["error"]
        return error

    @property
    def code(self) -> int:
        """The JSON-RPC error's code."""
        code: int = self.error["code"]
        return code


@dataclass(slots=True)
class Stream:
    """An open GET stream: its messages in the order they came."""

    heard: list[dict[str, Any]] = field(default_factory=list)
    ended: bool = False
    _grown: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def until(self, method: str, *, times: int = 1) -> dict[str, Any]:
        """The message of that method that makes `times`; TimeoutError when it does not come."""
        async with bounded(), self._grown:
            await self._grown.wait_for(lambda: len(self.of(method)) >= times)
        return self.of(method)[times - 1]

    async def end(self) -> None:
        """Wait until the gateway has ended the stream."""
        async with bounded(), self._grown:
            await self._grown.wait_for(lambda: self.ended)

    def of(self, method: str) -> list[dict[str, Any]]:
        """What was heard of that method."""
        return [message for message in self.heard if message.get("method") == method]

    async def answered(self) -> dict[str, Any]:
        """The result of the request that the stream is of, once the stream has ended with it."""
        await self.end()
        assert "method" not in self.heard[-1], self.heard[-1]
        result: dict[str, Any] = self.heard[-1]["result"]
        return result

    async def follow(self, response: aiohttp.ClientResponse, asked: dict[str, Any] | None = None) -> None:
        """Read to the end; `asked` is the request that is answered there, if one is."""
        decoder = EventDecoder()
        try:
            async for chunk in response.content.iter_any():
                for event in decoder.feed(chunk):
                    self.heard.append(judged(event, asked or {}))
                    await self.wake()
        finally:
            self.ended = True
            await self.wake()

    async def wake(self) -> None:
        """Tell those who wait for more of it."""
        async with self._grown:
            self._grown.notify_all()


class McpHost:
    """One host. `token` goes with every message, as do `session` and `revision` once `initialize` brought them."""

    def __init__(self, http: aiohttp.ClientSession, url: str, token: str | None = None) -> None:
        self.http = http
        self.url = url
        self.token = token
        self.session: str | None = None
        self.revision: str | None = None
        self._ids = count(1)

    async def initialize(self, revision: str = NEWEST, **params: Any) -> dict[str, Any]:
        """Open a session, end the handshake, and return what the gateway said."""
        asked = {
            "protocolVersion": revision,
            "capabilities": {},
            "clientInfo": {"name": "host", "version": "1"},
            **params,
        }
        answer = await self.ask("initialize", asked)
        self.session = answer.headers.get("Mcp-Session-Id")
        self.revision = answer.result["protocolVersion"]
        assert (await self.tell("notifications/initialized")).status == 202
        return answer.result

    async def ask(
        self, method: str, params: Any = None, *, id: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send a request; a fresh id unless given."""
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": next(self._ids) if id is None else id, "method": method}
        if params is not None:
            message["params"] = params
        return await self.post(json.dumps(message).encode(), headers=headers)

    async def call(self, tool: str, arguments: Any = None, **params: Any) -> Answer:
        """`tools/call`; what else is given goes into its params."""
        return await self.ask("tools/call", {"name": tool, "arguments": arguments or {}, **params})

    async def start(self, tool: str, arguments: Any = None, **task: Any) -> dict[str, Any]:
        """Call a tool as a task and return the task."""
        created: dict[str, Any] = (await self.call(tool, arguments, task=task)).result["task"]
        return created

    async def task(self, id: str) -> dict[str, Any]:
        """`tasks/get`."""
        return (await self.ask("tasks/get", {"taskId": id})).result

    async def tell(self, method: str, params: Any = None) -> Answer:
        """Send a notification."""
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = params
        return await self.post(json.dumps(message).encode())

    async def post(self, body: bytes, *, headers: Mapping[str, str] | None = None) -> Answer:
        """Send any body, and read the answer to its end."""
        sent = {"Content-Type": "application/json", "Accept": ACCEPT, **self.head(), **(headers or {})}
        async with bounded(), self.http.post(self.url, data=io.BytesIO(body), headers=sent) as response:
            streamed = response.content_type == "text/event-stream"
            asked = _read(body) if response.status == 200 else {}
            raw = await response.read()
            texts = EventDecoder().feed(raw) if streamed else [raw] if _is_json(response) else []
            messages = [judged(text, asked) for text in texts]
            last = messages.pop() if messages and "method" not in messages[-1] else None
            if response.status >= 300 or (last is not None and "error" in last):
                # What came on the stream before is for the host alone, and may well name its own task.
                told.now().hear(f"{(texts[-1] if texts else raw).decode()} {response.headers.get('WWW-Authenticate')}")
            return Answer(
                status=response.status,
                headers=response.headers,
                message=last,
                text=(texts[-1] if texts else raw).decode(),
                notices=tuple(messages),
                streamed=streamed,
            )

    async def respond(self, id: Any, result: Any = None, *, error: Any = None) -> Answer:
        """Answer a request of the server's."""
        message = {"jsonrpc": "2.0", "id": id, **({"result": result} if error is None else {"error": error})}
        return await self.post(json.dumps(message).encode())

    @asynccontextmanager
    async def asking(self, method: str, params: Any = None, *, id: Any = None) -> AsyncIterator[Stream]:
        """A request whose event stream is heard while it lasts, for the length of the block; then it is dropped.

        No other answer is taken, so there is a stream from the start.
        """
        message = {"jsonrpc": "2.0", "id": next(self._ids) if id is None else id, "method": method, "params": params}
        head = {"Content-Type": "application/json", "Accept": "text/event-stream", **self.head()}
        body, timeout = json.dumps(message).encode(), aiohttp.ClientTimeout(total=None)
        async with self.http.post(self.url, data=body, headers=head, timeout=timeout) as response:
            assert response.content_type == "text/event-stream", await response.text()
            stream = Stream()
            following = asyncio.create_task(stream.follow(response, message))
            try:
                yield stream
            finally:
                following.cancel()
                await asyncio.wait([following])

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[Stream]:
        """A GET stream for the length of the block."""
        head = {"Accept": "text/event-stream", **self.head()}
        timeout = aiohttp.ClientTimeout(total=None)
        async with self.http.get(self.url, headers=head, timeout=timeout) as response:
            assert response.status == 200, response.status
            stream = Stream()
            following = asyncio.create_task(stream.follow(response))
            try:
                yield stream
            finally:
                following.cancel()
                await asyncio.wait([following])

    async def leave(self) -> int:
        """DELETE the session; the status."""
        async with self.http.delete(self.url, headers=self.head()) as response:
            return response.status

    def again(self) -> Self:
        """The same host after a lost connection: same session, nothing else remembered."""
        other = type(self)(self.http, self.url, self.token)
        other.session, other.revision = self.session, self.revision
        return other

    def head(self) -> dict[str, str]:
        """The headers that go with every message."""
        head = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        head |= {} if self.session is None else {"Mcp-Session-Id": self.session}
        return head if self.revision is None else head | {"MCP-Protocol-Version": self.revision}


def judged(text: bytes | str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """A message of the gateway, held against the schema where that is at hand; `asked` is the request it is about."""
    message: dict[str, Any] = loads(text)
    if schema.available():
        method, params, result = asked.get("method"), asked.get("params"), message.get("result")
        wished = isinstance(params, dict) and "task" in params
        as_task = method == "tools/call" and wished and isinstance(result, dict) and "task" in result
        schema.check_server_message(text, request_method=method if isinstance(method, str) else None, as_task=as_task)
    return message


def _is_json(response: aiohttp.ClientResponse) -> bool:
    return response.content_type == "application/json"


def _read(body: bytes) -> Mapping[str, Any]:
    """What is sent, where that is an object."""
    try:
        message = loads(body)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}
