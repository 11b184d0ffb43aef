"""A host of either era over a real socket: it sends exactly what a test wants sent, and judges all that it receives.

Every message of the gateway is held against the published schema of the era, where that is at hand. A host writes
what requests of its era repeat, and a test can replace any of it, leave it out or send it twice. Nothing here retries
or repairs.
"""

import asyncio
import base64
import io
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, Final, Literal

import aiohttp
import pytest
from orjson import loads

from helpers import schema, told
from helpers.host.answers import Answer, Stream
from helpers.host.event_decoder import EventDecoder
from helpers.loop_pace import pace
from helpers.modern_schema import CAPABILITIES, CLIENT, LISTEN, TASKS, VERSION, Hearing
from helpers.waiting import bounded

Era = Literal["legacy", "modern"]
ERAS: Final[tuple[Era, ...]] = ("legacy", "modern")
both_eras = pytest.mark.parametrize("era", ERAS)
ACCEPT: Final = "application/json, text/event-stream"
NEWEST: Final = "2025-11-25"
"""The newest revision of the legacy era."""
REVISION: Final = "2026-07-28"
"""The revision of the modern era."""


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
"""The parameter that a request of the modern era repeats in a header."""
_ENDLESS: Final = aiohttp.ClientTimeout(total=None)

Headers = Mapping[str, Any]
"""Values are texts, GONE, or lists of texts for a header that is sent more than once."""
_Judge = Callable[[bytes, int], dict[str, Any]]
"""Reads and judges a message that came under that status."""


