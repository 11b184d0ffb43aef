"""A whole process that may not write any more: it says so, keeps what ends, and goes on once it may.

The system refuses what would make a file larger than the process may have (RLIMIT_FSIZE), which is an error of the disk
to SQLite. That needs no privilege. What is in the audit log meanwhile goes the same way as the store.
"""

import asyncio
import resource
from pathlib import Path

import aiohttp

from helpers.gateway.process import GatewayProcess, serve_process
from helpers.server import Hold, ScriptedServer
from helpers.waiting import bounded, eventually

DONE = {"content": [{"type": "text", "text": "done"}]}
FAULT = "The task store does not work and no task can be created: the disk reports I/O errors; see the system log"
NOT_AUDITED = "the audit log cannot be written; taskgate keeps retrying"


async def readiness(http: aiohttp.ClientSession, gateway: GatewayProcess) -> tuple[int, dict[str, bool]]:
    """The status of /readyz, and its checks."""
    async with http.get(f"http://{gateway.admin}/readyz") as response:
        return response.status, (await response.json())["checks"]


async def until_ready(http: aiohttp.ClientSession, gateway: GatewayProcess) -> None:
    """Wait until /readyz says yes."""
    async with bounded():
        while (await readiness(http, gateway))[0] != 200:
            await asyncio.sleep(0.05)


def may_write(gateway: GatewayProcess, bytes: int) -> None:
    """Bound the size of each file that the process writes."""
    pid = gateway.child.process.pid
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (bytes, hard))


async def test_a_process_that_may_not_write_says_so_once_and_loses_nothing(tmp_path: Path) -> None:
    async with ScriptedServer() as server, aiohttp.ClientSession() as http:
        server.tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "report")]
        hold = server.script["report"] = Hold()
        async with serve_process(tmp_path, server.url) as gateway:
            host = gateway.host(http)
            await host.initialize()
            task = await host.start("report")
            async with bounded():
                await hold.begun.wait()
            # Below what its log has by now: whatever is written next is behind that.
            may_write(gateway, 4096)
            assert (await host.call("echo", task={})).code == 503
            status, checks = await readiness(http, gateway)
            assert (status, checks["store"], checks["store_writes"]) == (503, True, False)
            hold.release(DONE)
            assert (await host.task(task["taskId"]))["status"] == "working"
            await eventually(lambda: told(gateway, "taskgate.audit") == [NOT_AUDITED])
            may_write(gateway, resource.RLIM_INFINITY)
            await until_ready(http, gateway)
            assert (await host.ask("tasks/result", {"taskId": task["taskId"]})).result["content"] == DONE["content"]
            assert told(gateway, "taskgate.stores") == [FAULT, "The task store works again"]
            await eventually(lambda: told(gateway, "taskgate.audit") == [NOT_AUDITED, "the audit log is written again"])


def told(gateway: GatewayProcess, logger: str) -> list[object]:
    """What a part of it has logged."""
    return [line["event"] for line in gateway.log_lines() if line["logger"] == logger]
