"""A tiny MCP host of the modern era over a real socket: it says what a test wants said, and judges what it hears.

What every request repeats (`_meta`, routing headers) it writes by itself, and any of it can be replaced, left out or
sent twice. Nothing here retries, waits on its own account or repairs.
"""

import asyncio
import base64
import io
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

import aiohttp
from orjson import loads

from helpers import told
from helpers.event_decoder import EventDecoder
from helpers.loop_pace import pace
from helpers.mcp_host import ACCEPT, Answer, Stream
from helpers.modern_schema import CAPABILITIES, CLIENT, LISTEN, TASKS, VERSION, Hearing
from helpers.waiting import bounded

REVISION: Final = "2026-07-28"


class _Gone:
    def __repr__(self) -> str:
        return "GONE"


GONE: Final = _Gone()
"""In place of a member of `_meta` or of a header: it is left out."""
NAMED: Final = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    **dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), "taskId"),
}

Headers = Mapping[str, Any]
"""Values are texts, GONE, or lists of texts for a header that is sent more than once."""


@dataclass(slots=True)
class Asked(Stream):
    """A request on its way: what has been heard for it so far, and its answer once that is there."""

    head: asyncio.Future[aiohttp.ClientResponse] = field(default_factory=asyncio.Future)
    answering: asyncio.Task[Answer] | None = None

    async def answer(self) -> Answer:
        """The whole answer, once it is there."""
        assert self.answering is not None
        async with bounded():
            return await asyncio.shield(self.answering)

    async def streams(self) -> aiohttp.ClientResponse:
        """The head of the answer, which has to be an event stream."""
        async with bounded():
            response = await asyncio.shield(self.head)
        assert response.content_type == "text/event-stream", await self.answer()
        return response

    async def leave(self) -> None:
        """Close the response stream, which cancels the request (H-MOD-9)."""
        assert self.answering is not None
        self.answering.cancel()
        await asyncio.wait([self.answering])


