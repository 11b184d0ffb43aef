"""What a host receives for a request: the messages as they come, and the whole answer."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from helpers.waiting import bounded


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to one POST: the message that answers it, if there is one, and the messages that came before it."""

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
    """A request on its way: the messages that have come for it, in their order, and its answer in the end."""

    heard: list[dict[str, Any]] = field(default_factory=list)
    ended: bool = False
    head: asyncio.Future[aiohttp.ClientResponse] = field(default_factory=asyncio.Future)
    answering: asyncio.Task[Answer] | None = None
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
        """The messages of that method so far."""
        return [message for message in self.heard if message.get("method") == method]

    async def opened(self) -> aiohttp.ClientResponse:
        """The head of the answer, which has to be an event stream."""
        return await self._begun("text/event-stream")

    async def kept_waiting(self) -> aiohttp.ClientResponse:
        """The head of the answer, which has to be a document that begins before its text is known."""
        response = await self._begun("application/json")
        assert response.headers.get("X-Accel-Buffering") == "no", await self.answer()
        return response

    async def _begun(self, content_type: str) -> aiohttp.ClientResponse:
        assert self.answering is not None
        async with bounded():
            await asyncio.wait((self.head, self.answering), return_when=asyncio.FIRST_COMPLETED)
        if not self.head.done():
            await self.answer()
        response = self.head.result()
        assert response.content_type == content_type, await self.answer()
        return response

    async def answer(self) -> Answer:
        """The whole answer, once it is there."""
        assert self.answering is not None
        async with bounded():
            return await asyncio.shield(self.answering)

    async def result(self) -> dict[str, Any]:
        """The result that the stream ends with."""
        return (await self.answer()).result

    async def leave(self) -> None:
        """Close the response stream, which cancels a request of the modern era (H-MOD-9)."""
        assert self.answering is not None
        self.answering.cancel()
        await asyncio.wait([self.answering])

    async def add(self, message: dict[str, Any]) -> None:
        """Append a message that has come."""
        self.heard.append(message)
        await self._wake()

    async def close(self) -> None:
        """Mark the end."""
        self.ended = True
        await self._wake()

    async def _wake(self) -> None:
        async with self._grown:
            self._grown.notify_all()
