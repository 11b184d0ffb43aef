"""Tools of a scripted server whose calls stay open, and say what a test tells them to."""

import asyncio
from typing import Any

from aiohttp import web

from helpers.server.replies import Turn, event, open_stream, transport_of
from helpers.waiting import bounded, eventually

FORM = {"message": "Which?", "requestedSchema": {"type": "object", "properties": {"it": {"type": "string"}}}}


class TalkingTool:
    """A tool that says on the stream of its call what the test says; `begun` is set when a call has arrived."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.turn: Turn | None = None
        self._says: asyncio.Queue[Any] = asyncio.Queue()

    async def __call__(self, turn: Turn) -> Any:
        await turn.send()
        self.turn = turn
        self.begun.set()
        while (message := await self._says.get()) is not None:
            await turn.send(message)
        return await turn.end()

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


class LastingCall:
    """One call of it. `connections` counts the streams that it was, or is, told on."""

    def __init__(self, turn: Turn, number: int) -> None:
        self.turn = turn
        self.connections = 0
        self._number = number
        self.events: list[bytes] = [b"data:\n\n"]
        self._open: list[web.BaseRequest] = []
        self.is_over = False
        self._news = asyncio.Event()

    @property
    def token(self) -> Any:
        """What its progress goes by."""
        return self.turn.token

    @property
    def session(self) -> str:
        """The session that it was made in."""
        return self.turn.request.headers["Mcp-Session-Id"]

    def say(self, *messages: Any) -> None:
        """Tell more; nobody need be there to hear it."""
        self.events += [event(message) for message in messages]
        self._wake()

    async def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """Ask whoever made it, for the response."""
        self.say(question)
        reply: dict[str, Any] = await self.turn.server.reply_to(question["id"])
        return reply

    def answer(self, value: Any) -> None:
        """Answer it, which ends its stream."""
        self.is_over = True
        self.say(self.turn.answer(value))

    def cut(self) -> None:
        """Drop whoever listens."""
        for request in self._open:
            transport_of(request).close()

    async def listened_to(self, connections: int = 1) -> None:
        """Wait until so many streams were opened for it."""
        async with bounded():
            while self.connections < connections:
                self._news.clear()
                await self._news.wait()

    async def serve(self, request: web.Request, since: int) -> web.StreamResponse:
        """Tell it on a connection, from the event behind that one."""
        response = await open_stream(request)
        self._open.append(request)
        self.connections += 1
        self._wake()
        try:
            place = since
            while True:
                while place < len(self.events):
                    await response.write(f"id: {self._number}.{place}\n".encode() + self.events[place])
                    place += 1
                if self.is_over:
                    await response.write_eof()
                    return response
                self._news.clear()
                await self._news.wait()
        finally:
            self._open.remove(request)

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


class LastingTool:
    """A tool whose response survives the connections that carry it: every event has an id.

        server.script["long"] = long = LastingTool()
        ...                                      # a client calls it
        call = await long.called()
        call.say(progress_note(call.token, 1))
        call.cut()                               # the client resumes from its last event
        call.answer({"content": []})

    A stream begins with an event that has nothing but its id, as servers of 2025-11-25 have it. What `ask` asks may be
    answered on any connection of the session. `asked` has the last event ids of the clients that
    resumed; an id that it does not know is answered 404.
    """

    def __init__(self) -> None:
        self.calls: list[LastingCall] = []
        self.asked: list[str] = []
        self.forgets = False
        """Whether it knows of no call any more."""
        self._came = asyncio.Event()

    async def called(self, count: int = 1) -> LastingCall:
        """The call of that number, once it was made."""
        async with bounded():
            while len(self.calls) < count:
                self._came.clear()
                await self._came.wait()
        return self.calls[count - 1]

    async def __call__(self, turn: Turn) -> web.StreamResponse:
        call = LastingCall(turn, len(self.calls))
        self.calls.append(call)
        self._came.set()
        turn.server.resume = self.resume
        return await call.serve(turn.request, 0)

    async def resume(self, request: web.Request) -> web.StreamResponse:
        last = request.headers["Last-Event-ID"]
        self.asked.append(last)
        number, _, place = last.partition(".")
        call = self.calls[int(number)] if number.isdigit() and int(number) < len(self.calls) else None
        if call is None or self.forgets or call.session != request.headers["Mcp-Session-Id"]:
            return web.Response(status=404)
        return await call.serve(request, int(place) + 1)
