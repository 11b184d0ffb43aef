"""Released hosts that do one step after the other, as a test says.

A host is one process for all tests, in `tests/peers/host_steps_*`; every test gives it a connection of its own, as a
caller of its own. What hosts were told is judged at the end of the test like anything else.
"""

import asyncio
import itertools
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from example import environments
from example.processes import bound_to_us

from helpers import told
from helpers.waiting import bounded
from interop.peers import HOME
from interop.refusals import Kind
from peers import install

Told = dict[str, Any]
ANSWERS_WITHIN = 25.0
"""Seconds for one step."""


ENVIRONMENTS = ("mcp-1.23.3", "mcp-2.3.0", "fastmcp-4.1.4")


def command(kind: Kind) -> list[str | Path]:
    """What runs it."""
    python, node = environments.python_of, install.node
    commands: dict[str, list[str | Path]] = {
        "python-1-23": [python("mcp-1.23.3"), HOME / "host_steps_python.py"],
        "python": [sys.executable, HOME / "host_steps_python.py"],
        "python-2-initialize": [python("mcp-2.3.0"), HOME / "host_steps_modern_python.py", "--initialize"],
        "python-2": [python("mcp-2.3.0"), HOME / "host_steps_modern_python.py"],
        "fastmcp-4": [python("fastmcp-4.1.4"), HOME / "host_steps_fastmcp.py"],
        "sdk": [node(), HOME / "host_steps_sdk.mjs"],
        "client": [node(), HOME / "host_steps_client.mjs"],
        "client-stateless": [node(), HOME / "host_steps_client.mjs", "--stateless"],
    }
    return commands[kind.name]


class SteppedHost:
    """One host's process."""

    def __init__(self, kind: Kind, child: asyncio.subprocess.Process) -> None:
        self.kind = kind
        self._child = child
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Told]] = {}

    async def listen(self) -> None:
        """Takes what it says until it says no more; whoever still waits is told that."""
        assert self._child.stdout is not None
        async for line in self._child.stdout:
            came = json.loads(line)
            self._waiting.pop(came.pop("id")).set_result(came)
        for each in self._waiting.values():
            each.set_exception(EOFError(f"the host {self.kind.name} ended"))

    async def step(self, on: str, do: str, *given: object) -> Told:
        """What came of one step on that connection."""
        assert self._child.stdin is not None
        id = next(self._ids)
        self._waiting[id] = asyncio.get_running_loop().create_future()
        self._child.stdin.write(json.dumps({"id": id, "on": on, "do": do, "with": given}).encode() + b"\n")
        async with bounded(ANSWERS_WITHIN):
            came = await self._waiting[id]
        if {"error", "thrown", "gone"} & came.keys():
            told.now().hear(json.dumps(came))
        return came

    @asynccontextmanager
    async def connected(self, url: str, headers: Mapping[str, str]) -> AsyncIterator["Connected"]:
        """A connection for the length of the block."""
        on = f"{len(self._waiting)}-{next(self._ids)}"
        assert await self.step(on, "connect", url, dict(headers)) == {"connected": True}
        try:
            yield Connected(self, on)
        finally:
            await self.step(on, "leave")


class Connected:
    """What a host does on one connection. A task is known by its id."""

    def __init__(self, host: SteppedHost, on: str) -> None:
        self._host = host
        self._on = on

    @property
    def kind(self) -> Kind:
        return self._host.kind

    async def call(self, tool: str, meta: Mapping[str, str] | None = None, **given: object) -> Told:
        return await self._host.step(self._on, "call", tool, given, *([dict(meta)] if meta else []))

    async def task(self, tool: str, meta: Mapping[str, str] | None = None, **given: object) -> Told:
        return await self._host.step(self._on, "task", tool, given, *([dict(meta)] if meta else []))

    async def look(self, task: str) -> Told:
        return await self._host.step(self._on, "look", task)

    async def cancel(self, task: str) -> Told:
        return await self._host.step(self._on, "cancel", task)

    async def outcome(self, task: str) -> Told:
        return await self._host.step(self._on, "outcome", task)

    async def assert_usable(self) -> None:
        """A call is answered."""
        assert await self.call("echo", word="again") == {"text": "echo again", "is_error": False}


@asynccontextmanager
async def stepped_host(kind: Kind, folder: Path) -> AsyncIterator[SteppedHost]:
    """The host of that kind for the length of the block; what it complains of stands in a file of its name."""
    with (folder / f"{kind.name}.log").open("wb") as complaints:
        child = await asyncio.create_subprocess_exec(
            *bound_to_us(command(kind)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=complaints,
            start_new_session=True,
        )
    host = SteppedHost(kind, child)
    listening = asyncio.create_task(host.listen())
    try:
        yield host
    finally:
        assert child.stdin is not None
        child.stdin.close()
        try:
            async with bounded(5):
                await child.wait()
        except TimeoutError:
            child.kill()
            await child.wait()
        await listening
