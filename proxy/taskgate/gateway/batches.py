"""JSON-RPC batches: `read_batch` reads the messages of one, and `answer_all` answers them.

Only revision 2025-03-26 has batches: a host sends several messages in one HTTP body. `Gateway`
calls both, the second with a function that answers one message. Each message is answered as if it came
alone, and each answer is sent once. The reply is one JSON array:

    [{"id": 1, …}, {"id": 2, …}]

When one of the messages turns the exchange into an event stream, all answers become its events.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from taskgate.errors import GatewayError
from taskgate.protocol.jsonrpc import parse, split_batch
from taskgate.protocol.messages import Message
from taskgate.streams.bytes_in_flight import SMALL
from taskgate.streams.exchange import Exchange, HttpReply
from taskgate.system.offload import LARGE, Turns

Part = TypeVar("Part")


async def read_batch(
    body: bytes, turns: Turns, caller: str, *, max_depth: int, max_members: int
) -> list[Message | GatewayError]:
    """Read the messages of a batch; an invalid one becomes its error.

    Raises what `split_batch` raises. A large batch is read on another thread, in its caller's turn.
    """
    read = partial(_read, max_depth=max_depth, max_members=max_members)
    split = partial(_split, body, max_depth, read)
    elements = split() if len(body) <= LARGE else await turns.run(caller, split)
    return [read(element) if isinstance(element, bytes) else element for element in elements]


def _split(
    body: bytes, max_depth: int, read: Callable[[bytes], Message | GatewayError]
) -> list[bytes | Message | GatewayError]:
    """Split a batch, and read its large elements. Small ones stay bytes: reading them uses a cache
    that belongs to the event loop.
    """
    elements = split_batch(body, max_depth=max_depth, counted=True)
    return [read(element) if len(element) > SMALL else element for element in elements]


def _read(element: bytes, *, max_depth: int, max_members: int) -> Message | GatewayError:
    try:
        return parse(element, max_depth=max_depth, max_members=max_members)
    except GatewayError as error:
        return error.copy()


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
