"""Several messages of a host in one body, which revision 2025-03-26 alone has: each is answered as if it came alone.

What must not live here: what becomes of one message (`gateway`). What holds: no answer is lost and none is sent twice;
they leave as one array or, once one of them had to become a stream, as events of that.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from taskgate.streams.exchange import Exchange, HttpReply

Part = TypeVar("Part")


async def answer_all(
    exchange: Exchange, parts: Sequence[Part], answer: Callable[[Part], Awaitable[str | None]]
) -> HttpReply:
    """The reply to all parts together. `answer` gives what one is answered, None where that is nothing."""
    ready: list[str] = []

    async def take(part: Part) -> None:
        answered = await answer(part)
        if answered is not None:
            ready.append(answered)
        if exchange.is_streaming:
            _send(exchange, ready)

    # Begun in order, so that one may cancel another that stands before it.
    async with asyncio.TaskGroup() as group:
        for part in parts:
            group.create_task(take(part))
    if exchange.is_streaming:
        # Whoever made it a stream has sent all that was ready.
        return HttpReply()
    return HttpReply(body=f"[{','.join(ready)}]") if ready else HttpReply(status=202)


def _send(exchange: Exchange, ready: list[str]) -> None:
    feed = exchange.stream()
    for message in ready:
        feed.send_answer(message)
    ready.clear()
