"""What tests share whose replicas are processes: starting them, coming to one as a host, and reading what it counts."""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path

import aiohttp

from helpers.gateway import process
from helpers.gateway.configuration import write_configuration
from helpers.gateway.process import GatewayProcess
from helpers.gateway.replicas import key_file, store_section
from helpers.host.host import Host
from helpers.waiting import bounded
from taskgate.stores.redis.options import RedisOptions

LOST = "The gateway stopped while the call was running; it may or may not have completed"

Start = Callable[..., Awaitable[GatewayProcess]]
"""Starts one more; `ahead` is a file with the seconds by which its machine's time of day is ahead of what is right."""

# Without the script's own folder, which has modules that are named as some of the library are.
_WANDERING = (sys.executable, "-P", Path(process.__file__).with_name("wrong_clock.py"))


@asynccontextmanager
async def starting(url: str, options: RedisOptions, folder: Path, **lines: str) -> AsyncIterator[Start]:
    """Starts replicas in front of that server, each a process, whose lease is two seconds; for `lines` see the file."""
    store = store_section(options, heartbeat="500ms")
    auth = {"mode": "none", "context": {"key_file": str(key_file(folder))}}
    file = write_configuration(folder, url, store=store, auth=auth, audit={"enabled": False}, **lines)
    async with AsyncExitStack() as stack:
        logs = count()

        async def started(*, ahead: Path | None = None) -> GatewayProcess:
            program = () if ahead is None else (*_WANDERING, ahead)
            serving = process.gateway_process(["--config", file], log=folder / f"{next(logs)}.log", program=program)
            return await stack.enter_async_context(serving)

        yield started


async def ended(host: Host, task: str) -> dict[str, object]:
    """The task, once it has ended."""
    async with bounded():
        await host.ask("tasks/result", {"taskId": task})
        found: dict[str, object] = await host.task(task)
    return found


async def counted(http: aiohttp.ClientSession, gateway: GatewayProcess, sample: str) -> float:
    """The sum of the samples that begin so."""
    async with http.get(f"http://{gateway.admin}/metrics") as page:
        lines = (await page.text()).splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(sample))
