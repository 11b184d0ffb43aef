"""Large bodies that are refused: they leave nothing in memory, and nobody else is refused because of them."""

import asyncio
import json
import sys
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest

from attacks.watch import watching
from helpers.gateway.process import TASKGATE, serve_process
from helpers.host.host import Host, both_eras
from helpers.refused_bodies import SPOILT, posted
from helpers.server import ScriptedServer
from helpers.token_issuer import TokenIssuer
from helpers.waiting import bounded
from requirements import covers

pytestmark = [pytest.mark.attack, pytest.mark.alone]

MIB = 2**20
LIMIT = 300 * MIB
LITTLE_MEMORY = ["prlimit", f"--data={LIMIT}", TASKGATE]
AUDIENCE = "https://mcp.example.com/reports"
CONNECTIONS = 6
BODY = 4 * MIB - 64 * 1024


@covers("T57")
@both_eras
async def test_refused_bodies_take_no_more_memory_the_more_there_are(tmp_path: Path, era: str) -> None:
    async with (
        bounded(120),
        ScriptedServer() as server,
        serve_process(tmp_path, server.url) as gateway,
        aiohttp.ClientSession() as http,
    ):
        url = gateway.url()
        host: Host = Host(http, url, era="modern")
        if era == "legacy":
            host = Host(http, url)
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


@covers("T57", "T42")
async def test_after_refused_bodies_in_little_memory_a_neighbour_is_served_again(tmp_path: Path) -> None:
    issuer = TokenIssuer(tmp_path)
    section = json.dumps({"corp": {**issuer.section, "audience": [AUDIENCE]}})
    async with (
        bounded(120),
        ScriptedServer() as server,
        serve_process(
            tmp_path, server.url, auth=f"{{mode: required, issuers: {section}}}", program=LITTLE_MEMORY
        ) as gateway,
        aiohttp.ClientSession() as http,
    ):
        url = gateway.url()
        alice, mallory = (Host(http, url, issuer.token(AUDIENCE, subject=name)) for name in ("alice", "mallory"))
        await alice.initialize()
        await mallory.initialize()
        bodies = [posted(mallory, BODY, spoil)[0] for spoil in SPOILT.values()]
        short, most = 0, 0

        async def refused(body: bytes) -> None:
            nonlocal short
            with suppress(aiohttp.ClientError):
                short += (await mallory.post(body)).status == 503

        async with watching(gateway, "150 refused bodies in little memory") as watch:
            for at in range(0, 150, CONNECTIONS):
                await asyncio.gather(*(refused(bodies[(at + each) % len(bodies)]) for each in range(CONNECTIONS)))
                tries = 1
                while "error" in ((await alice.call("echo")).message or {}):
                    tries += 1
                most = max(most, tries)
        sys.stdout.write(f"{short} bodies were not read; alice was served after {most} requests at most\n")
        assert most <= 20
        assert watch.memory_peak < LIMIT


@covers("T57")
async def test_sessions_that_a_server_refuses_take_no_more_memory_the_more_there_are(tmp_path: Path) -> None:
    async with bounded(120), ScriptedServer() as server, serve_process(tmp_path, server.url) as gateway:
        server.info = {"name": "scripted", "version": "1", "much": "x" * (6 * MIB)}
        asked = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "host", "version": "1"}}
        async with aiohttp.ClientSession() as http:

            async def attempts(number: int) -> int:
                async with watching(gateway, f"{number} sessions at a server that says too much") as watch:
                    for _ in range(number):
                        answer = await gateway.host(http).ask("initialize", asked)
                        assert answer.error
                return watch.memory_peak

            await attempts(2)
            few = await attempts(2)
            many = await attempts(12)
    assert many - few < 24 * MIB
