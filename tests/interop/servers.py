"""Real servers on released SDKs, each in its pinned environment: `example/server.py` for the length of a block.

Where an environment cannot be had the test is skipped with the reason; with TASKGATE_REQUIRE_ALL=1 that is a failure.
A server's ledger of runs comes through a pipe, so that a test can wait for a line instead of looking for it again.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from example import environments
from example.processes import UVICORN_LISTENS, running

from helpers.waiting import bounded

# The server's file runs on all of them; earlier ones have no Streamable HTTP, later ones call imports otherwise.
VERSIONS = ("1.8.1", "1.9.4", "1.12.4", "1.23.3")
SERVER = Path(environments.__file__).with_name("server.py")

NOTED_WITHIN = 15.0
LONGEST_LINE = 2**24  # a tool's argument stands in its line, however long


class Ledger:
    """What a server has noted of its tools' runs: `started TOOL ARGUMENT`, then finished, failed or cancelled."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._grown = asyncio.Condition()

    def count(self, line: str) -> int:
        """How often the line was noted until now."""
        return self.lines.count(line)

    async def noted(self, line: str, *, times: int = 1) -> None:
        """Waits until the line was noted that often; raises TimeoutError after fifteen seconds."""
        async with asyncio.timeout(NOTED_WITHIN), self._grown:
            await self._grown.wait_for(lambda: self.count(line) >= times)

    async def follow(self, source: asyncio.StreamReader) -> None:
        """Takes lines until the last writer has closed its end."""
        async for line in source:
            self.lines.append(line.decode().rstrip("\n"))
            async with self._grown:
                self._grown.notify_all()


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyServer:
    """A running server; `process` is there to be killed by a test that wants that."""

    version: str
    url: str
    ledger: Ledger
    log: Path
    process: asyncio.subprocess.Process


@asynccontextmanager
async def legacy_server(version: str, folder: Path, *, port: int = 0) -> AsyncIterator[LegacyServer]:
    """Runs the reports server on that release of the SDK, with its log in `folder`; port 0 takes a free one.

    At the end of the block it is gone, and nothing that it started is left. Skips or fails like `require_environment`.
    """
    require_environment(version)
    log = folder / f"server-{version}.log"
    async with _ledger_pipe() as (ledger, writing_end):
        options = ("--port", str(port), "--ledger", f"/dev/fd/{writing_end}")
        command = (environments.python_of(f"mcp-{version}"), SERVER, *options)
        async with running(command, log=log, pass_fds=[writing_end]) as child:
            async with bounded():
                listening = await child.said(UVICORN_LISTENS)
            url = f"{listening[1].decode()}/mcp"
            yield LegacyServer(version=version, url=url, ledger=ledger, log=log, process=child.process)
    assert child.process.returncode is not None
    with pytest.raises(ProcessLookupError):
        os.killpg(child.process.pid, 0)


def require_environment(version: str) -> None:
    """Sees to it that the release's environment is there, or skips the test; a failure where nothing may be missing."""
    name = f"mcp-{version}"
    try:
        environments.ensure(name)
    except environments.EnvironmentNotMade as reason:
        if os.environ.get("TASKGATE_REQUIRE_ALL") == "1":
            pytest.fail(f"nothing may be missing here, but: {reason}", pytrace=False)
        pytest.skip(str(reason))


@asynccontextmanager
async def _ledger_pipe() -> AsyncIterator[tuple[Ledger, int]]:
    """A ledger and the descriptor that its lines are written to; the writers must be gone when the block ends."""
    reading_end, writing_end = os.pipe()
    source = asyncio.StreamReader(limit=LONGEST_LINE)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(source), os.fdopen(reading_end, "rb")
    )
    ledger = Ledger()
    following = asyncio.create_task(ledger.follow(source))
    try:
        yield ledger, writing_end
    finally:
        os.close(writing_end)
        await following
        transport.close()
