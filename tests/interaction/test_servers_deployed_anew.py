"""Servers that are deployed anew five times in a row while hosts of both eras call them: no call or task is lost."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from helpers.gateway.configuration import GatewayConfig, configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import Host
from helpers.server import ScriptedServer
from helpers.server.sse import SseServer
from helpers.waiting import bounded, eventually
from interaction.deployments import OverHttp, OverPipes, ScriptedDeployment, Work, outcome, plain

AWAY = (0.1, 0.3, 0.8, 1.5, 3.0)
"""Seconds for which the server is away, in each of the deployments."""
LONG = 300.0
"""Seconds that all of them may take: of virtual time, but for programs."""
LOST = {"origin": "upstream", "reason": "closed", "dispatched": True}
KINDS = ("legacy", "modern", "both", "sse", "legacy program", "modern program")


def config_of(deployment: ScriptedDeployment, **keys: Any) -> GatewayConfig:
    """A configuration with that server alone, whose era has to be found out, and in which all calls may be tasks."""
    section = {"path": "/reports/mcp", "protocol_version": "auto", **deployment.section, **keys}
    tasks = {"upgrade": [{"tool": "*", "mode": "always"}]}
    limits = {"rate": [], "concurrency": {"tasks_per_context": 1000}}
    return configuration({}, upstreams={"reports": section}, tasks=tasks, limits=limits)


@pytest.fixture(params=KINDS)
async def deployment(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ScriptedDeployment]:
    """A server of each transport and era."""
    kind, era = request.param, request.param.partition(" ")[0]
    async with AsyncExitStack() as stack:
        if kind.endswith("program"):
            yield OverPipes(era, tmp_path, signal.SIGKILL if era == "legacy" else signal.SIGTERM)
        elif kind == "sse":
            yield OverHttp(await stack.enter_async_context(SseServer(revision="2025-11-25")))
        else:
            yield OverHttp(await stack.enter_async_context(ScriptedServer(era)))


async def echoed(host: Host) -> Any:
    """What a plain call of the host has in its result."""
    return (await host.call("echo", {"n": 0}, **plain(host))).result["structuredContent"]


async def four(gateway: Gateway) -> list[Host]:
    """Two hosts of each era."""
    return [
        await gateway.greeted(),
        await gateway.greeted(capabilities={"roots": {}}),
        gateway.modern(),
        gateway.modern(capabilities={"roots": {}}),
    ]


async def test_five_deployments_in_a_row_lose_no_call_and_no_task(deployment: ScriptedDeployment) -> None:
    async with serve(config_of(deployment)) as gateway, bounded(LONG):
        work = Work(gateway, deployment, await four(gateway))
        await work.through(AWAY if deployment.is_missed else (0.2,) * len(AWAY))
    assert min(len(work.tasks), len(work.answered)) > 20
    assert len(work.refused) > 20 or not deployment.is_missed


async def test_calls_that_run_when_their_process_ends_are_not_made_again(deployment: ScriptedDeployment) -> None:
    async with serve(config_of(deployment)) as gateway, bounded(LONG), asyncio.TaskGroup() as group:
        hosts = await four(gateway)
        calls = [group.create_task(host.call("hold", **plain(host))) for host in hosts]
        tasks = [(host, (await host.start("hold"))["taskId"]) for host in hosts]
        await eventually(lambda: deployment.held == len(calls) + len(tasks))
        await deployment.end()
        await deployment.begin()
        errors = [(await each).error for each in calls] + [await outcome(*task) for task in tasks]
        assert [error["data"] for error in errors] == [LOST] * len(errors)
        assert [await echoed(host) for host in hosts] == [{"n": 0}] * 4
    assert deployment.held == len(errors)
