"""What tests share whose replicas are processes: starting them, coming to one as a host, and reading what it counts."""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from itertools import count
from pathlib import Path

import aiohttp

from helpers import gateway_process
from helpers.gateway_process import GatewayProcess, write_configuration
from helpers.mcp_host import McpHost
from helpers.several_gateways import key_file
from helpers.waiting import bounded
from taskgate.stores.redis.options import RedisOptions

LOST = "The gateway stopped while the call was running; it may or may not have completed"
LEASE = timedelta(seconds=2)

Start = Callable[..., Awaitable[GatewayProcess]]
"""Starts one more; `ahead` is a file with the seconds by which its machine's time of day is ahead of what is right."""

# Without the script's own folder, which has modules that are named as some of the library are.
_WANDERING = (sys.executable, "-P", Path(gateway_process.__file__).with_name("wandering_gateway.py"))


@asynccontextmanager
async def starting(url: str, options: RedisOptions, folder: Path, **lines: str) -> AsyncIterator[Start]:
    """Starts replicas in front of that server, each a process, whose lease is two seconds; for `lines` see the file."""
    store = (
        f'{{backend: redis, redis: {{url: "redis://127.0.0.1:{options.port}/0", key_prefix: "{options.key_prefix}"}}, '
        f"lease: {{ttl: {LEASE.total_seconds():g}s, heartbeat: 500ms}}}}"
    )
    auth = f'{{mode: none, context: {{key_file: "{key_file(folder)}"}}}}'
    file = write_configuration(folder, url, store=store, auth=auth, audit="{enabled: false}", **lines)
    async with AsyncExitStack() as stack:
        logs = count()

        async def started(*, ahead: Path | None = None) -> GatewayProcess:
            program = () if ahead is None else (*_WANDERING, ahead)
            serving = gateway_process.gateway_process(
                ["--config", file], log=folder / f"{next(logs)}.log", program=program
            )
            return await stack.enter_async_context(serving)

        yield started


def host_of(http: aiohttp.ClientSession, gateway: GatewayProcess, like: McpHost | None = None) -> McpHost:
    """A host at that one; `like` is the host that it is."""
    host = McpHost(http, f"http://{gateway.listen}/reports/mcp")
    if like is not None:
        host.session, host.revision = like.session, like.revision
    return host


async def ended(host: McpHost, task: str) -> dict[str, object]:
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
