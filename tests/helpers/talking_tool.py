"""A tool of a scripted server that keeps its stream open and says what a test tells it to, question by question."""

import asyncio
from typing import Any

from aiohttp import web

from helpers.scripted_replies import Turn, event, open_stream
from helpers.waiting import bounded, eventually

FORM = {"message": "Which?", "requestedSchema": {"type": "object", "properties": {"it": {"type": "string"}}}}


class TalkingTool:
    """One call of a tool. `begun` is set when it has arrived."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.turn: Turn | None = None
        self._says: asyncio.Queue[Any] = asyncio.Queue()

    async def __call__(self, turn: Turn) -> web.StreamResponse:
        response = await open_stream(turn.request)
        self.turn = turn
        self.begun.set()
        while (message := await self._says.get()) is not None:
            await response.write(event(message))
        await response.write_eof()
        return response

    @property
    def called(self) -> Turn:
        """The call."""
        assert self.turn is not None, "nobody called"
        return self.turn

    @property
    def unsaid(self) -> int:
        """How many messages wait to be written on the stream."""
        return self._says.qsize()

    async def say(self, message: Any) -> None:
        """Put one message on the stream, once there is one."""
        async with bounded():
            await self.begun.wait()
        self._says.put_nowait(message)

    async def ask(self, id: Any, method: str = "elicitation/create", params: Any = None) -> None:
        """Ask the host something."""
        await self.say({"jsonrpc": "2.0", "id": id, "method": method, "params": FORM if params is None else params})

    async def note(self, method: str, **params: Any) -> None:
        """Tell the host something."""
        await self.say({"jsonrpc": "2.0", "method": method, "params": params})

    async def withdraw(self, id: Any) -> None:
        """Give a question up."""
        await self.note("notifications/cancelled", requestId=id)

    async def told(self, id: Any) -> dict[str, Any]:
        """The response to a question, once it has come."""
        server = self.called.server
        await eventually(lambda: any(reply.get("id") == id for reply in server.replies))
        found: dict[str, Any] = next(reply for reply in server.replies if reply.get("id") == id)
        return found

    def unanswered(self, id: Any) -> bool:
        """Whether nobody has answered a question."""
        return all(reply.get("id") != id for reply in self.called.server.replies)

    async def finish(self, value: Any) -> None:
        """Answer the call, and end the stream."""
        async with bounded():
            await self.begun.wait()
        self._says.put_nowait(self.called.answer(value))
        self._says.put_nowait(None)

    async def vanish(self) -> None:
        """End the stream without an answer."""
        async with bounded():
            await self.begun.wait()
        self._says.put_nowait(None)
