"""The command in front of a program: `taskgate serve --upstream-command`, as a process of its own."""

import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from helpers.gateway.process import GatewayProcess, gateway_process
from helpers.host.host import Host
from helpers.server import PROGRAM
from helpers.waiting import eventually
from interaction.programs import who
from requirements import covers

FREE = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[GatewayProcess]:
    command = f"{sys.executable} -IS '{PROGRAM}' --words 'a b' $HOME"
    async with gateway_process(["--upstream-command", command, *FREE], log=tmp_path / "log") as gateway:
        yield gateway


@pytest.fixture
async def host(gateway: GatewayProcess) -> AsyncIterator[Host]:
    """A host with an open session, at the one path that there is."""
    async with aiohttp.ClientSession() as http:
        host = Host(http, f"http://{gateway.listen}/mcp")
        await host.initialize()
        yield host


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@covers("U-STDIO-6")
async def test_a_program_is_at_mcp_with_its_arguments_as_they_were_given_and_its_calls_are_tasks(
    gateway: GatewayProcess, host: Host
) -> None:
    task = await host.start("who")
    found: dict[str, Any] = (await host.ask("tasks/result", {"taskId": task["taskId"]})).result["structuredContent"]
    assert found["arguments"] == ["--words", "a b", "$HOME"]
    gateway.ask(signal.SIGINT)
    assert await gateway.exit_status() == 0
    await eventually(lambda: not is_there(found["pid"]))


@pytest.mark.real_time
async def test_a_gateway_that_is_killed_leaves_no_program_behind(gateway: GatewayProcess, host: Host) -> None:
    pid = (await who(host))["pid"]
    gateway.kill()
    await gateway.exit_status()
    await eventually(lambda: not is_there(pid))
