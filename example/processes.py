"""Child processes that are gone when their block ends, whatever ended it: for `make run` and for the interop tests.

Nothing of MCP or of taskgate is known here. A child gets a process group of its own, so that Ctrl-C in a terminal
reaches the parent alone, which then ends its children in the order that suits them.
"""

import asyncio
import contextlib
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

GRACE = 8.0  # seconds that a child has for ending politely
BEGINNING = 65536
# Said after the port is open; with port 0 it holds the real one.
UVICORN_LISTENS = rb"Uvicorn running on (http://[^\s:]+:\d+)"


class ChildEnded(Exception):
    """A child ended while it was still needed."""


class Child:
    """A running process; its output is copied to `log` as it comes."""

    def __init__(self, process: asyncio.subprocess.Process, output: asyncio.StreamReader, log: Path) -> None:
        self.process = process
        self.log = log
        self._output = output
        self._beginning = b""
        self._ended = False
        self._heard = asyncio.Condition()

    async def said(self, pattern: bytes) -> re.Match[bytes]:
        """Waits until the pattern stands in the first 64 KiB of output. Raises ChildEnded once it never will."""
        async with self._heard:
            await self._heard.wait_for(lambda: self._ended or re.search(pattern, self._beginning))
        found = re.search(pattern, self._beginning)
        if found is None:
            raise ChildEnded(f"process {self.process.pid} ended at once; what it said is in {self.log}")
        return found

    async def copy_output(self) -> None:
        """Copies until the process, and whoever has inherited its output, has closed it."""
        with self.log.open("wb") as log:
            while chunk := await self._output.read(BEGINNING):
                log.write(chunk)
                log.flush()
                self._beginning += chunk[: BEGINNING - len(self._beginning)]
                async with self._heard:
                    self._heard.notify_all()
        self._ended = True
        async with self._heard:
            self._heard.notify_all()


@contextlib.asynccontextmanager
async def running(
    command: Sequence[str | Path],
    *,
    log: Path,
    environment: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
    polite: signal.Signals = signal.SIGTERM,
) -> AsyncIterator[Child]:
    """Runs a command for the length of the block. At its end the child is asked with `polite`, then killed.

    `environment` is added to this process's own. Raises OSError when there is no such program.
    """
    process = await asyncio.create_subprocess_exec(
        *bound_to_us(command),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, **(environment or {})},
        pass_fds=pass_fds,
        start_new_session=True,
    )
    assert process.stdout is not None
    child = Child(process, process.stdout, log)
    copying = asyncio.create_task(child.copy_output())
    try:
        yield child
    finally:
        await end(process, polite)
        await copying


async def end(process: asyncio.subprocess.Process, polite: signal.Signals) -> None:
    """Ends the process: asked first, killed if it has not obeyed after GRACE. It is gone on return."""
    try:
        with contextlib.suppress(ProcessLookupError, TimeoutError):
            process.send_signal(polite)
            async with asyncio.timeout(GRACE):
                await process.wait()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def bound_to_us(command: Sequence[str | Path]) -> list[str | Path]:
    """The same command, to be ended by the system if this process is killed outright and can end nothing itself.

    That needs setpriv, which Linux distributions have; elsewhere the command is returned as it is.
    """
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", "--", *command] if setpriv else [*command]
