"""The bytes of large bodies have a rate: it is asked by the head, and a body waits for its turn unread."""

import asyncio
import json
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway
from helpers.host.answers import Answer
from helpers.host.host import Host, both_eras
from helpers.host.raw import RawHost, post, raw_host
from helpers.refused_bodies import SPOILT, posted, send
from helpers.server import ScriptedServer
from helpers.token_issuer import TokenIssuer
from helpers.waiting import bounded
from interaction.rate_limits import Opens
from requirements import covers

SIZE = 600_000
KIB = 600
# Two bodies of SIZE, and none of what comes back of them while a test runs: the clock stands still.
BODIES = {"name": "bodies", "scope": "subject", "rate": "1/h", "burst": 2 * KIB, "event": "large_body"}
SOON = {**BODIES, "rate": "600/s", "burst": KIB}
WAITING = "taskgate_rate_limit_waiting"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def head(gateway: Gateway, host: Host, size: int = SIZE, **more: str) -> bytes:
    """The head of a request with a large body."""
    named = {"Mcp_Session_Id": host.session} if host.era == "legacy" and host.session else {}
    where = gateway.origin.removeprefix("http://")
    return post("", path="/reports/mcp", host=where, **{"Content_Length": str(size), **named, **more})


async def call(host: Host) -> Answer:
    return await send(host, SIZE)


async def spoilt(host: Host) -> Answer:
    return await send(host, SIZE, SPOILT["bad JSON"])


async def response(host: Host) -> Answer:
    return await host.post(json.dumps({"jsonrpc": "2.0", "id": "none", "result": {"text": "x" * SIZE}}).encode())


@covers("T46", "T57")
@pytest.mark.parametrize(
    ("era", "message"),
    [
        ("legacy", call),
        ("modern", call),
        ("legacy", spoilt),
        ("modern", spoilt),
        ("legacy", response),
    ],
)
async def test_large_bodies_beyond_their_rate_are_refused_whatever_they_are(
    opens: Opens, server: ScriptedServer, era: str, message: Any
) -> None:
    async with opens(BODIES) as gateway, bounded():
        host = await gateway.greeted(era=era)
        answers = [await message(host) for _ in range(3)]
        assert [each.status == 429 for each in answers] == [False, False, True]
        refused = answers[-1]
        assert int(refused.headers["Retry-After"]) > 3600, "one KiB comes back in an hour"
        assert (refused.message["id"], refused.code) == (None, 429)
        assert (await host.ask("tools/list")).result, "small ones pass"
        assert len(server.heard("tools/call")) == (2 if message is call else 0)
        assert await gateway.count("taskgate_http_rejections_total", reason="rate") == 1
        decisions = await gateway.counts("taskgate_rate_limit_decisions_total", "policy", "decision")
        assert decisions == {("bodies", "allowed"): 2, ("bodies", "rejected"): 1}


@covers("T46", "T57")
@both_eras
async def test_nothing_behind_the_head_is_read_of_a_body_beyond_the_rate(opens: Opens, era: str) -> None:
    async with opens(BODIES) as gateway, bounded():
        host = await gateway.greeted(era=era)
        for _ in range(2):
            assert (await call(host)).result
        for more in ({}, {"Expect": "100-continue"}):
            async with raw_host(gateway.address) as raw:
                answer = await raw.ask(head(gateway, host, 4_000_000, **more))
                assert (answer.status, answer.headers["connection"]) == (429, "close")
                assert json.loads(answer.body)["error"]["data"]["policy"] == "bodies"
                assert await raw.at_end()


@covers("T46", "T57")
@both_eras
async def test_a_body_without_a_size_is_refused_once_it_has_passed_the_mark(opens: Opens, era: str) -> None:
    async with opens(BODIES) as gateway, bounded():
        host = await gateway.greeted(era=era)
        for _ in range(2):
            assert (await call(host)).result
        async with raw_host(gateway.address) as raw:
            await raw.send(head(gateway, host, Content_Length="", Transfer_Encoding="chunked"))
            await raw.send(b"40000\r\n" + b" " * 0x40000 + b"\r\n")
            answer = await raw.ask(b"10\r\n" + b" " * 0x10 + b"\r\n")
            assert (answer.status, answer.headers["connection"]) == (429, "close")


async def waits_for_continue(raw: RawHost) -> bytes:
    return await raw.some(len(CONTINUE))


