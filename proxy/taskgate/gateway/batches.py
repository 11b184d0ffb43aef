"""The answers to a JSON-RPC batch: `answer_all`.

Only revision 2025-03-26 has batches: a host sends several messages in one HTTP body. `Gateway`
passes the messages here with a function that answers one. Each message is answered as if it came
alone, and each answer is sent once. The reply is one JSON array:

    [{"id": 1, …}, {"id": 2, …}]

When one of the messages turns the exchange into an event stream, all answers become its events.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from taskgate.streams.exchange import Exchange, HttpReply

Part = TypeVar("Part")


async def answer_all(
    exchange: Exchange, parts: Sequence[Part], answer: Callable[[Part], Awaitable[str | None]]
) -> HttpReply:
    """Answer all messages of a batch, concurrently.

    `answer` returns the answer to one message as text, or None if it has none. The reply is 202
    without a body if no message has an answer.
    """
    ready: list[str] = []

    async def take(part: Part) -> None:
        answered = await answer(part)
        if answered is not None:
            ready.append(answered)
        if exchange.is_streaming:
            _send(exchange, ready)

    # Started in order, so that a message can cancel an earlier one.
    async with asyncio.TaskGroup() as group:
        for part in parts:
            group.create_task(take(part))
    if exchange.is_streaming:
        # The task that made it a stream has sent everything that was ready.
        return HttpReply()
    return HttpReply(body=f"[{','.join(ready)}]") if ready else HttpReply(status=202)


def _send(exchange: Exchange, ready: list[str]) -> None:
    feed = exchange.stream()
    for message in ready:
        feed.send_answer(message)
    ready.clear()
