"""How a probe host reaches a server: Streamable HTTP, or a line, which is a program or an event stream (HTTP+SSE)."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urljoin

import aiohttp

from helpers.host.host import ACCEPT
from helpers.waiting import bounded
from taskgate.protocol.sse import EventDecoder

PROGRAM = Path(__file__).with_name("probe_server.py")
_LARGEST = 2**24
Message = dict[str, Any]
Hear = Callable[[Message, str], None]
"""Takes a message that is no answer, and the kind of stream that it came on."""
Start = Callable[[Coroutine[Any, Any, Any]], object]
"""Starts what ends with the link."""


class Link(Protocol):
    """A way to one server."""

    async def ask(
        self, message: Message, headers: Mapping[str, str], stream: str = "response"
    ) -> tuple[int | None, Message]:
        """Send a request; the HTTP status, where there is one, and the response.

        `stream` is what to call the stream that it is answered on.
        """

    async def send(self, message: Message, headers: Mapping[str, str]) -> int | None:
        """Send what gets no answer; the HTTP status, where there is one."""

    async def open(self, headers: Mapping[str, str]) -> None:
        """Open the stream of the session, where that is one of its own."""


class HttpLink:
    """Streamable HTTP. `session` is what the server named."""

    def __init__(self, http: aiohttp.ClientSession, url: str, hear: Hear, start: Start) -> None:
        self._http, self._url, self._hear, self._start = http, url, hear, start
        self.session: str | None = None

    async def ask(
        self, message: Message, headers: Mapping[str, str], stream: str = "response"
    ) -> tuple[int | None, Message]:
        async with self._post(message, headers) as response:
            self.session = response.headers.get("Mcp-Session-Id", self.session)
            if response.content_type == "text/event-stream":
                async for each in _events(response):
                    if "method" not in each:
                        return response.status, each
                    self._hear(each, stream)
                raise AssertionError(f"no answer to {message['method']}")
            return response.status, await response.json()

    async def send(self, message: Message, headers: Mapping[str, str]) -> int | None:
        async with self._post(message, headers) as response:
            status: int = response.status
            return status

    async def open(self, headers: Mapping[str, str]) -> None:
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._start(self._follow(headers, opened))
        await opened

    async def _follow(self, headers: Mapping[str, str], opened: asyncio.Future[None]) -> None:
        head = {"Accept": "text/event-stream", **self._head(headers)}
        async with self._http.get(self._url, headers=head) as response:
            assert response.status == 200, response.status
            opened.set_result(None)
            async for each in _events(response):
                self._hear(each, "session")

    def _post(self, message: Message, headers: Mapping[str, str]) -> Any:
        head = {"Accept": ACCEPT, "Content-Type": "application/json", **self._head(headers)}
        return self._http.post(self._url, data=json.dumps(message).encode(), headers=head)

    def _head(self, headers: Mapping[str, str]) -> dict[str, str]:
        return {**headers, **({} if self.session is None else {"Mcp-Session-Id": self.session})}


class LineLink:
    """A line: every message goes one way or the other on it, and answers are found by their ids."""

    def __init__(self, say: Callable[[Message], Any], hear: Hear) -> None:
        self._say, self._hear = say, hear
        self._waiting: dict[Any, asyncio.Future[Message]] = {}

    def receive(self, message: Message) -> None:
        """Take a message of the server."""
        if "method" in message:
            self._hear(message, "line")
        elif message["id"] in self._waiting:
            self._waiting.pop(message["id"]).set_result(message)

    async def ask(
        self, message: Message, headers: Mapping[str, str], stream: str = "line"
    ) -> tuple[int | None, Message]:
        answer = self._waiting[message["id"]] = asyncio.get_running_loop().create_future()
        await self._say(message)
        return None, await answer

    async def send(self, message: Message, headers: Mapping[str, str]) -> int | None:
        await self._say(message)
        return None

    async def open(self, headers: Mapping[str, str]) -> None:
        """Nothing: there is one stream for all."""


@asynccontextmanager
async def over_http(url: str, hear: Hear) -> AsyncIterator[Link]:
    """Streamable HTTP for the length of the block."""
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as http,
        background() as start,
    ):
        yield HttpLink(http, url, hear, start)


@asynccontextmanager
async def over_sse(url: str, hear: Hear) -> AsyncIterator[Link]:
    """HTTP+SSE for the length of the block."""
    named: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as http,
        background() as start,
    ):

        async def say(message: Message) -> None:
            async with http.post(urljoin(url, await named), json=message) as response:
                assert response.status == 202, response.status

        async def follow() -> None:
            async with http.get(url, headers={"Accept": "text/event-stream"}) as response:
                async for each in _events(response, lambda _, data: named.set_result(data.decode())):
                    link.receive(each)

        link = LineLink(say, hear)
        start(follow())
        yield link


@asynccontextmanager
async def over_stdio(era: str, file: Path, hear: Hear) -> AsyncIterator[Link]:
    """A program of that era for the length of the block; it records into the file."""
    program = await asyncio.create_subprocess_exec(
        *command(era, file), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=_LARGEST
    )
    assert program.stdin is not None
    assert program.stdout is not None
    stdin, stdout = program.stdin, program.stdout

    async def say(message: Message) -> None:
        stdin.write(json.dumps(message).encode() + b"\n")
        await stdin.drain()

    async def follow() -> None:
        while text := await stdout.readline():
            link.receive(json.loads(text))

    link = LineLink(say, hear)
    async with background() as start:
        start(follow())
        yield link
    stdin.close()
    async with bounded():
        await program.wait()


def command(era: str, file: Path) -> list[str]:
    """The program that is a probe server of that era."""
    # Without its site packages Python starts in a third of the time.
    return [sys.executable, "-S", str(PROGRAM), era, str(file)]


@asynccontextmanager
async def background() -> AsyncIterator[Start]:
    """Starts tasks that end with the block, and end it where they fail."""
    started: list[asyncio.Task[Any]] = []
    async with asyncio.TaskGroup() as tasks:

        def start(work: Coroutine[Any, Any, Any]) -> None:
            started.append(tasks.create_task(work))

        yield start
        for each in started:
            each.cancel()


async def _events(
    response: aiohttp.ClientResponse, other: Callable[[bytes, bytes], None] | None = None
) -> AsyncIterator[Message]:
    decoder = EventDecoder(_LARGEST, other)
    async for chunk in response.content.iter_any():
        for each in decoder.feed(chunk):
            yield json.loads(each)
