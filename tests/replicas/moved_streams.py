"""Streams that move between replicas: what is said on them in parts, and what was heard."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from helpers.gateway.gateway import Gateway
from helpers.host.wire import Wire
from helpers.waiting import bounded
from interaction.resumption import SAID
from interaction.resumption import heard as everything

PART = 40
"""How much is said in each part of a counted stream."""


def counted(part: int) -> range:
    """What is said in one part."""
    return range(part * PART, (part + 1) * PART)


async def messages(wire: Wire, count: int) -> None:
    """Read until so many messages have come."""
    while len(heard(wire)) < count:
        assert await wire.next() is not None, f"the stream ended after {heard(wire)}"


def outcome(wire: Wire) -> Any:
    """The answer that a stream ended with."""
    return wire.seen[-1].message


def said(wire: Wire) -> list[Any]:
    """What was said by log lines."""
    found = [event.message for event in wire.seen if event.data]
    told = [message["params"]["data"] for message in found if message.get("method") == SAID]
    return [each for each in told if each != PROBE]


@asynccontextmanager
async def draining(gateway: Gateway) -> AsyncIterator[None]:
    """A gateway that drains meanwhile, and is gone afterwards."""
    hurry = asyncio.Event()
    drain = asyncio.create_task(gateway.drain(hurry))
    try:
        yield
    finally:
        hurry.set()
        await drain
        await gateway.close()


PROBE = "is anybody there?"


def heard(wire: Wire) -> list[Any]:
    """What the messages were about, without probes."""
    return [each for each in everything(wire) if each != PROBE]


async def listened_to(wire: Wire, speak: Callable[[str], Awaitable[None]]) -> None:
    """Have a probe said until it is heard on that stream: nothing said after that is lost."""

    async def read() -> None:
        while PROBE not in everything(wire):
            assert await wire.next() is not None, "the stream ended"

    reading = asyncio.create_task(read())
    async with bounded():
        while not reading.done():
            await speak(PROBE)
            await asyncio.wait((reading,), timeout=0.05)
    await reading
