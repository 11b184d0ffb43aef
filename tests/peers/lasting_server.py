"""A server whose streams can be taken up where they were left, on an unmodified SDK. It knows nothing of tasks.

It runs on releases from 1.23 on: `python lasting_server.py` takes a free port, which its log tells.
"""

from collections import Counter

from mcp import types
from mcp.server.fastmcp import Context, FastMCP
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from pydantic import BaseModel


class Memory(EventStore):
    """Every event since the start."""

    def __init__(self) -> None:
        self._events: list[tuple[str, types.JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: str, message: types.JSONRPCMessage | None) -> str:
        self._events.append((stream_id, message))
        return str(len(self._events))

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        last = int(last_event_id)
        stream, _ = self._events[last - 1]
        for number, (place, message) in enumerate(self._events[last:], start=last + 1):
            if place == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


class Answer(BaseModel):
    """What a user is asked for."""

    word: str


server = FastMCP("lasting", host="127.0.0.1", port=0, event_store=Memory(), retry_interval=50)
begun: Counter[str] = Counter()


@server.tool()
async def ask(ctx: Context, about: str) -> str:
    """Asks the user for three words."""
    begun[about] += 1
    words = [about]
    for number in (1, 2, 3):
        await ctx.report_progress(number, 4)
        answer = await ctx.elicit(f"Word {number}?", Answer)
        words.append(answer.data.word if answer.action == "accept" else answer.action)
    return " ".join(words)


@server.tool()
def times(about: str) -> int:
    """Tells how often somebody was asked about that."""
    return begun[about]


if __name__ == "__main__":
    server.run(transport="streamable-http")
