"""Calls over one transport with a server that says what the test says, and what may come back."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from helpers.waiting import bounded
from taskgate.errors import UpstreamFailed
from taskgate.upstream.base import Outgoing
from taskgate.upstream.client import HttpTransport
from unit.upstream.raw_server import Line, RawServer

JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
DOCUMENT = JSON + b"Content-Length: 2\r\n\r\n{}"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT = b"a\r\ndata: {}\n\n\r\n"
LONG = 8 * 2**20

NewTransport = Callable[..., HttpTransport]


def outgoing(body: bytes | None = b"{}", **bounds: float) -> Outgoing:
    """A request; bounds are in seconds."""
    spans = {name: timedelta(seconds=seconds) for name, seconds in bounds.items()}
    return Outgoing(verb="POST", headers={"Content-Type": "application/json"}, body=body, **spans)


async def fetch(transport: HttpTransport, **bounds: float) -> tuple[int, list[bytes]]:
    """Status and messages of one answer, read to its end where it has messages."""
    incoming = await transport.send(outgoing(**bounds))
    try:
        messages = [message async for message in incoming.messages()] if incoming.status == 200 else []
    finally:
        incoming.release()
    return incoming.status, messages


def start(transport: HttpTransport, **bounds: float) -> "asyncio.Task[tuple[int, list[bytes]]]":
    return asyncio.create_task(fetch(transport, **bounds))


async def failure_of(asking: "asyncio.Task[Any]") -> tuple[str, bool]:
    """Reason of the failure and whether the request may have run."""
    async with bounded():
        with pytest.raises(UpstreamFailed) as failed:
            await asking
    return failed.value.reason, failed.value.dispatched


async def answered(server: RawServer, transport: HttpTransport, *pieces: bytes) -> tuple[Line, int, list[bytes]]:
    """One call on a new connection, answered with these pieces."""
    asking = start(transport)
    line = await server.next()
    await line.request()
    await line.say(*pieces)
    async with bounded():
        return line, *(await asking)


async def answer_again(line: Line, transport: HttpTransport) -> None:
    """Another call, which must come on that connection."""
    asking = start(transport)
    await line.request()
    await line.say(DOCUMENT)
    async with bounded():
        assert await asking == (200, [b"{}"])
