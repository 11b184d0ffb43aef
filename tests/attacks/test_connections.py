"""Connections without number: one address has its bound, and the gateway keeps file descriptors for its own."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from attacks.watch import watching
from helpers.gateway.configuration import write_configuration
from helpers.gateway.process import TASKGATE, GatewayProcess, gateway_process
from helpers.host.host import Host
from helpers.server import Hold, ScriptedServer
from helpers.waiting import bounded, eventually
from requirements import covers

pytestmark = [pytest.mark.attack, pytest.mark.alone]

FEW = 256
"""Descriptors, as the shell of an operator may have them."""
IDLE = 276
SERVER = '{listen: "127.0.0.1:0", drain: {delay: 0s, timeout: 5s}'


@asynccontextmanager
async def limited(folder: Path, url: str, descriptors: str, **sections: str) -> AsyncIterator[GatewayProcess]:
    """A gateway before the server at `url`, whose limits of open files are SOFT:HARD."""
    health = "{interval: 200ms, unhealthy_after: 1}"
    configuration = write_configuration(
        folder,
        url,
        upstreams=f'{{reports: {{path: /reports/mcp, url: "{url}", health: {health}, concurrency: 1000}}}}',
        **sections,
    )
    program = ["prlimit", f"--nofile={descriptors}", TASKGATE]
    async with gateway_process(["--config", configuration], log=folder / "gateway.log", program=program) as gateway:
        yield gateway


@asynccontextmanager
async def idle_connections(gateway: GatewayProcess, count: int) -> AsyncIterator[list[socket.socket]]:
    """Connections of one address that send nothing."""
    host, _, port = gateway.listen.rpartition(":")
    made = [socket.create_connection((host, int(port)), timeout=5) for _ in range(count)]
    try:
        yield made
    finally:
        for connection in made:
            connection.close()


def is_open(connection: socket.socket) -> bool:
    """Whether the gateway has not ended it."""
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


async def answers(gateway: GatewayProcess) -> bool:
    """Whether a new connection of the usual address is served."""
    try:
        async with aiohttp.ClientSession() as http, http.get(f"http://{gateway.listen}/nothing"):
            return True
    except (aiohttp.ClientError, ConnectionError):
        return False


async def livez(gateway: GatewayProcess) -> int:
    """The status of /livez on a connection of its own."""
    async with aiohttp.ClientSession() as http, http.get(f"http://{gateway.admin}/livez") as answer:
        return answer.status


async def upstream_of(gateway: GatewayProcess) -> dict[str, object]:
    """What the gateway thinks of its server."""
    async with aiohttp.ClientSession() as http, http.get(f"http://{gateway.admin}/readyz?verbose") as answer:
        vitals: dict[str, object] = (await answer.json())["upstreams"]["reports"]
        return vitals


@covers("T34")
@pytest.mark.requirement("T34")
async def test_idle_connections_leave_descriptors_for_servers_and_operators_and_no_server_is_blamed(
    tmp_path: Path,
) -> None:
    async with (
        bounded(50),
        ScriptedServer() as server,
        limited(tmp_path, server.url, f"{FEW}:{FEW}") as gateway,
        aiohttp.ClientSession() as http,
        watching(gateway, "idle connections at few descriptors"),
    ):
        neighbour = gateway.host(http)
        await neighbour.initialize()
        async with idle_connections(gateway, IDLE) as made:
            await eventually(lambda: sum(map(is_open, made)) <= FEW // 2, within=5)
            assert await livez(gateway) == 200
            for _ in range(30):
                assert (await neighbour.ask("tools/call", {"name": "echo", "arguments": {}})).result
            assert {"up": True, "circuit": "closed"}.items() <= (await upstream_of(gateway)).items()
    lines = [line for line in gateway.log_lines() if line["level"] in ("warning", "error")]
    assert len(lines) <= 4, lines[:5]
    assert any("the open file limit" in str(line) for line in lines)


@pytest.mark.requirement("T34")
async def test_the_soft_limit_of_open_files_is_raised_to_the_hard_one(tmp_path: Path) -> None:
    async with (
        bounded(50),
        ScriptedServer() as server,
        limited(tmp_path, server.url, f"{FEW}:4096") as gateway,
        idle_connections(gateway, IDLE) as made,
    ):
        assert await livez(gateway) == 200
        assert sum(map(is_open, made)) == IDLE


@pytest.mark.requirement("T34")
async def test_every_call_that_is_taken_is_answered_at_few_descriptors(tmp_path: Path) -> None:
    held = 100
    async with (
        bounded(50),
        ScriptedServer() as server,
        limited(tmp_path, server.url, f"{FEW}:{FEW}") as gateway,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http,
    ):
        server.script["slow"] = hold = Hold()
        url = gateway.url()

        async def call() -> str:
            try:
                host = Host(http, url)
                await host.initialize()
                answer = await host.ask("tools/call", {"name": "slow", "arguments": {}})
            except (aiohttp.ClientError, ConnectionError):
                return "refused"
            assert answer.message is not None
            return "answered" if "result" in answer.message else str(answer.error)

        calls = [asyncio.create_task(call()) for _ in range(held)]
        await eventually(lambda: len(hold.turns) + sum(task.done() for task in calls) == held)
        hold.release({"content": []})
        outcomes = await asyncio.gather(*calls)
        assert set(outcomes) == {"answered", "refused"}
        assert outcomes.count("answered") >= 20


@pytest.mark.requirement("T34")
async def test_one_address_has_its_bound_and_another_is_served(tmp_path: Path) -> None:
    most = 40
    bound = f"{SERVER}, max_connections_per_address: {most}}}"
    async with (
        bounded(50),
        ScriptedServer() as server,
        limited(tmp_path, server.url, "4096:4096", server=bound) as gateway,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(local_addr=("127.0.0.2", 0))) as elsewhere,
    ):
        async with idle_connections(gateway, 3 * most) as made:
            await eventually(lambda: sum(map(is_open, made)) == most, within=5)
            neighbour = gateway.host(elsewhere)
            await neighbour.initialize()
            assert (await neighbour.ask("tools/call", {"name": "echo", "arguments": {}})).result is not None
        # Those connections are over: the address has room again once the gateway has noticed.
        while not await answers(gateway):
            pass
    told = [line for line in gateway.log_lines() if "server.max_connections_per_address" in str(line)]
    assert 1 <= len(told) <= 2
