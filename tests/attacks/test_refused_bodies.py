"""Large bodies that are refused: they leave nothing in memory, and nobody else is refused because of them."""

from pathlib import Path

import aiohttp
import pytest

from attacks.gateway_under_attack import under_attack, watching
from helpers.mcp_host import McpHost
from helpers.modern_host import ModernHost
from helpers.refused_bodies import SPOILT, posted
from helpers.scripted_upstream import ScriptedServer
from helpers.waiting import bounded
from requirements import covers

pytestmark = [pytest.mark.attack, pytest.mark.alone]

MIB = 2**20
BODY = 4 * MIB - 64 * 1024


@covers("T57")
@pytest.mark.parametrize("era", ["initialize", "stateless"])
async def test_refused_bodies_take_no_more_memory_the_more_there_are(tmp_path: Path, era: str) -> None:
    async with (
        bounded(120),
        ScriptedServer() as server,
        under_attack(tmp_path, server.url) as gateway,
        aiohttp.ClientSession() as http,
    ):
        url = f"http://{gateway.listen}/reports/mcp"
        host: McpHost | ModernHost = ModernHost(http, url)
        if era == "initialize":
            host = McpHost(http, url)
            await host.initialize()
        bodies = [posted(host, BODY, spoil) for spoil in SPOILT.values()]

        async def rounds(number: int) -> int:
            async with watching(gateway, f"{number} refused bodies of each kind, {era}") as watch:
                for body, headers in bodies * number:
                    await host.post(body, headers=headers)
            return watch.memory_peak

        await rounds(1)
        few = await rounds(1)
        many = await rounds(5)
    # 300 MiB more were sent. What is in use at any moment differs by little.
    assert many - few < 16 * MIB


@covers("T57")
async def test_sessions_that_a_server_refuses_take_no_more_memory_the_more_there_are(tmp_path: Path) -> None:
    async with bounded(120), ScriptedServer() as server, under_attack(tmp_path, server.url) as gateway:
        server.info = {"name": "scripted", "version": "1", "much": "x" * (6 * MIB)}
        asked = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "host", "version": "1"}}
        async with aiohttp.ClientSession() as http:

            async def attempts(number: int) -> int:
                async with watching(gateway, f"{number} sessions at a server that says too much") as watch:
                    for _ in range(number):
                        answer = await McpHost(http, f"http://{gateway.listen}/reports/mcp").ask("initialize", asked)
                        assert answer.error
                return watch.memory_peak

            await attempts(2)
            few = await attempts(2)
            many = await attempts(12)
    assert many - few < 24 * MIB
