"""A whole process whose store is deleted under it: it says so, makes no more tasks, and what it holds can be saved.

The steps of the runbook are the steps of this test: copy what is still open, end the gateway, put it back, start it.
"""

import os
import shutil
import signal
from pathlib import Path

import aiohttp

from helpers.gateway.configuration import write_configuration
from helpers.gateway.process import GatewayProcess, gateway_process
from helpers.server import Hold, ScriptedServer
from helpers.waiting import bounded, eventually

DONE = {"content": [{"type": "text", "text": "done"}]}
FAULT = (
    "The task store does not work and no task can be created: its file was removed or replaced; "
    "put it back, or stop the gateway and restore a backup"
)
NAMED = 'taskgate_store_fault{backend="sqlite",fault="file_gone"} 1.0'


async def test_a_deleted_store_is_told_refuses_tasks_and_can_be_put_back(tmp_path: Path) -> None:
    store = tmp_path / "store"
    async with ScriptedServer() as server, aiohttp.ClientSession() as http:
        server.tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "report")]
        hold = server.script["report"] = Hold()
        file = write_configuration(tmp_path, server.url, store={"sqlite": {"path": f"{store}/t.db"}})
        async with gateway_process(["--config", file], log=tmp_path / "gateway.log") as gateway:
            host = gateway.host(http)
            await host.initialize()
            task = await host.start("report")
            async with bounded():
                await hold.begun.wait()
            assert await readiness(http, gateway) == (200, True)
            for each in store.iterdir():
                each.unlink()
            await eventually(lambda: told(gateway) == [FAULT])
            assert await readiness(http, gateway) == (503, False)
            assert NAMED in await metrics(http, gateway)
            refused = await host.call("echo", task={})
            assert (refused.code, refused.error["data"]["reason"]) == (503, "store")
            assert (await host.call("echo", {"a": 1})).result["structuredContent"] == {"a": 1}
            hold.release(DONE)
            assert (await host.ask("tasks/result", {"taskId": task["taskId"]})).result["content"] == DONE["content"]
            saved = save(gateway, tmp_path / "saved")
            gateway.ask(signal.SIGTERM)
            assert await gateway.exit_status() == 0
            assert told(gateway) == [FAULT]
        for name in saved:
            shutil.copy(tmp_path / "saved" / name, store / name)
        async with gateway_process(["--config", file], log=tmp_path / "again.log") as gateway:
            host = gateway.host(http)
            await host.initialize()
            assert (await host.ask("tasks/result", {"taskId": task["taskId"]})).result["content"] == DONE["content"]
            assert await readiness(http, gateway) == (200, True)


async def readiness(http: aiohttp.ClientSession, gateway: GatewayProcess) -> tuple[int, bool]:
    """The status of /readyz, and whether the store takes what is written."""
    async with http.get(f"http://{gateway.admin}/readyz") as response:
        return response.status, (await response.json())["checks"]["store_writes"]


async def metrics(http: aiohttp.ClientSession, gateway: GatewayProcess) -> list[str]:
    """The lines of /metrics."""
    async with http.get(f"http://{gateway.admin}/metrics") as response:
        return (await response.text()).splitlines()


def told(gateway: GatewayProcess) -> list[object]:
    """What its store has logged."""
    return [line["event"] for line in gateway.log_lines() if line["logger"] == "taskgate.stores"]


def save(gateway: GatewayProcess, folder: Path) -> set[str]:
    """Copy the deleted files of the store that the process has open; their names."""
    folder.mkdir()
    saved = set()
    for open_file in Path(f"/proc/{gateway.child.process.pid}/fd").iterdir():
        name = Path(os.readlink(open_file).removesuffix(" (deleted)")).name
        if name in ("t.db", "t.db-wal"):
            shutil.copyfile(open_file, folder / name)
            saved.add(name)
    assert saved == {"t.db", "t.db-wal"}
    return saved