class Host:
    """One host. `token` goes with every message, and `name` where it says who it is.

    One of the legacy era opens a session: `session` and `revision` go with every message once `initialize` brought
    them, and `capabilities` are what it initializes with. One of the modern era remembers nothing: its `capabilities`
    go with every request, with the tasks extension unless `tasks` is False.
    """

    def __init__(
        self,
        http: aiohttp.ClientSession,
        url: str,
        token: str | None = None,
        *,
        era: Era = "legacy",
        name: str = "host",
        capabilities: Mapping[str, Any] | None = None,
        tasks: bool = True,
    ) -> None:
        self.http = http
        self.url = url
        self.token = token
        self.era: Era = era
        self.name = name
        self.session: str | None = None
        self.revision: str | None = None
        self.capabilities = dict(capabilities or {})
        if tasks and self.is_modern:
            self.capabilities["extensions"] = {**self.capabilities.get("extensions", {}), TASKS: {}}
        self._ids = count(1)

    @property
    def is_modern(self) -> bool:
        """Whether it is of the modern era."""
        return self.era == "modern"

    def again(self, url: str | None = None, http: aiohttp.ClientSession | None = None) -> "Host":
        """The same host after a lost connection, or elsewhere: same session, nothing else remembered."""
        known: dict[str, Any] = {"era": self.era, "name": self.name, "capabilities": self.capabilities, "tasks": False}
        other = Host(http or self.http, url or self.url, self.token, **known)
        other.session, other.revision = self.session, self.revision
        return other

    # --- what it asks

    async def initialize(self, revision: str = NEWEST, **params: Any) -> dict[str, Any]:
        """Open a session of the legacy era, end the handshake, and return what the gateway said."""
        asked = {
            "protocolVersion": revision,
            "capabilities": self.capabilities,
            "clientInfo": {"name": self.name, "version": "1"},
            **params,
        }
        answer = await self.ask("initialize", asked)
        self.session = answer.headers.get("Mcp-Session-Id")
        self.revision = answer.result["protocolVersion"]
        assert (await self.tell("notifications/initialized")).status == 202
        return answer.result

    async def open(self, revision: str = NEWEST) -> None:
        """Open a session, where its era has any."""
        if not self.is_modern:
            await self.initialize(revision)

    async def discover(self) -> dict[str, Any]:
        """`server/discover`, of the modern era."""
        return (await self.ask("server/discover")).result

    async def handshake(self) -> dict[str, Any]:
        """What the gateway says of the server to a host that comes: `initialize`, or `server/discover`."""
        return await (self.discover() if self.is_modern else self.initialize())

    async def call(
        self,
        tool: str,
        arguments: Any = None,
        *,
        meta: Mapping[str, Any] | None = None,
        headers: Headers | None = None,
        capabilities: Mapping[str, Any] | None = None,
        id: Any = None,
        **params: Any,
    ) -> Answer:
        """`tools/call`; `params` are laid over its own, and the rest is as in `written`."""
        asked = called(tool, arguments, **params)
        return await self.ask("tools/call", asked, meta=meta, headers=headers, capabilities=capabilities, id=id)

    async def call_as_task(self, tool: str, arguments: Any = None, *, task: Any = None, **more: Any) -> Answer:
        """`tools/call` by a host that takes a task: it asks for one in the legacy era, with `task`."""
        return await self.call(tool, arguments, **({} if self.is_modern else {"task": task or {}}), **more)

    async def start(self, tool: str, arguments: Any = None, **more: Any) -> dict[str, Any]:
        """Call a tool, which has to become a task, and return that.

        `more` is what the task is to be in the legacy era, and what `call` takes in the modern one.
        """
        if not self.is_modern:
            created: dict[str, Any] = (await self.call(tool, arguments, task=more)).result["task"]
            return created
        result = (await self.call(tool, arguments, **more)).result
        assert result["resultType"] == "task", result
        return result

    async def task(self, id: str, **more: Any) -> dict[str, Any]:
        """`tasks/get`."""
        return (await self.ask("tasks/get", {"taskId": id}, **more)).result

    async def until(self, task: str, status: str) -> dict[str, Any]:
        """The task once it is in that status."""
        pause = 0.005
        async with bounded():
            while (found := await self.task(task))["status"] != status:
                # No host may ask without any pause, nor very often in a row.
                await asyncio.sleep(pause * pace())
                pause *= 1.1
        return found

    async def update(self, task: str, answers: Mapping[str, Any], **more: Any) -> Answer:
        """`tasks/update`, of the modern era."""
        return await self.ask("tasks/update", {"taskId": task, "inputResponses": answers}, **more)

    async def cancel(self, task: str, **more: Any) -> Answer:
        """`tasks/cancel`."""
        return await self.ask("tasks/cancel", {"taskId": task}, **more)

    async def tell(self, method: str, params: Any = None) -> Answer:
        """Send a notification."""
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = params
        return await self.post(json.dumps(message).encode())

    async def respond(self, id: Any, result: Any = None, *, error: Any = None) -> Answer:
        """Answer a request of the server's, in the legacy era."""
        message = {"jsonrpc": "2.0", "id": id, **({"result": result} if error is None else {"error": error})}
        return await self.post(json.dumps(message).encode())

    @asynccontextmanager
    async def listen(self, *, id: Any = None, **wishes: Any) -> AsyncIterator[Stream]:
        """What comes unasked, for the length of the block: the GET stream of the session, or `subscriptions/listen`.

        The block of the latter begins when it was acknowledged.
        """
        if not self.is_modern:
            async with self.sending(b"", {"Accept": "text/event-stream"}, verb="GET") as stream:
                response = await stream.opened()
                assert response.status == 200, response.status
                yield stream
            return
        async with self.asking(LISTEN, {"notifications": wishes}, id=id) as stream:
            await stream.opened()
            await stream.until("notifications/subscriptions/acknowledged")
            yield stream

    async def leave(self) -> int:
        """DELETE the session; the status."""
        async with self.http.delete(self.url, headers=self.head()) as response:
            return response.status

    # --- how it asks

    async def ask(self, method: str, params: Any = None, *, headers: Headers | None = None, **more: Any) -> Answer:
        """Send a request and read its answer to the end; `more` is as in `written`, and `headers` as in `asking`."""
        message = self.written(method, params, **more)
        return await self.post(json.dumps(message).encode(), {**self.routing(message), **(headers or {})})

    @asynccontextmanager
    async def asking(
        self, method: str, params: Any = None, *, headers: Headers | None = None, **more: Any
    ) -> AsyncIterator[Stream]:
        """A request for the length of the block; then it is left, unless it is over.

        `headers` are laid over what is written by itself, name by name; `more` is as in `written`. A host of the
        legacy era takes no answer here but an event stream, which is open when the block begins.
        """
        message = self.written(method, params, **more)
        usual = self.routing(message) if self.is_modern else {"Accept": "text/event-stream"}
        async with self.sending(json.dumps(message).encode(), {**usual, **(headers or {})}) as stream:
            if not self.is_modern:
                await stream.opened()
            yield stream

    def written(
        self,
        method: str,
        params: Any = None,
        *,
        meta: Mapping[str, Any] | None = None,
        capabilities: Mapping[str, Any] | None = None,
        id: Any = None,
    ) -> dict[str, Any]:
        """A request as it would go out, with a fresh id unless given.

        `meta` is laid over what is written by itself, name by name; `params` that are no object go as they are.
        `capabilities` stand in the place of those of a host of the modern era.
        """
        message = {"jsonrpc": "2.0", "id": next(self._ids) if id is None else id, "method": method}
        said: dict[str, Any] = dict(meta or {})
        if self.is_modern:
            known = self.capabilities if capabilities is None else capabilities
            usual = {VERSION: REVISION, CAPABILITIES: known, CLIENT: {"name": self.name, "version": "1"}}
            said = {name: value for name, value in (usual | said).items() if value is not GONE}
        if (params is None or isinstance(params, dict)) and (self.is_modern or meta is not None):
            params = {"_meta": said, **(params or {})}
        return message if params is None else {**message, "params": params}

    def head(self) -> dict[str, str]:
        """The headers that go with every message."""
        head = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        head |= {} if self.session is None else {"Mcp-Session-Id": self.session}
        return head if self.revision is None else head | {"MCP-Protocol-Version": self.revision}

    def routing(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The headers that repeat parts of a request, as they should be; none in the legacy era."""
        if not self.is_modern:
            return {}
        params = message.get("params")
        found: dict[str, Any] = {"MCP-Protocol-Version": REVISION, "Mcp-Method": message["method"]}
        named = params.get(NAMED.get(message["method"], "")) if isinstance(params, dict) else None
        return found | ({"Mcp-Name": encoded(named)} if isinstance(named, str) else {})

    async def post(self, body: bytes, headers: Headers | None = None) -> Answer:
        """Send any body under these headers (and the usual ones), and read the answer to its end."""
        if self.is_modern:
            # Like any request of this era it is a task, whose end is its cancellation.
            async with self.sending(body, headers or {}) as stream:
                return await stream.answer()
        async with bounded():
            return await self._exchange(Stream(), body, headers or {}, "POST")

    @asynccontextmanager
    async def sending(self, body: bytes, headers: Headers, *, verb: str = "POST") -> AsyncIterator[Stream]:
        """Any body for the length of the block."""
        stream = Stream()
        stream.answering = asyncio.create_task(self._exchange(stream, body, headers, verb))
        try:
            yield stream
        finally:
            if stream.answering.done() and not stream.answering.cancelled():
                stream.answering.result()
            await stream.leave()

    async def _exchange(self, stream: Stream, body: bytes, headers: Headers, verb: str) -> Answer:
        usual, content = ({"Content-Type": "application/json"}, io.BytesIO(body)) if verb == "POST" else ({}, None)
        sent = _each_sent({**usual, "Accept": ACCEPT, **self.head(), **headers})
        try:
            async with self.http.request(verb, self.url, data=content, headers=sent, timeout=_ENDLESS) as response:
                stream.head.set_result(response)
                return await self._read(stream, response, body)
        finally:
            await stream.close()

    async def _read(self, stream: Stream, response: aiohttp.ClientResponse, body: bytes) -> Answer:
        streamed, status = response.content_type == "text/event-stream", response.status
        judge = self._judge(response, body)
        text, decoder = b"", EventDecoder()
        if streamed:
            async for chunk in response.content.iter_any():
                for text in decoder.feed(chunk):
                    await stream.add(judge(text, status))
        else:
            text = await response.read()
            if response.content_type == "application/json":
                await stream.add(judge(text, status))
        resumable = (decoder.last_id, decoder.retry) != (None, None)
        assert not (self.is_modern and resumable), "nothing of the modern era is resumed"
        messages = list(stream.heard)
        last = messages.pop() if messages and "method" not in messages[-1] else None
        if status >= 300 or (last is not None and "error" in last):
            # What came on the stream before is for the host alone, and may well name its own task.
            told.now().hear(f"{text.decode()} {response.headers.get('WWW-Authenticate')}")
        return Answer(
            status=status,
            headers=response.headers,
            message=last,
            text=text.decode(),
            notices=tuple(messages),
            streamed=streamed,
        )

    def _judge(self, response: aiohttp.ClientResponse, body: bytes) -> _Judge:
        if not self.is_modern:
            asked = _object(body) if response.status == 200 else {}
            return lambda text, _: _judged(text, asked)
        assert "Mcp-Session-Id" not in response.headers, "there are no sessions in the modern era"
        hearing = Hearing(_object(body))
        return lambda text, status: hearing.hear(text, status=status)


def called(tool: str, arguments: Any = None, **params: Any) -> dict[str, Any]:
    """The parameters of a `tools/call`."""
    return {"name": tool, "arguments": {} if arguments is None else arguments, **params}


def encoded(value: str) -> str:
    """A text as the value of a header (H-MOD-3)."""
    plain = value.isascii() and value.isprintable() and value == value.strip()
    if plain and not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


def _each_sent(headers: Headers) -> list[tuple[str, str]]:
    given = [(name, [value] if isinstance(value, str) else value) for name, value in headers.items()]
    return [(name, each) for name, values in given if values is not GONE for each in values]


def _judged(text: bytes, asked: Mapping[str, Any]) -> dict[str, Any]:
    """A message of the legacy era, held against the schema where that is at hand; `asked` is the request."""
    message: dict[str, Any] = loads(text)
    if schema.available():
        method, params, result = asked.get("method"), asked.get("params"), message.get("result")
        wished = isinstance(params, dict) and "task" in params
        as_task = method == "tools/call" and wished and isinstance(result, dict) and "task" in result
        schema.check_server_message(text, request_method=method if isinstance(method, str) else None, as_task=as_task)
    return message


def _object(body: bytes) -> dict[str, Any]:
    """What is sent, where that is an object."""
    try:
        message = loads(body)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}
