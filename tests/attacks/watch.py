"""A watch of a gateway in a process of its own, from outside, while it is attacked.

An attack is a test that is marked `attack` and `alone`. It starts a gateway, runs its attack inside of `watching`, and
compares what the watch saw with a bound. Counts of work belong in unit tests: figures here are of a whole machine, so
their bounds are wide, many times what is usual and a small part of what the attack did before it was withstood.
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from example.processes import ChildEnded

from helpers.gateway.process import GatewayProcess

PROBE = Path(__file__).with_name("probe.py")


@dataclass(slots=True)
class Watch:
    """What was seen of a gateway from outside; complete once the block of `watching` is over."""

    longest_silence: float = 0.0
    """Seconds between two answers of /livez that follow each other."""
    answers: int = 0
    """Answers of /livez with status 200."""
    memory_before: int = 0
    """Bytes resident when the watch began."""
    memory_peak: int = 0
    """The most bytes resident at any moment of the watch."""

    @property
    def memory_growth(self) -> int:
        """Bytes by which the peak is above the beginning."""
        return self.memory_peak - self.memory_before


@contextlib.asynccontextmanager
async def watching(gateway: GatewayProcess, name: str = "attack") -> AsyncIterator[Watch]:
    """Ask a gateway for /livez all the time, from a process of its own, and read its memory; prints what was seen."""
    watch, pid = Watch(), gateway.child.process.pid
    _forget_peak(pid)
    watch.memory_before = _memory(pid, "VmRSS")
    probe = await asyncio.create_subprocess_exec(
        sys.executable, PROBE, gateway.admin, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert probe.stdout is not None
    try:
        async with asyncio.timeout(30):
            if await probe.stdout.readline() != b"probing\n":
                raise ChildEnded("the probe ended at once")
        yield watch
        async with asyncio.timeout(60):
            said, _ = await probe.communicate(b"")
        silence, answers = said.split()
        watch.longest_silence, watch.answers = float(silence), int(answers)
        watch.memory_peak = _memory(pid, "VmHWM")
        growth = watch.memory_growth / 2**20
        # `make attacks` shows it.
        sys.stdout.write(f"{name}: silent for {watch.longest_silence:.3f} s at most, {growth:.1f} MiB more at most\n")
    finally:
        if probe.returncode is None:
            probe.kill()
            await probe.wait()


def _memory(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


def _forget_peak(pid: int) -> None:
    """Have the system count the peak of resident memory from now on."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
