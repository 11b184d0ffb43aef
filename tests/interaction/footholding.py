"""What tests share of calls that are at their server when the gateway ends: that server, and what is kept of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.server import LastingCall, LastingTool, ScriptedServer
from helpers.stored_tasks import Checkpoint, StoredTask, copied, stored_task
from helpers.waiting import bounded
from helpers.whole_gateway import GatewayConfig, WholeGateway, configuration, running


@pytest.fixture
def tool(server: ScriptedServer) -> LastingTool:
    """The tool `report`, whose streams can be taken up again."""
    server.script["report"] = tool = LastingTool()
    return tool


def config_of(server: ScriptedServer, folder: Path | None, **sections: Any) -> GatewayConfig:
    """A gateway before the server that does not wait for what runs when it ends."""
    drain = {"drain": {"delay": "0s", "timeout": "2s", "running_tasks": "fail"}}
    return configuration({"reports": server.url}, folder=folder, server=drain, **sections)


async def kept(folder: Path, task: str, suits: Callable[[Checkpoint], bool] = lambda _: True) -> StoredTask:
    """A task as it is stored, once what is kept of its call suits."""
    return await stored_task(folder, task, lambda found: found.checkpoint is not None and suits(found.checkpoint))


def up_to(event: str) -> Callable[[Checkpoint], bool]:
    return lambda checkpoint: checkpoint.event == event


async def left(gateway: WholeGateway) -> None:
    """The gateway ends, and waits for nobody; what is in its store by now it knows to be."""
    async with bounded():
        # What is asked of the store is answered in turn.
        await gateway.ready()
        await gateway.drain()
        await gateway.close()


async def fallen(server: ScriptedServer, tool: LastingTool, folder: Path, **sections: Any) -> tuple[str, LastingCall]:
    """What a gateway leaves in the folder that fell while its call was at the server: the task, and that call."""
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    async with running(config_of(server, elsewhere, **sections)) as gateway:
        host = await gateway.greeted()
        task = (await host.start("report"))["taskId"]
        call = await tool.called()
        await kept(elsewhere, task)
        copied(elsewhere, folder)
        await left(gateway)
    return task, call
