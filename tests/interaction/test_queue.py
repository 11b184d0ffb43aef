"""Calls that wait for their turn at a server with one slot: plain ones of both eras, and tasks."""

import asyncio
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import both_eras
from helpers.server import ScriptedServer
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import bounded
from interaction.queues import DONE, OneByOne, begin, expect_all_given_back, narrow, narrowly, queued, refused_in_queue
from requirements import covers

ALWAYS = {"upgrade": [{"tool": "*", "mode": "always"}]}
ERAS = ("2025-11-25", "2026-07-28")
REJECTED = {"disposition": "rejected"}


async def guest(gateway: Gateway, era: str, **more: Any) -> Any:
    """A host of that era, which does not get tasks unless it asks for them."""
    if era == "2026-07-28":
        return gateway.modern(tasks=False, **more)
    return await gateway.greeted(era, **more)


# --- plain calls ------------------------------------------------------------------------------------------------------


@both_eras
async def test_turns_go_round_between_callers_whoever_came_first(
    server: ScriptedServer, slow: OneByOne, issuer: TokenIssuer, era: str
) -> None:
    config = guarded({}, issuer, upstreams=narrow(server))
    async with serve(config) as gateway:
        alice, bob = [
            await guest(gateway, era, token=issuer.token(gateway.url(), subject=name)) for name in ("alice", "bob")
        ]
        calls = begin(*(alice.call("report", {"of": f"alice-{number}"}) for number in range(4)))
        await slow.comes(1)
        await queued(gateway, 3)
        calls += begin(*(bob.call("report", {"of": f"bob-{number}"}) for number in range(2)))
        await queued(gateway, 5)
        for number in range(1, 6):
            slow.let_go()
            await slow.comes(number + 1)
        slow.let_go()
        async with bounded():
            answers = await asyncio.gather(*calls)
        assert [answer.result["content"] for answer in answers] == [DONE["content"]] * 6
        assert [each["of"].split("-")[0] for each in slow.arrived] == ["alice", "bob", "alice", "bob", "alice", "alice"]
        await expect_all_given_back(gateway)


@covers("T46")
@both_eras
async def test_a_newcomer_is_served_at_once_though_another_has_every_slot_that_it_may(
    server: ScriptedServer, slow: OneByOne, issuer: TokenIssuer, era: str
) -> None:
    config = guarded({}, issuer, upstreams=narrow(server, concurrency=8))
    async with serve(config) as gateway:
        alice, bob = [
            await guest(gateway, era, token=issuer.token(gateway.url(), subject=name)) for name in ("alice", "bob")
        ]
        assert (await bob.call("echo")).result is not None
        calls = begin(*(alice.call("report", {"of": "alice"}) for _ in range(10)))
        await queued(gateway, 3)
        calls += begin(bob.call("report", {"of": "bob"}))
        await slow.comes(8)
        assert slow.arrived == [{"of": "alice"}] * 7 + [{"of": "bob"}]
        slow.let_all_go()
        async with bounded():
            assert [(await call).result["content"] for call in calls] == [DONE["content"]] * 11
        await expect_all_given_back(gateway)


@covers("T46")
@pytest.mark.parametrize("concurrency", [2, 4, 7])
@both_eras
async def test_a_caller_that_calls_alone_has_every_slot_and_the_next_free_one_is_for_another_that_comes(
    server: ScriptedServer, slow: OneByOne, issuer: TokenIssuer, era: str, concurrency: int
) -> None:
    config = guarded({}, issuer, upstreams=narrow(server, concurrency=concurrency))
    async with serve(config) as gateway:
        alice, bob = [
            await guest(gateway, era, token=issuer.token(gateway.url(), subject=name)) for name in ("alice", "bob")
        ]
        calls = begin(*(alice.call("report", {"of": "alice"}) for _ in range(concurrency + 2)))
        await slow.comes(concurrency)
        await queued(gateway, 2)
        calls += begin(bob.call("report", {"of": "bob"}))
        await queued(gateway, 3)
        slow.let_go()
        await slow.comes(concurrency + 1)
        assert slow.arrived == [{"of": "alice"}] * concurrency + [{"of": "bob"}]
        slow.let_all_go()
        async with bounded():
            assert [(await call).result["content"] for call in calls] == [DONE["content"]] * (concurrency + 3)
        await expect_all_given_back(gateway)


@both_eras
async def test_a_call_is_refused_where_no_more_may_wait_and_it_is_counted(
    server: ScriptedServer, slow: OneByOne, era: str
) -> None:
    async with narrowly(server, size=1) as gateway:
        host = await guest(gateway, era)
        calls = begin(host.call("report"), host.call("report"))
        await slow.comes(1)
        await queued(gateway, 1)
        await refused_in_queue(host.call("report"))
        await refused_in_queue(host.call("report"))
        assert await gateway.count("taskgate_tool_calls_total", **REJECTED) == 2
        slow.let_all_go()
        async with bounded():
            assert [(await call).result["content"] for call in calls] == [DONE["content"]] * 2
        assert await gateway.count("taskgate_tool_calls_total", disposition="direct") == 2
        assert len(slow.arrived) == 2


