"""What tests share of calls that are at their server when the gateway ends: that server, and what is kept of them."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from helpers.lasting_tool import LastingCall, LastingTool
from helpers.scripted_upstream import ScriptedServer
from helpers.waiting import bounded, eventually
from helpers.whole_gateway import GatewayConfig, SystemClock, WholeGateway, configuration, running
from interaction.test_restarts import leave_behind
from taskgate.domain.record import Lease, OwnerKey, TaskRecord
from taskgate.lifecycle import checkpoint_writer, checkpoints
from taskgate.upstream.legacy import resuming


@pytest.fixture
def tool(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> LastingTool:
    """The tool `report`, whose streams can be taken up again; nobody waits longer than they must."""
    monkeypatch.setattr(resuming, "PAUSE", 0.01)
    monkeypatch.setattr(resuming, "PAUSE_LEAST", 0.005)
    monkeypatch.setattr(checkpoint_writer, "KEEP_EVERY", timedelta(milliseconds=1))
    server.script["report"] = tool = LastingTool()
    return tool


def config_of(server: ScriptedServer, folder: Path | None, **sections: Any) -> GatewayConfig:
    """A gateway before the server that does not wait for what runs when it ends."""
    drain = {"drain": {"delay": "0s", "timeout": "2s", "running_tasks": "fail"}}
    return configuration({"reports": server.url}, folder=folder, server=drain, **sections)


async def record_of(gateway: WholeGateway, task: str) -> TaskRecord:
    store = gateway.service._store
    assert store is not None
    record = await store.load(OwnerKey("anonymous", "reports"), task, now=SystemClock().now(), bodies=True)
    assert record is not None
    return record


async def kept(
    gateway: WholeGateway, task: str, suits: Callable[[checkpoints.CallCheckpoint], bool] = lambda _: True
) -> TaskRecord:
    """The whole record, once what is kept of its call suits."""
    async with bounded():
        while True:
            record = await record_of(gateway, task)
            call_checkpoint = checkpoints.UNSEALED.open(record)
            if isinstance(call_checkpoint, checkpoints.CallCheckpoint) and suits(call_checkpoint):
                return record
            await asyncio.sleep(0)


def up_to(event: str) -> Callable[[checkpoints.CallCheckpoint], bool]:
    return lambda call_checkpoint: call_checkpoint.resume_point.event == event


async def left(gateway: WholeGateway) -> None:
    """The gateway ends, and waits for nobody; what is kept it knows to be."""
    assert gateway.service._runtime is not None
    runs = gateway.service._runtime.runner._runs
    await eventually(lambda: all(run.listener.is_resting for run in runs.values()))
    async with bounded():
        await gateway.drain()
        await gateway.service.close()


async def fallen(
    server: ScriptedServer, tool: LastingTool, folder: Path, **changes: Any
) -> tuple[TaskRecord, LastingCall]:
    """What a gateway leaves in the folder that fell while its call was at the server, and that call."""
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    async with running(config_of(server, elsewhere)) as gateway:
        host = await gateway.greeted()
        task = (await host.start("report"))["taskId"]
        call = await tool.called()
        record = await kept(gateway, task)
        await left(gateway)
    lease = Lease(holder="fallen", until=SystemClock().now() + timedelta(hours=1))
    record = replace(record, lease=lease, **changes)
    await leave_behind(folder, record)
    return record, call
