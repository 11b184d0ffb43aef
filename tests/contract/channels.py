"""The message channels under test, each to a server that takes three orders: messages `say`, `heard` and `exit`.

`say` has `lines`, each sent as it is; `heard` is answered with a notification of all that was received; `exit` ends
the server, or its side of the channel.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from helpers.server import PROGRAM
from helpers.server.in_process import ScriptedChannels
from helpers.server.sse import SseServer
from helpers.waiting import eventually
from taskgate.errors import UpstreamFailed
from taskgate.upstream.base import Outgoing
from taskgate.upstream.duplex.base import ChannelProvider, ChannelRequest, MessageChannel
from taskgate.upstream.settings import StdioSettings, TransportKind, UpstreamSettings
from taskgate.upstream.sse.channel import SseChannelProvider
from taskgate.upstream.stdio.pool import StdioChannels
from taskgate.upstream.stdio.starting import Program
from taskgate.upstream.stdio.supervisor_client import Supervisor

LIMIT = 2**18
"""Bytes of the largest message that is kept."""


@dataclass
class Recorder:
    """Hears a line; see ChannelListener. Only objects of JSON are messages to it."""

    messages: list[Any] = field(default_factory=list)
    junk: list[bytes] = field(default_factory=list)
    cuts: list[bytes] = field(default_factory=list)
    failures: list[UpstreamFailed] = field(default_factory=list)
    in_flight: int = 0

    def on_message(self, message: bytes) -> bool:
        assert not self.failures, "nothing is heard after the loss"
        try:
            self.messages.append(json.loads(message))
        except ValueError:
            self.junk.append(message)
            return False
        return True

    async def on_large_message(self, message: bytes) -> bool:
        """See ChannelListener."""
        return self.on_message(message)

    def on_truncated(self, ends: bytes) -> bool:
        assert not self.failures, "nothing is heard after the loss"
        self.cuts.append(ends)
        return True

    def on_closed(self, failure: UpstreamFailed) -> None:
        self.failures.append(failure)


@dataclass
class Spoken:
    """A line, and who hears it."""

    line: MessageChannel
    ears: Recorder

    async def tell(self, method: str, **params: Any) -> int | None:
        """Send a message."""
        return await self.line.send(outgoing({"jsonrpc": "2.0", "method": method, "params": params}))

    async def say(self, *lines: Any) -> None:
        """Have the server say that."""
        await self.tell("say", lines=[each if isinstance(each, str) else json.dumps(each) for each in lines])

    async def heard(self) -> list[Any]:
        """All that the server heard."""
        await self.tell("heard")
        await eventually(lambda: any(each.get("method") == "notifications/heard" for each in self.ears.messages))
        said = next(each for each in self.ears.messages if each.get("method") == "notifications/heard")
        self.ears.messages.remove(said)
        heard: list[Any] = said["params"]["all"]
        return heard

    async def end(self) -> UpstreamFailed:
        """How it was lost."""
        await eventually(lambda: self.ears.failures)
        return self.ears.failures[0]


def outgoing(message: Any, **more: Any) -> Outgoing:
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    return Outgoing(verb="POST", headers={"Content-Type": "application/json"}, body=body, **more)


def wish(context: str = "alice", **more: Any) -> ChannelRequest:
    return ChannelRequest(context, b"{}", outgoing({}, **more))


async def taken(lines: ChannelProvider) -> Spoken:
    """A line of one's own."""
    line = await lines.acquire(wish())
    ears = Recorder()
    line.listen(ears)
    return Spoken(line, ears)


@asynccontextmanager
async def to_program() -> AsyncIterator[ChannelProvider]:
    """Lines that are programs."""
    nurse = Supervisor()
    settings = StdioSettings(command=(sys.executable, "-IS", PROGRAM))
    lines = StdioChannels(Program(name="reports", settings=settings, limit=LIMIT, connect=timedelta(seconds=10)), nurse)
    try:
        yield lines
    finally:
        await lines.close()
        await nurse.close()


@asynccontextmanager
async def to_event_server() -> AsyncIterator[ChannelProvider]:
    """Lines that are event streams."""
    seconds = timedelta(seconds=10)
    async with SseServer() as server:
        server.obeys = True
        settings = UpstreamSettings(
            name="reports", url=server.url, transport=TransportKind.SSE, connect=seconds, first_byte=seconds, idle=None,
            call=seconds, max_result=LIMIT,
        )  # fmt: skip
        lines = SseChannelProvider(settings)
        try:
            yield lines
        finally:
            await lines.close()


@asynccontextmanager
async def to_script() -> AsyncIterator[ChannelProvider]:
    """Lines of the tests themselves: what is shown with them is worth something where they keep the contract, too."""
    program = ScriptedChannels()
    program.obeys, program.limit = True, LIMIT
    try:
        yield program
    finally:
        await program.close()
        await asyncio.sleep(0)


LINES = {"program": to_program, "event stream": to_event_server, "script": to_script}
