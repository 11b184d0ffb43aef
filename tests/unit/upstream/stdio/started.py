"""Programs as tests of the nursery start them: what they say, and how they ended."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass, field

from helpers.waiting import eventually
from taskgate.upstream.stdio.supervisor_client import Child

STUBBORN = "signal.signal(15, signal.SIG_IGN); say(os.getpid())\nwhile True: signal.pause()"
"""ProgressPeek of itself, and does not end when it is asked to."""

DAEMON = (
    "pid = os.fork()\nif pid: os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\nsay(os.getpid()); signal.pause()"
)
"""Leaves the session that it was started in, and tells of that which stays."""


@dataclass
class Started:
    """One program, with what it says and how it ended."""

    child: Child
    stdin: int
    stdout: int
    statuses: list[int] = field(default_factory=list)

    def says(self) -> str:
        """One piece of what it says: it is waited for."""
        return os.read(self.stdout, 2**16).decode()

    def number(self) -> int:
        """The process that it tells of."""
        return int(self.says())

    async def status(self) -> int:
        """How it ended."""
        await eventually(lambda: self.statuses)
        [status] = self.statuses
        return status


Start = Callable[..., "asyncio.Future[Started]"]
