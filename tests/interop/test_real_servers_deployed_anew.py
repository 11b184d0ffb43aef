"""A real server on a released SDK that is deployed anew five times in a row: hosts lose no call and no task."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import serve
from helpers.waiting import bounded
from interaction.deployments import Deployment, Work
from interop.hosts import OFFICIAL
from interop.servers import LegacyServer, legacy_server

pytestmark = [*OFFICIAL, pytest.mark.timeout(300)]

AWAY = (0.1, 0.2, 0.4, 0.8, 1.6)
"""Seconds after which the next process is started, in each of the deployments."""


class RealDeployment(Deployment):
    """The reports server, one process after the other at the same port."""

    tool = "quick_sum"

    def __init__(self, server: LegacyServer, folder: Path, stack: AsyncExitStack) -> None:
        self.section = {"url": server.url}
        self._servers = [server]
        self._folder = folder
        self._stack = stack

    def given(self, number: int) -> dict[str, Any]:
        return {"a": number, "b": 0}

    def number_in(self, result: dict[str, Any]) -> int:
        return int(result["content"][0]["text"])

    @property
    def ran(self) -> list[int]:
        lines = [line for server in self._servers for line in server.ledger.lines]
        return [int(line.split()[2].partition("+")[0]) for line in lines if line.startswith("started ")]

    async def end(self) -> None:
        self._servers[-1].process.kill()
        await self._stack.aclose()

    async def begin(self) -> None:
        last = self._servers[-1]
        port = httpx.URL(last.url).port or 0
        self._servers.append(
            await self._stack.enter_async_context(legacy_server(last.version, self._folder, port=port))
        )


async def test_five_deployments_of_a_released_server_lose_no_call_and_no_task(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack, bounded(200):
        server = await stack.enter_async_context(legacy_server("1.23.3", tmp_path))
        deployment = RealDeployment(server, tmp_path, stack)
        section = {"path": "/reports/mcp", "protocol_version": "auto", **deployment.section}
        config = configuration({}, upstreams={"reports": section}, tasks={"upgrade": [{"tool": "*", "mode": "always"}]})
        async with serve(config) as gateway:
            hosts = [await gateway.greeted(), await gateway.greeted(capabilities={"roots": {}}), gateway.modern()]
            work = Work(gateway, deployment, hosts)
            await work.through(AWAY)
    assert min(len(work.tasks), len(work.answered), len(work.refused)) > 10