class ModernHost:
    """One host. Nothing is remembered from one request to the next but what it is given here.

    `capabilities` go with every request, with the tasks extension unless `tasks` is False.
    """

    def __init__(
        self,
        http: aiohttp.ClientSession,
        url: str,
        token: str | None = None,
        *,
        capabilities: Mapping[str, Any] | None = None,
        tasks: bool = True,
    ) -> None:
        self.http = http
        self.url = url
        self.token = token
        self.capabilities = dict(capabilities or {})
        if tasks:
            self.capabilities["extensions"] = {**self.capabilities.get("extensions", {}), TASKS: {}}
        self._ids = count(1)

    # --- what it asks

    async def ask(self, method: str, params: Any = None, **more: Any) -> Answer:
        """Send a request and read its answer to the end. What `more` may hold, `asking` says."""
        async with self.asking(method, params, **more) as asked:
            return await asked.answer()

    async def discover(self) -> dict[str, Any]:
        """`server/discover`."""
        return (await self.ask("server/discover")).result

    async def call(self, tool: str, arguments: Any = None, *, params: Any = None, **more: Any) -> Answer:
        """`tools/call`; `params` are laid over its own."""
        return await self.ask("tools/call", called(tool, arguments, **(params or {})), **more)

    async def start(self, tool: str, arguments: Any = None, **more: Any) -> dict[str, Any]:
        """Call a tool, which has to become a task."""
        result = (await self.call(tool, arguments, **more)).result
        assert result["resultType"] == "task", result
        return result

    async def get(self, task: str, **more: Any) -> dict[str, Any]:
        """`tasks/get`."""
        return (await self.ask("tasks/get", {"taskId": task}, **more)).result

    async def until(self, task: str, status: str) -> dict[str, Any]:
        """The task once it is in that status."""
        pause = 0.005
        async with bounded():
            while (found := await self.get(task))["status"] != status:
                # Nobody may ask without any pause, nor very often in a row.
                await asyncio.sleep(pause * pace())
                pause *= 1.1
        return found

    async def update(self, task: str, answers: Mapping[str, Any], **more: Any) -> Answer:
        """`tasks/update`."""
        return await self.ask("tasks/update", {"taskId": task, "inputResponses": answers}, **more)

    async def cancel(self, task: str, **more: Any) -> Answer:
        """`tasks/cancel`."""
        return await self.ask("tasks/cancel", {"taskId": task}, **more)

    @asynccontextmanager
    async def listen(self, *, id: Any = None, **wishes: Any) -> AsyncIterator[Asked]:
        """`subscriptions/listen` for the length of the block, which begins when it was acknowledged."""
        async with self.asking(LISTEN, {"notifications": wishes}, id=id) as asked:
            await asked.streams()
            await asked.until("notifications/subscriptions/acknowledged")
            yield asked

    # --- how it asks

    @asynccontextmanager
    async def asking(
        self,
        method: str,
        params: Any = None,
        *,
        meta: Mapping[str, Any] | None = None,
        headers: Headers | None = None,
        capabilities: Mapping[str, Any] | None = None,
        id: Any = None,
    ) -> AsyncIterator[Asked]:
        """A request for the length of the block; then it is left, unless it is over.

        `meta` and `headers` are laid over what is written by itself, name by name; `params` that are no object go as
        they are. `capabilities` stand in the place of the host's own.
        """
        message = self.written(method, params, meta=meta, capabilities=capabilities, id=id)
        async with self.sending(json.dumps(message).encode(), {**self.routing(message), **(headers or {})}) as asked:
            yield asked

    def written(
        self,
        method: str,
        params: Any = None,
        *,
        meta: Mapping[str, Any] | None = None,
        capabilities: Mapping[str, Any] | None = None,
        id: Any = None,
    ) -> dict[str, Any]:
        """A request as it would go out."""
        message = {"jsonrpc": "2.0", "id": next(self._ids) if id is None else id, "method": method, "params": params}
        if params is None or isinstance(params, dict):
            said = {
                VERSION: REVISION,
                CAPABILITIES: self.capabilities if capabilities is None else capabilities,
                CLIENT: {"name": "host", "version": "1"},
                **(meta or {}),
            }
            kept = {name: value for name, value in said.items() if value is not GONE}
            message["params"] = {"_meta": kept, **(params or {})}
        return message

    def routing(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The headers that repeat parts of a request, as they should be."""
        params = message.get("params")
        found: dict[str, Any] = {"MCP-Protocol-Version": REVISION, "Mcp-Method": message["method"]}
        named = params.get(NAMED.get(message["method"], "")) if isinstance(params, dict) else None
        return found | ({"Mcp-Name": encoded(named)} if isinstance(named, str) else {})

    async def post(self, body: bytes, headers: Headers | None = None) -> Answer:
        """Send any body under these headers (and the usual ones of HTTP), and read the answer to its end."""
        async with self.sending(body, headers or {}) as asked:
            return await asked.answer()

    @asynccontextmanager
    async def sending(self, body: bytes, headers: Headers) -> AsyncIterator[Asked]:
        """Any body for the length of the block."""
        asked = Asked()
        asked.answering = asyncio.create_task(self._exchange(asked, body, self._head(headers)))
        try:
            yield asked
        finally:
            if asked.answering.done() and not asked.answering.cancelled():
                asked.answering.result()
            await asked.leave()

    async def _exchange(self, asked: Asked, body: bytes, headers: Sequence[tuple[str, str]]) -> Answer:
        timeout = aiohttp.ClientTimeout(total=None)
        try:
            async with self.http.post(self.url, data=io.BytesIO(body), headers=headers, timeout=timeout) as response:
                asked.head.set_result(response)
                assert "Mcp-Session-Id" not in response.headers, "there are no sessions in this era"
                return await self._hear(asked, response, Hearing(_object(body)))
        finally:
            asked.ended = True
            await asked.wake()

    async def _hear(self, asked: Asked, response: aiohttp.ClientResponse, hearing: Hearing) -> Answer:
        streamed = response.content_type == "text/event-stream"
        decoder = EventDecoder()
        raw = b""
        async for chunk in response.content.iter_any():
            raw = chunk if streamed else raw + chunk
            for event in decoder.feed(chunk) if streamed else ():
                asked.heard.append(hearing.hear(event, status=response.status))
                await asked.wake()
        assert (decoder.last_id, decoder.retry) == (None, None), "nothing of this era is resumed"
        if response.content_type == "application/json":
            asked.heard.append(hearing.hear(raw, status=response.status))
        messages = list(asked.heard)
        last = messages.pop() if messages and "method" not in messages[-1] else None
        if response.status >= 300 or (last is not None and "error" in last):
            told.now().hear(f"{json.dumps(last)} {response.headers.get('WWW-Authenticate')}")
        return Answer(
            status=response.status,
            headers=response.headers,
            message=last,
            text=raw.decode() if not streamed else "",
            notices=tuple(messages),
            streamed=streamed,
        )

    def _head(self, headers: Headers) -> list[tuple[str, str]]:
        usual: dict[str, Any] = {"Content-Type": "application/json", "Accept": ACCEPT}
        usual |= {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        sent: list[tuple[str, str]] = []
        for name, value in {**usual, **headers}.items():
            if value is not GONE:
                sent += [(name, each) for each in ([value] if isinstance(value, str) else value)]
        return sent


def called(tool: str, arguments: Any = None, **params: Any) -> dict[str, Any]:
    """The parameters of a `tools/call`."""
    return {"name": tool, "arguments": {} if arguments is None else arguments, **params}


def encoded(value: str) -> str:
    """A text as the value of a header (H-MOD-3)."""
    plain = value.isascii() and value.isprintable() and value == value.strip()
    if plain and not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


def _object(body: bytes) -> dict[str, Any]:
    """What is sent, where that is an object."""
    with suppress(ValueError):
        message = loads(body)
        if isinstance(message, dict):
            return message
    return {}