@covers("T46")
@both_eras
async def test_a_large_body_waits_unread_until_its_turn(opens: Opens, server: ScriptedServer, era: str) -> None:
    async with opens(SOON, wait="3s") as gateway, bounded():
        host = await gateway.greeted(era=era)
        assert (await call(host)).result
        body, fields = posted(host, SIZE)
        named = {name.replace("-", "_"): value for name, value in fields.items()}
        async with raw_host(gateway.address) as raw:
            # What a host of this era sends with a request goes with it.
            if host.era == "legacy":
                named |= {"MCP_Protocol_Version": "2025-11-25"}
            await raw.send(head(gateway, host, len(body), Expect="100-continue", **named))
            told = asyncio.create_task(waits_for_continue(raw))
            await gateway.shows(WAITING, 1)
            assert not told.done()
            assert len(server.heard("tools/call")) == 1
            assert await told == CONTINUE
            answer = await raw.ask(body)
            assert answer.status == 200
        assert len(server.heard("tools/call")) == 2
        decisions = await gateway.counts("taskgate_rate_limit_decisions_total", "policy", "decision")
        assert decisions == {("bodies", "allowed"): 1, ("bodies", "delayed"): 1}


async def test_a_drain_ends_the_wait_of_a_body(opens: Opens) -> None:
    async with opens({**SOON, "rate": "600/m"}, wait="60s") as gateway, bounded():
        host = gateway.modern()
        assert (await call(host)).result
        waits = asyncio.create_task(call(host))
        await gateway.shows(WAITING, 1)
        draining = asyncio.create_task(gateway.drain())
        assert (await waits).error["code"] == 503
        await draining


async def test_a_host_that_leaves_while_its_body_waits_has_nothing_in_flight_afterwards(opens: Opens) -> None:
    concurrency = {"bytes_in_flight_per_context": "700KiB"}
    async with opens(SOON, wait="3s", concurrency=concurrency) as gateway, bounded():
        host = gateway.modern()
        assert (await call(host)).result
        async with raw_host(gateway.address) as raw:
            await raw.send(head(gateway, host))
            await gateway.shows(WAITING, 1)
            raw.abort()
        await gateway.shows(WAITING, 0)
        assert (await call(host)).result


@both_eras
async def test_a_body_larger_than_the_burst_passes_where_nothing_was_sent_before(opens: Opens, era: str) -> None:
    async with opens({**BODIES, "burst": 10}) as gateway, bounded():
        host = await gateway.greeted(era=era)
        assert (await call(host)).result
        assert (await call(host)).status == 429


async def test_a_shadow_refuses_no_body_and_a_reload_drops_the_rate(opens: Opens, server: ScriptedServer) -> None:
    async with opens({**BODIES, "burst": 10, "mode": "shadow"}) as gateway, bounded():
        host = gateway.modern()
        assert [(await call(host)).status for _ in range(2)] == [200, 200]
        servers = {"reports": server.url, "search": server.url}
        await gateway.reload(configuration(servers, limits={"wait": "0s", "rate": [{**BODIES, "burst": 10}]}))
        assert [(await call(host)).status for _ in range(2)] == [429, 429]
        await gateway.reload(configuration(servers, limits={"wait": "0s", "rate": []}))
        assert [(await call(host)).status for _ in range(2)] == [200, 200]


@covers("T46")
async def test_bodies_of_all_clients_of_a_person_count_together_and_an_override_gives_it_more(
    opens_guarded: Opens, issuer: TokenIssuer
) -> None:
    gold = {"match": {"claims": {"kind": ["ci"]}}, "rate": {"bodies": "10/h"}}
    async with opens_guarded(BODIES, overrides=[gold]) as gateway, bounded():

        def client(subject: str, number: int, **claims: str) -> Host:
            return gateway.modern(
                token=issuer.token(gateway.url(), subject=subject, client_id=f"client-{number}", **claims)
            )

        mallory = [client("mallory", number) for number in range(3)]
        assert [(await call(host)).status for host in mallory] == [200, 200, 429]
        assert (await call(client("alice", 0))).status == 200
        robot = client("robot", 0, kind="ci")
        assert [(await call(robot)).status for _ in range(3)] == [200] * 3


async def test_an_ordinary_host_is_not_refused_with_the_rates_as_shipped(server: ScriptedServer, opens: Opens) -> None:
    """It sends seven bodies of almost 4 MiB at once."""
    async with opens() as gateway, bounded(60):
        config = configuration({"reports": server.url, "search": server.url})
        await gateway.reload(config.model_copy(update={"limits": type(config.limits)()}))
        host = await gateway.greeted()
        answers = await asyncio.gather(*(send(host, 4 * 2**20 - 2**16) for _ in range(7)))
        assert all("error" not in (each.message or {}) for each in answers)
        decisions = await gateway.counts("taskgate_rate_limit_decisions_total", "policy", "decision")
        assert decisions["bodies", "allowed"] == 7