@both_eras
async def test_a_refused_call_is_counted_under_its_tool_where_the_list_was_read(
    server: ScriptedServer, slow: OneByOne, era: str
) -> None:
    async with narrowly(server, size=0, tasks=ALWAYS) as gateway:
        # The gateway reads the list to make a task.
        host = gateway.modern() if era == ERAS[1] else await guest(gateway, era)
        await host.start("report")
        await slow.comes(1)
        host = await guest(gateway, era) if era == ERAS[1] else host
        for tool in ("report", "invented"):
            await refused_in_queue(host.call(tool))
        for tool in ("report", "_OTHER"):
            assert await gateway.count("taskgate_tool_calls_total", tool=tool, **REJECTED) == 1
        slow.let_all_go()


@both_eras
async def test_a_plain_call_waits_briefly_and_is_then_refused_with_nothing_sent(
    server: ScriptedServer, slow: OneByOne, era: str
) -> None:
    clock = asyncio.get_running_loop()
    async with narrowly(server) as gateway:
        host = await guest(gateway, era)
        (first,) = begin(host.call("report"))
        await slow.comes(1)
        began = clock.time()
        await refused_in_queue(host.call("report"))
        assert 10 <= clock.time() - began < 30
        slow.let_all_go()
        async with bounded():
            await first
        assert len(slow.arrived) == 1
        await expect_all_given_back(gateway)


@pytest.mark.parametrize("method", ["prompts/get", "resources/read"])
@both_eras
async def test_what_may_take_long_takes_a_turn_and_nothing_else_does(
    server: ScriptedServer, slow: OneByOne, era: str, method: str
) -> None:
    server.capabilities |= {"prompts": {}, "resources": {}}
    params = {"name": "p"} if method == "prompts/get" else {"uri": "file:///x"}
    async with narrowly(server, wait="20ms", size=4) as gateway:
        host = await guest(gateway, era)
        (first,) = begin(host.call("report"))
        await slow.comes(1)
        await refused_in_queue(host.ask(method, params))
        assert (await host.ask("tools/list")).result["tools"]
        slow.let_all_go()
        async with bounded():
            await first
        assert server.heard(method) == []


@covers("H-LEG-10")
async def test_a_call_that_its_host_cancels_or_leaves_while_it_waits_has_left_the_queue(
    server: ScriptedServer, slow: OneByOne
) -> None:
    async with narrowly(server) as gateway:
        host = await gateway.greeted()
        (first,) = begin(host.call("report"))
        await slow.comes(1)
        cancelled, left = begin(host.ask("tools/call", {"name": "report"}, id="c"), host.call("report"))
        await queued(gateway, 2)
        await host.tell("notifications/cancelled", {"requestId": "c"})
        await queued(gateway, 1)
        async with bounded():
            assert (await cancelled).status == 202
        left.cancel()
        await queued(gateway, 0)
        slow.let_all_go()
        async with bounded():
            await first
        assert (len(slow.arrived), slow.left) == (1, 0)
        await expect_all_given_back(gateway)


@covers("H-LEG-10")
async def test_a_host_of_the_legacy_era_that_leaves_later_does_not_stop_its_call(
    server: ScriptedServer, slow: OneByOne
) -> None:
    async with narrowly(server) as gateway:
        host = await gateway.greeted()
        (first,) = begin(host.call("report"))
        await slow.comes(1)
        (second,) = begin(host.call("report"))
        await queued(gateway, 1)
        slow.let_go()
        await slow.comes(2)
        second.cancel()
        await asyncio.wait([first, second])
        await gateway.metrics()
        assert slow.left == 0
        slow.let_go()
        await expect_all_given_back(gateway)


@covers("H-MOD-9")
@pytest.mark.parametrize("capabilities", [{}, {"elicitation": {}}], ids=["plain", "may be held"])
async def test_a_modern_host_that_leaves_while_it_waits_has_left_the_queue(
    server: ScriptedServer, slow: OneByOne, capabilities: dict[str, Any]
) -> None:
    async with narrowly(server) as gateway:
        host = gateway.modern(tasks=False, capabilities=capabilities)
        (first,) = begin(host.call("report"))
        await slow.comes(1)
        async with host.asking("tools/call", {"name": "report", "arguments": {}}) as asked:
            await queued(gateway, 1)
            await asked.leave()
        await queued(gateway, 0)
        slow.let_all_go()
        async with bounded():
            await first
        assert len(slow.arrived) == 1
        await expect_all_given_back(gateway)


async def test_a_slow_server_does_not_hold_up_another(server: ScriptedServer, slow: OneByOne) -> None:
    async with ScriptedServer() as other:
        upstreams = narrow(server) | {"quick": {"path": "/quick/mcp", "url": other.url, "concurrency": 1}}
        async with serve(configuration({}, upstreams=upstreams)) as gateway:
            host, quick = await gateway.greeted(), await gateway.greeted(mount="quick")
            calls = begin(*(host.call("report") for _ in range(10)))
            await slow.comes(1)
            await queued(gateway, 9)
            for number in range(20):
                assert (await quick.call("echo", {"n": number})).result["structuredContent"] == {"n": number}
            slow.let_all_go()
            async with bounded():
                await asyncio.gather(*calls)


async def test_what_waits_and_what_runs_is_shown(server: ScriptedServer, slow: OneByOne) -> None:
    async with narrowly(server) as gateway:
        host = await gateway.greeted()
        calls = begin(*(host.call("report") for _ in range(3)))
        await slow.comes(1)
        await queued(gateway, 2)
        await gateway.shows("taskgate_queue_depth", 2, upstream="reports")
        slow.let_all_go()
        async with bounded():
            await asyncio.gather(*calls)
