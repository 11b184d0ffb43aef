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

    `answer` is called once for each message. It returns the answer as text, or None if the message
    needs none; it does not raise for a refused message. The reply is 202 without a body if no
    message has an answer.
    """
    unsent: list[str] = []

    async def answer_part(part: Part) -> None:
        text = await answer(part)
        if text is not None:
            unsent.append(text)
        if exchange.is_streaming:
            # From now on each answer is sent when it is there.
            _send(exchange, unsent)

    # Started in order, so that a message can cancel an earlier one.
    async with asyncio.TaskGroup() as group:
        for part in parts:
            group.create_task(answer_part(part))
    if exchange.is_streaming:
        # The task that made it a stream has sent everything that was ready.
        return HttpReply()
    return HttpReply(body=f"[{','.join(unsent)}]") if unsent else HttpReply(status=202)


def _send(exchange: Exchange, unsent: list[str]) -> None:
    feed = exchange.stream()
    for message in unsent:
        feed.send_answer(message)
    unsent.clear()
