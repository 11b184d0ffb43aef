"""How a program of the benchmark listens: its loop, its port, its end; nothing that belongs to one of them."""

import argparse
import asyncio
import contextlib
import os
import resource
import signal
from collections.abc import Callable

from taskgate.system.event_loop import loop_factory

BACKLOG = 4096
LOOP = "TASKGATE_BENCH_LOOP"
"""The variable that has the event loop of all programs of a benchmark; without it they take what taskgate takes."""

Server = asyncio.Server
Opened = contextlib.AbstractAsyncContextManager[Server]


def loop() -> str:
    """The event loop that was chosen: `auto`, `asyncio` or `uvloop`."""
    return os.environ.get(LOOP, "auto")


def runner() -> asyncio.Runner:
    """A runner on that event loop."""
    return asyncio.Runner(loop_factory=loop_factory(loop()))


def raise_descriptor_limit() -> None:
    """Lift the soft limit of open descriptors to the hard one; children inherit it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def arguments(purpose: str) -> argparse.ArgumentParser:
    """A command line with `--port`, which every listening program has."""
    parser = argparse.ArgumentParser(description=purpose)
    parser.add_argument("--port", type=int, required=True, help="the port on 127.0.0.1")
    return parser


async def _until_told(opened: Opened) -> None:
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    async with opened:
        await told.wait()


def serve(opened: Opened) -> None:
    """Keep what `opened` opens until SIGTERM or SIGINT, then close it."""
    raise_descriptor_limit()
    with runner() as running:
        running.run(_until_told(opened))


async def listen(factory: Callable[[], asyncio.BaseProtocol], port: int) -> Server:
    """Listen on loopback with a backlog that thousands of callers at once do not overrun."""
    return await asyncio.get_running_loop().create_server(factory, "127.0.0.1", port, backlog=BACKLOG)
