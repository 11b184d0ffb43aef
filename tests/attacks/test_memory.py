"""No caller takes memory without a bound, and one who is at a bound is refused while a neighbour is served."""

import asyncio
from pathlib import Path

import aiohttp
import pytest

from attacks.gateway_under_attack import under_attack, watching
from helpers.mcp_host import McpHost
from helpers.scripted_upstream import ScriptedServer, stream
from helpers.waiting import bounded

pytestmark = [pytest.mark.attack, pytest.mark.alone]

MIB = 2**20


async def test_streams_of_many_sessions_keep_no_more_than_their_caller_may(tmp_path: Path) -> None:
    async with bounded(60), ScriptedServer() as server, under_attack(tmp_path, server.url) as gateway:
        server.script["large"] = stream({"content": [{"type": "text", "text": "x" * MIB}]})

        async def session(http: aiohttp.ClientSession) -> None:
            host = McpHost(http, f"http://{gateway.listen}/reports/mcp")
            await host.initialize()
            for _ in range(4):
                async with host.asking("tools/call", {"name": "large", "arguments": {}}) as answer:
                    await answer.end()

        async with aiohttp.ClientSession() as http, watching(gateway, "streams of many sessions") as watch:
            for _ in range(15):
                await asyncio.gather(*(session(http) for _ in range(2)))
        assert watch.longest_silence < 1
        # 120 MiB were carried, and 4 MiB of each of 30 sessions would be kept without a bound of their caller.
        assert watch.memory_growth < 64 * MIB
