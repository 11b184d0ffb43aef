"""Starting a program of the benchmark, and what the kernel says of it: CPU time and resident memory. Linux only.

Every program started here ends with `ended`, and with the benchmark itself, however that ends.
"""

import contextlib
import ctypes
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from bench.failures import BenchFailed

ROOT = Path(__file__).resolve().parent.parent
_END_BOUND = 10.0  # seconds a program has to end after SIGTERM
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Program:
    """A started program."""

    def __init__(
        self, name: str, command: Sequence[str], *, piped: bool = False, environment: Mapping[str, str] | None = None
    ) -> None:
        """`environment` comes on top of that of the benchmark."""
        self.name = name
        self.words: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `ended`
        pipe = subprocess.PIPE if piped else subprocess.DEVNULL
        self.popen = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            stdin=pipe,
            stdout=pipe if piped else self.words,
            stderr=self.words,
            start_new_session=True,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - the benchmark has one thread
        )

    def cpu(self) -> float:
        """Seconds of CPU it has used, user and system, without its children.

        This is the process's own clock: what `/proc/<pid>/stat` shows as utime and stime in steps of 10 ms.
        """
        return time.clock_gettime((~self.popen.pid << 3) | 2)

    def resident(self) -> int:
        """Bytes of memory it has resident."""
        status = Path(f"/proc/{self.popen.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024

    def descriptors(self) -> int:
        """How many descriptors it has open."""
        return len(list(Path(f"/proc/{self.popen.pid}/fd").iterdir()))

    def last_words(self) -> str:
        """The end of what it wrote to stderr (and to stdout, unless that is a pipe)."""
        self.words.seek(0)
        return self.words.read()[-2000:].decode(errors="replace").strip()

    def require_running(self) -> None:
        """Raise `BenchFailed` if it has ended."""
        if self.popen.poll() is not None:
            raise BenchFailed(f"{self.name} ended with status {self.popen.returncode}:\n{self.last_words()}")

    def wait_until_quiet(self, bound: float = 10.0) -> None:
        """Wait until it has used next to no CPU for a while, so that what it does after its answers is counted too."""
        until, used, quiet = time.monotonic() + bound, self.cpu(), 0
        while quiet < 3 and time.monotonic() < until:
            time.sleep(0.02)
            before, used = used, self.cpu()
            quiet = quiet + 1 if used - before < 0.001 else 0

    def end(self) -> None:
        """Ask it to end; kill it if it does not."""
        self.popen.terminate()
        try:
            self.popen.wait(_END_BOUND)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
        for pipe in (self.popen.stdin, self.popen.stdout, self.words):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


@contextlib.contextmanager
def ended(program: Program) -> Iterator[Program]:
    """Give `program`, and end it afterwards."""
    try:
        yield program
    finally:
        program.end()


def python(module: str, *given: str) -> list[str]:
    """The command that runs one of our modules with this interpreter."""
    return [sys.executable, "-m", f"bench.{module}", *given]


def free_port() -> int:
    """A port on loopback that nobody listens on, another one each time; none that outgoing connections are given."""
    for port in _ports:
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            return port
    raise BenchFailed("no port of this machine is free")


_ports = iter(random.SystemRandom().sample(range(10_000, 32_000), 22_000))
