"""Rates count over all replicas, in one question for each request; without the store each goes by its part of them."""

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from helpers.gateway.gateway import Gateway
from helpers.gateway.replicas import serve_replicas
from helpers.host.host import Host
from helpers.refused_bodies import send
from helpers.server import ScriptedServer
from helpers.shared_store import SharedServer
from helpers.waiting import bounded
from requirements import covers

ARRIVALS = {"name": "ip", "scope": "ip", "rate": "1000/s", "burst": 2000, "before_auth": True}
FAILURES = {"name": "auth_failures", "scope": "ip", "rate": "1/s", "burst": 20, "event": "auth_failure"}
BODIES = {"name": "bodies", "scope": "subject", "rate": "1/h", "burst": 2400, "event": "large_body"}
CALLS = {"name": "calls", "scope": "context", "rate": "1/h", "burst": 10, "methods": ["tools/call"]}
DECISIONS = "taskgate_rate_limit_decisions_total"
ALL = [ARRIVALS, FAILURES, CALLS]


def gateways(
    count: int, server: ScriptedServer, store: SharedServer, folder: Path, **limits: Any
) -> AbstractAsyncContextManager[list[Gateway]]:
    return serve_replicas(count, {"reports": server.url}, store.options(), folder, limits={"rate": ALL} | limits)


async def code(host: Host) -> int | None:
    """What a call is refused with; None where it is answered."""
    message = (await host.ask("tools/call", {"name": "echo", "arguments": {}})).message or {}
    refusal: int | None = message.get("error", {}).get("code")
    return refusal


async def test_replicas_let_in_as_many_as_there_may_be_together(
    server: ScriptedServer, valkey_server: SharedServer, tmp_path: Path
) -> None:
    async with gateways(3, server, valkey_server, tmp_path) as three, bounded():
        hosts = [each.modern() for each in three]
        codes = await asyncio.gather(*(code(hosts[number % 3]) for number in range(30)))
    assert sorted(codes, key=str) == [429] * 20 + [None] * 10


async def test_a_request_asks_the_store_once(
    server: ScriptedServer, valkey_server: SharedServer, tmp_path: Path
) -> None:
    """Plain calls ask it nothing else, so whatever is counted is of the rates; beats are seldom."""
    async with gateways(1, server, valkey_server, tmp_path) as [gateway], bounded():
        host = gateway.modern()
        assert await code(host) is None
        before = valkey_server.commands()["mget"]
        for _ in range(9):
            assert await code(host) is None
        assert valkey_server.commands()["mget"] - before == 9


async def test_what_is_no_message_counts_at_every_replica(
    server: ScriptedServer, valkey_server: SharedServer, tmp_path: Path
) -> None:
    """It comes to no request that could take for its arrival."""
    rate = [{**ARRIVALS, "rate": "1/h", "burst": 3}]
    async with gateways(2, server, valkey_server, tmp_path, rate=rate) as [one, two], bounded():
        fields = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        for _ in range(3):
            async with one.http.post(one.url(), data=b"{", headers=fields) as response:
                assert response.status == 400
        assert await code(two.modern()) == 429


@pytest.mark.parametrize(("rule", "let_in", "refused"), [("local", 5, 429), ("open", 20, None), ("closed", 0, 503)])
async def test_without_the_store_the_rule_counts_and_the_store_again_when_it_is_back(
    server: ScriptedServer, tmp_path: Path, rule: str, let_in: int, refused: int | None
) -> None:
    with SharedServer(tmp_path) as store:
        async with gateways(2, server, store, tmp_path, on_store_error=rule) as both:
            one, host = both[0], both[0].modern()
            async with bounded():
                assert await code(host) is None
            await asyncio.to_thread(store.kill)
            async with bounded():
                codes = [await code(host) for _ in range(20)]
            assert codes == [None] * let_in + [refused] * (20 - let_in)
            counted = {"local": "fail_local", "open": "fail_open"}
            if rule in counted:
                assert await one.count(DECISIONS, policy="calls", decision=counted[rule]) == let_in
            await asyncio.to_thread(store.start)
            # It had forgotten everything: there are ten again.
            async with bounded():
                while await one.count(DECISIONS, policy="calls", decision="allowed") < 2:
                    await code(host)


async def test_requests_at_all_replicas_wait_in_one_line_and_each_asks_the_store_once(
    server: ScriptedServer, valkey_server: SharedServer, tmp_path: Path
) -> None:
    calls = {**CALLS, "rate": "2/s", "burst": 1}
    async with gateways(2, server, valkey_server, tmp_path, rate=[calls], wait="3s") as two, bounded():
        hosts = [each.modern() for each in two]
        # Each replica opens its session with the server first.
        assert [await code(host) for host in hosts] == [None, None]
        before = valkey_server.commands()["mget"]
        codes = await asyncio.gather(*(code(hosts[number % 2]) for number in range(30)))
        assert valkey_server.commands()["mget"] - before == 30
        # Six have a turn within three seconds, and one more for each half second that passes meanwhile.
        assert 5 <= codes.count(None) <= 12
        assert set(codes) == {None, 429}
        assert sum([await each.count(DECISIONS, decision="delayed") for each in two]) >= codes.count(None) - 1


@covers("T46")
@pytest.mark.parametrize(("rule", "admitted"), [("local", 2), ("closed", 0)])
async def test_bytes_of_large_bodies_count_at_every_replica_and_without_the_store_by_the_rule(
    server: ScriptedServer, tmp_path: Path, rule: str, admitted: int
) -> None:
    with SharedServer(tmp_path) as store:
        async with gateways(2, server, store, tmp_path, rate=[BODIES], on_store_error=rule) as two, bounded():
            hosts = [each.modern() for each in two]
            # Four bodies of almost 600 KiB are within the burst.
            statuses = [(await send(hosts[number % 2], 600_000)).status for number in range(6)]
            assert statuses == [200] * 4 + [429] * 2
            await asyncio.to_thread(store.kill)
            statuses = [(await send(hosts[0], 600_000)).status for _ in range(4)]
            assert statuses == [200] * admitted + [429 if rule == "local" else 503] * (4 - admitted)
            await asyncio.to_thread(store.start)
