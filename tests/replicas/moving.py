"""What tests of streams share that move between replicas."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from helpers.event_streams import Wire
from helpers.mcp_host import McpHost
from helpers.several_gateways import gone
from helpers.waiting import eventually
from helpers.whole_gateway import WholeGateway
from interaction.resuming import SAID, heard
from taskgate.sessions.registry import HostSessions

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
    return [message["params"]["data"] for message in found if message.get("method") == SAID]


@asynccontextmanager
async def draining(gateway: WholeGateway) -> AsyncIterator[None]:
    """A gateway that drains meanwhile, and is gone afterwards."""
    hurry = asyncio.Event()
    drain = asyncio.create_task(gateway.drain(hurry))
    try:
        yield
    finally:
        hurry.set()
        await drain
        await gone(gateway)


def told_directly(gateway: WholeGateway, task: str) -> bool:
    """Whether a stream of this gateway is told what its task says without a way around."""
    assert gateway.service._runtime is not None
    return bool(gateway.service._runtime.runner._hearing.streams._results.get(task))


async def listened_to(gateway: WholeGateway, task: str) -> None:
    """Wait until what the task says is heard on a stream, wherever that is."""
    assert gateway.service._runtime is not None
    streams = gateway.service._runtime.runner._hearing.streams
    assert streams.afar is not None
    await eventually(lambda: task in streams.afar._ears or streams._results.get(task))


def knows_of_stream(gateway: WholeGateway, host: McpHost) -> bool:
    session = sessions_of(gateway).peek(host.session)
    return session is not None and session.elsewhere.newest is not None


def sessions_of(gateway: WholeGateway) -> HostSessions:
    assert gateway.service._runtime is not None
    return gateway.service._runtime.sessions
