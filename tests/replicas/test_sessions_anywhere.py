"""A host of the legacy era is known to every replica, and what it ends is over everywhere."""

import asyncio
from pathlib import Path

from helpers.gateway.gateway import Gateway
from helpers.gateway.replicas import serve_replicas
from helpers.host.host import Host
from helpers.server import ScriptedServer
from helpers.shared_store import SharedServer
from helpers.token_issuer import TokenIssuer
from helpers.waiting import bounded


async def status(host: Host) -> int:
    """What a ping of the session is answered with."""
    return (await host.ask("ping")).status


async def until_unknown(host: Host) -> None:
    """Wait until the session is not found."""
    async with bounded():
        while await status(host) != 404:
            await asyncio.sleep(0.005)


async def test_a_session_is_found_at_any_replica(three: list[Gateway], server: ScriptedServer) -> None:
    """Each has a session at the server of its own."""
    host = await three[0].greeted()
    for number, gateway in enumerate(three):
        answer = await gateway.again(host).call("echo", {"at": number})
        assert answer.result["structuredContent"] == {"at": number}
    assert len(server.live) == 3


async def test_a_session_that_is_ended_at_one_replica_is_unknown_at_all(
    three: list[Gateway], server: ScriptedServer
) -> None:
    host = await three[0].greeted()
    others = [gateway.again(host) for gateway in three[1:]]
    for other in others:
        await other.call("echo")
    async with others[0].listen() as stream:
        assert await host.leave() == 200
        await stream.end()
    assert await status(host) == 404
    for other in others:
        await until_unknown(other)
    async with bounded():
        while server.live:
            await asyncio.sleep(0.005)


async def test_a_session_that_was_never_met_here_is_unknown_as_soon_as_it_is_ended(three: list[Gateway]) -> None:
    host = await three[0].greeted()
    assert await three[1].again(host).leave() == 200
    assert await status(three[2].again(host)) == 404


async def test_a_session_is_found_by_nobody_else_at_any_replica(
    server: ScriptedServer, valkey_server: SharedServer, tmp_path: Path
) -> None:
    issuer = TokenIssuer(tmp_path)
    auth = {"mode": "required", "issuers": {"corp": issuer.section}}
    options, public = valkey_server.options(), {"public_url": "https://m.example"}
    async with serve_replicas(2, {"reports": server.url}, options, tmp_path, auth=auth, server=public) as (one, two):
        audience = "https://m.example/reports/mcp"
        alice = await one.greeted(token=issuer.token(audience))
        assert await status(two.again(alice)) == 200
        mallory = two.again(alice)
        mallory.token = issuer.token(audience, subject="mallory")
        assert await status(mallory) == 404
        assert await mallory.leave() == 404
        # A word of it would have come by now.
        assert await status(two.again(alice)) == 200
        assert await status(alice) == 200


async def test_at_the_limit_a_session_that_another_replica_uses_stays_there_and_others_end_everywhere(
    server: ScriptedServer, valkey_server: SharedServer, tmp_path: Path
) -> None:
    limits = {"rate": [], "concurrency": {"sessions_per_context": 2}}
    options = valkey_server.options()
    async with serve_replicas(2, {"reports": server.url}, options, tmp_path, limits=limits) as (one, two):
        shared, own = await one.greeted(), await one.greeted()
        assert (await two.again(shared).call("echo")).status == 200
        await one.greeted()
        await one.greeted()
        assert await one.count("taskgate_sessions_evicted_total") == 2
        # Two has it in memory still, and one loads it again.
        assert [await status(each.again(shared)) for each in (two, one)] == [200, 200]
        assert [await status(each.again(own)) for each in (two, one)] == [404, 404]
