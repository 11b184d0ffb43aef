"""A nursery, and lines to programs that it starts; nothing of either is left after a test."""

import asyncio
import math
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest

from helpers.virtual_time import turns
from helpers.waiting import PATIENCE, bounded, eventually
from taskgate.errors import UpstreamFailed
from taskgate.upstream.base import Outgoing
from taskgate.upstream.duplex.base import ChannelRequest, MessageChannel
from taskgate.upstream.settings import StdioSettings
from taskgate.upstream.stdio.channel import ProgramChannel
from taskgate.upstream.stdio.exits import Cause
from taskgate.upstream.stdio.pool import StdioChannels
from taskgate.upstream.stdio.starting import Program
from taskgate.upstream.stdio.supervisor_client import Order, Supervisor
from unit.upstream.stdio.programs import program, runs
from unit.upstream.stdio.started import Started

LIMIT = 2**21
HERE = {"PATH": os.environ["PATH"]}
"""The least that a program finds in its environment."""


@dataclass
class Recorder:
    """Hears a line, and remembers; see ChannelListener. What does not begin with a brace is no message."""

    heard_all: list[bytes] = field(default_factory=list)
    cuts: list[bytes] = field(default_factory=list)
    failures: list[UpstreamFailed] = field(default_factory=list)
    in_flight: int = 0
    on_heard: Callable[[bytes], None] = lambda message: None
    closed_at: float = math.nan
    """The loop time at which the line ended."""

    def on_message(self, message: bytes) -> bool:
        self.heard_all.append(message)
        self.on_heard(message)
        return message.startswith(b"{")

    async def on_large_message(self, message: bytes) -> bool:
        """See ChannelListener."""
        return self.on_message(message)

    def on_truncated(self, ends: bytes) -> bool:
        self.cuts.append(ends)
        return True

    def on_closed(self, failure: UpstreamFailed) -> None:
        self.failures.append(failure)
        self.closed_at = asyncio.get_running_loop().time()

    @property
    def messages(self) -> list[Any]:
        """What was said that is JSON."""
        return [orjson.loads(message) for message in self.heard_all if message.startswith(b"{")]


@dataclass
class Taken:
    """A line, who hears it, and how to speak on it."""

    line: ProgramChannel
    ears: Recorder

    async def tell(self, **message: Any) -> None:
        """Send a message."""
        async with bounded():
            await self.line.send(outgoing(orjson.dumps(message)))

    async def do(self, statement: str) -> None:
        """Have a program that does what it is told do that."""
        await self.tell(do=statement)

    async def told(self, count: int = 1) -> list[Any]:
        """Everything that it said, once it is that much."""
        await eventually(lambda: len(self.ears.messages) >= count or self.ears.failures)
        return self.ears.messages

    async def end(self) -> UpstreamFailed:
        """How it ended."""
        await eventually(lambda: self.ears.failures)
        [failure] = self.ears.failures
        return failure


class Yard:
    """The lines to one server, and what is counted of it."""

    def __init__(self, nurse: Supervisor, connect: float = PATIENCE, limit: int = LIMIT, **settings: Any) -> None:
        settings.setdefault("command", program())
        settings.setdefault("backoff", timedelta(milliseconds=50))
        self.restarts: list[Cause] = []
        self.counts: list[int] = []
        self.lines = StdioChannels(
            Program(
                name="reports",
                settings=StdioSettings(**settings),
                limit=limit,
                connect=timedelta(seconds=connect),
                restarted=self.restarts.append,
                running=self.counts.append,
            ),
            nurse,
        )
        self.channels: dict[MessageChannel, Taken] = {}

    async def take(self, context: str = "alice", declared: bytes | None = b"{}", **wish: Any) -> Taken:
        """A line for a caller."""
        more = {key: wish.pop(key) for key in ("first_byte", "only_listens", "principal") if key in wish}
        async with bounded():
            line = await self.lines.acquire(ChannelRequest(context, declared, outgoing(b"{}", **more), **wish))
        assert isinstance(line, ProgramChannel)
        if line not in self.channels:
            self.channels[line] = Taken(line, Recorder())
            line.listen(self.channels[line].ears)
        return self.channels[line]

    def taking(self, *args: Any, **wish: Any) -> "asyncio.Task[Taken]":
        """The same, in the background."""
        return asyncio.create_task(self.take(*args, **wish))

    async def kept_waiting(self, *waiting: "asyncio.Task[Taken]") -> None:
        """Let each of them come to where it waits for room."""
        await turns(20)
        assert not any(each.done() for each in waiting)

    def give_back(self, taken: Taken) -> None:
        """It is not needed any more."""
        self.lines.release(taken.line)


def outgoing(body: bytes, **more: Any) -> Outgoing:
    return Outgoing(verb="POST", headers={}, body=body, **more)


@pytest.fixture
async def nurse() -> AsyncIterator[Supervisor]:
    """Whoever starts programs; none is left after it."""
    nurse = Supervisor()
    yield nurse
    async with bounded():
        await nurse.close()


@pytest.fixture
async def start(nurse: Supervisor) -> AsyncIterator[Callable[..., object]]:
    """Starts programs, and lets go of their streams in the end."""
    descriptors: list[int] = []

    async def begin(
        text: str = "",
        *,
        command: tuple[str, ...] | None = None,
        env: Mapping[str, str] = HERE,
        cwd: Path | None = None,
    ) -> Started:
        (stdin, ours_in), (ours_out, stdout) = os.pipe(), os.pipe()
        statuses: list[int] = []
        order = Order(command or program(text), env, cwd, (stdin, stdout, sys.stderr.fileno()))
        try:
            async with bounded():
                child = await nurse.start(order, statuses.append)
        finally:
            os.close(stdin)
            os.close(stdout)
            descriptors.extend((ours_in, ours_out))
        return Started(child, ours_in, ours_out, statuses)

    yield begin
    for each in descriptors:
        with suppress(OSError):
            os.close(each)


@pytest.fixture
async def new_yard(nurse: Supervisor) -> AsyncIterator[Callable[..., Yard]]:
    """Makes lines to programs, with other settings."""
    yards: list[Yard] = []
    open_before = descriptors()

    def make(**settings: Any) -> Yard:
        yards.append(Yard(nurse, **settings))
        return yards[-1]

    yield make
    for yard in yards:
        async with bounded():
            await yard.lines.close()
        assert all(not runs(taken.line.pid) for taken in yard.channels.values())
        assert yard.counts[-1:] in ([], [0])
    # Of the nursery there is the socket.
    assert len(descriptors() - open_before) <= (1 if nurse.pid else 0)


@pytest.fixture
def yard(new_yard: Callable[..., Yard]) -> Yard:
    """Lines to a program that does what it is told."""
    return new_yard()


def descriptors() -> set[str]:
    """What this process has open."""
    return set(os.listdir("/proc/self/fd"))
