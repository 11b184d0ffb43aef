"""Waits for new events of a stream over a connection that fails in unforeseen ways."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from helpers.waiting import bounded
from taskgate.stores.redis.streams import StreamWatch

LONG = timedelta(hours=1)


class Wire:
    """A pub/sub connection that says what the test has it say."""

    def __init__(self) -> None:
        self.said: asyncio.Queue[dict[str, Any] | Exception] = asyncio.Queue()
        self.channels: set[bytes] = set()
        self.closed = False

    async def subscribe(self, *names: str) -> None:
        self.channels.update(name.encode() for name in names)
        for name in names:
            self.said.put_nowait({"type": "subscribe", "channel": name.encode()})

    async def get_message(self, *, timeout: float) -> dict[str, Any]:
        assert timeout
        said = await self.said.get()
        if isinstance(said, Exception):
            raise said
        return said

    async def aclose(self) -> None:
        self.closed = True


@pytest.fixture
def wires() -> list[Wire | Exception]:
    """Those that are made, in turn, or why they are not."""
    return []


@pytest.fixture
async def growth(wires: list[Wire | Exception]) -> AsyncIterator[StreamWatch]:
    made = iter(wires)

    def opened() -> Wire:
        if isinstance(wire := next(made), Exception):
            raise wire
        return wire

    listening = StreamWatch(opened)
    yield listening
    await listening.close()


async def test_a_failure_that_nobody_has_foreseen_lets_go_of_who_waits_and_is_told_once(
    growth: StreamWatch, wires: list[Wire | Exception], caplog: pytest.LogCaptureFixture
) -> None:
    failing = [Wire(), Wire()]
    wires += failing
    async with bounded():
        for wire in failing:
            await growth.wait("stream", LONG)
            wire.said.put_nowait({"type": "message", "channel": b"\xff\xfe"})
            await growth.wait("stream", LONG)
            assert wire.closed
    assert caplog.text.count("The subscription to new stream events failed") == 1
    assert "UnicodeDecodeError" in caplog.text


async def test_who_waits_after_a_failure_is_listened_for_anew(
    growth: StreamWatch, wires: list[Wire | Exception]
) -> None:
    good = Wire()
    wires += [RuntimeError("not even made"), good]
    loop = asyncio.get_running_loop()
    async with bounded():
        began = loop.time()
        await growth.wait("stream", LONG)
        assert loop.time() - began > 0.4, "it is not tried all the time"
        await growth.wait("stream", LONG)
        waiting = asyncio.create_task(growth.wait("stream", LONG))
        await asyncio.sleep(0)
        assert not waiting.done()
        good.said.put_nowait({"type": "message", "channel": b"stream"})
        await waiting
