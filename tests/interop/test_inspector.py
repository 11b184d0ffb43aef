"""The official Inspector, from the command line, uses servers of either era through taskgate, and speaks either."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from helpers.gateway.configuration import write_configuration
from helpers.gateway.process import GatewayProcess, gateway_process
from helpers.waiting import bounded
from interop.peers import HOME, output_of, python_server, require_peers
from peers import install

pytestmark = pytest.mark.interop

INSPECTOR = HOME / "node_modules/@modelcontextprotocol/inspector/clients/cli/build/index.js"
RELEASES = ("1.23.3", "2.3.0")
ERAS = ("legacy", "modern")


@asynccontextmanager
async def gateway_before(release: str, folder: Path) -> AsyncIterator[GatewayProcess]:
    """A gateway at whose /reports/mcp a server on that release is; what is slow becomes a task."""
    require_peers(f"mcp-{release}")
    async with AsyncExitStack() as running:
        upstream = await running.enter_async_context(python_server("matrix_server.py", release, folder))
        file = write_configuration(
            folder,
            upstream,
            tasks={"poll_interval": {"base": "100ms", "min": "100ms", "adaptive": False}, "inline_grace": "500ms"},
        )
        yield await running.enter_async_context(gateway_process(["--config", file], log=folder / "gateway.log"))


async def told(gateway: GatewayProcess, folder: Path, era: str, *what: str) -> Any:
    """The result that the Inspector prints; it keeps what it keeps in `folder`."""
    options = ("--transport", "http", "--protocol-era", era, "--format", "json", *what)
    url = gateway.url()
    status, output, errors = await output_of(["env", f"HOME={folder}", install.node(), INSPECTOR, url, *options])
    assert status == 0, errors
    return json.loads(output)["result"]


async def calls_counted(gateway: GatewayProcess) -> list[str]:
    """The gateway's own count of calls."""
    async with bounded(), aiohttp.ClientSession() as http, http.get(f"http://{gateway.admin}/metrics") as page:
        return [line for line in (await page.text()).splitlines() if line.startswith("taskgate_tool_calls_total{")]


@pytest.mark.parametrize("release", RELEASES)
async def test_the_inspector_lists_and_calls_tools_in_either_era(release: str, tmp_path: Path) -> None:
    async with gateway_before(release, tmp_path) as gateway:
        for era in ERAS:
            listed = await told(gateway, tmp_path, era, "--method", "tools/list")
            assert {"echo", "slow", "ask"} <= {tool["name"] for tool in listed["tools"]}, era
            call = ("--method", "tools/call", "--tool-name", "echo", "--tool-arg", "word=back")
            called = await told(gateway, tmp_path, era, *call)
            assert called["content"] == [{"type": "text", "text": "echo back"}], era


@pytest.mark.parametrize("release", RELEASES)
async def test_a_slow_call_of_the_inspector_is_a_task_in_the_modern_era(release: str, tmp_path: Path) -> None:
    async with gateway_before(release, tmp_path) as gateway:
        call = ("--method", "tools/call", "--tool-name", "slow", "--tool-arg", "word=train")
        called = await told(gateway, tmp_path, "modern", *call)
        assert called["content"] == [{"type": "text", "text": "slow train"}]
        assert await calls_counted(gateway) == [
            'taskgate_tool_calls_total{disposition="task",tenant="",tool="slow",upstream="reports"} 1.0'
        ]
