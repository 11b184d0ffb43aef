"""The store goes away, hangs, or forgets: who lives loses no call, and what was acknowledged ends as it would have."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from time import perf_counter

import pytest

from helpers.gateway.gateway import Gateway
from helpers.gateway.replicas import HEARTBEAT, LEASE, serve_replicas
from helpers.host.host import Host
from helpers.server import Hold, ScriptedServer
from helpers.shared_store import SharedServer
from helpers.waiting import bounded, eventually

DONE = {"content": [{"type": "text", "text": "done"}]}


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[SharedServer]:
    """A server of the test's own, which keeps all that it has acknowledged."""
    with SharedServer(tmp_path, durable=True) as valkey:
        yield valkey


@pytest.fixture
async def two(server: ScriptedServer, valkey: SharedServer, tmp_path: Path) -> AsyncIterator[list[Gateway]]:
    """Two gateways over it."""
    async with serve_replicas(2, {"reports": server.url}, valkey.options(), tmp_path) as gateways:
        yield gateways


async def under_way(server: ScriptedServer, gateway: Gateway) -> tuple[Host, Hold, str]:
    """A host whose task runs there, the call, and the task."""
    server.script["report"] = hold = Hold()
    host = await gateway.greeted()
    task = (await host.start("report"))["taskId"]
    await eventually(hold.begun.is_set)
    return host, hold, task


async def back(*gateways: Gateway) -> None:
    """All are ready again."""
    async with bounded():
        for gateway in gateways:
            while await gateway.ready() != 200:
                pass


async def test_while_the_store_is_away_calls_go_on_and_their_ends_are_kept_until_it_is_back(
    server: ScriptedServer, valkey: SharedServer, two: list[Gateway]
) -> None:
    host, hold, task = await under_way(server, two[0])
    valkey.stop()
    for answer in (await host.call("echo", task={}), await host.ask("tasks/get", {"taskId": task})):
        assert (answer.status, answer.code, answer.error["data"]["reason"]) == (200, 503, "store")
    assert (await host.call("echo", {"a": 1})).result["structuredContent"] == {"a": 1}
    assert await two[0].ready() == 503
    hold.release(DONE)
    # For longer than the lease: nobody may take it for gone who is only cut off.
    until = perf_counter() + (LEASE + 2 * HEARTBEAT).total_seconds()
    await eventually(lambda: perf_counter() > until)
    valkey.start()
    await back(*two)
    async with bounded():
        assert (await two[1].again(host).ask("tasks/result", {"taskId": task})).result["content"] == DONE["content"]
    assert len(server.heard("tools/call")) == 2
    for gateway in two:
        assert await gateway.count("taskgate_task_recoveries_total") == 0
        assert await gateway.count("taskgate_leases_lost_total") == 0


async def test_a_store_that_hangs_is_refused_for_in_time_and_costs_no_call(
    server: ScriptedServer, valkey: SharedServer, two: list[Gateway]
) -> None:
    host, hold, task = await under_way(server, two[0])
    valkey.pause()
    try:
        async with asyncio.timeout(10):
            answer = await host.ask("tasks/get", {"taskId": task})
        assert answer.code == 503
    finally:
        valkey.resume()
    await back(*two)
    hold.release(DONE)
    async with bounded():
        assert (await two[1].again(host).ask("tasks/result", {"taskId": task})).result["content"] == DONE["content"]


async def test_a_task_that_the_store_forgot_is_found_again_within_a_heartbeat_or_two(
    server: ScriptedServer, valkey: SharedServer, two: list[Gateway]
) -> None:
    """As after a failover to a replica that had not heard of it: its owner puts it back, and it ends as it would."""
    host, hold, task = await under_way(server, two[0])
    forgotten = [key for key in valkey.ask("KEYS", "*") if b"task:" in key or key.endswith(b"open")]
    assert forgotten
    valkey.ask("DEL", *forgotten)
    there = two[1].again(host)
    async with bounded():
        while "error" in ((await there.ask("tasks/get", {"taskId": task})).message or {}):
            pass
    hold.release(DONE)
    async with bounded():
        assert (await there.ask("tasks/result", {"taskId": task})).result["content"] == DONE["content"]
    assert len(server.heard("tools/call")) == 1


async def readiness(gateway: Gateway) -> tuple[int, dict[str, bool], int]:
    """What `/readyz?verbose` says: its status, what it looked at, and how many gateways there are."""
    status, text = await gateway.operators("/readyz?verbose")
    told = json.loads(text)
    return status, told["checks"], told["replicas"]


async def test_a_store_that_is_full_makes_a_gateway_unready_though_it_can_still_be_read(
    valkey: SharedServer, two: list[Gateway]
) -> None:
    good = {"started": True, "store": True, "keys": True, "store_writes": True, "lease": True}
    assert await readiness(two[0]) == (200, good, 2)
    valkey.ask("CONFIG", "SET", "maxmemory", "1")
    async with bounded():
        while (await readiness(two[0]))[:2] != (503, {**good, "lease": False}):
            pass
    valkey.ask("CONFIG", "SET", "maxmemory", "0")
    await back(*two)
    assert (await readiness(two[0]))[1] == good
