"""A request beyond a rate waits for its turn, in order; a flood, and what protects, is refused at once."""

import asyncio
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Environment, Gateway, serve
from helpers.host.answers import Answer
from helpers.host.host import Host, both_eras
from helpers.server import ScriptedServer, result
from helpers.waiting import bounded
from interaction.rate_limits import Opens, is_refused
from requirements import covers

WAITING = "taskgate_rate_limit_waiting"
# The clock of the tests stands still, so the turns of these come after 1, 2 and 3 seconds.
BY_SECONDS = {"name": "calls", "scope": "context", "rate": "1/s", "burst": 1, "methods": ["tools/call"]}


async def decisions(gateway: Gateway) -> dict[Any, float]:
    """What the policies decided, and how often."""
    return await gateway.counts("taskgate_rate_limit_decisions_total", "policy", "decision")


async def queued(gateway: Gateway, host: Host, number: int) -> "asyncio.Task[Answer]":
    """A call that waits, as the one of that number."""
    call = asyncio.create_task(host.call("echo", {"n": number}))
    await gateway.shows(WAITING, number)
    return call


@covers("R-RES-5")
@both_eras
async def test_what_a_rate_lets_through_soon_waits_in_order_and_what_comes_later_is_refused_at_once(
    opens: Opens, server: ScriptedServer, era: str
) -> None:
    async with opens(BY_SECONDS, wait="3s") as gateway, bounded():
        host = await gateway.greeted(era=era)
        assert not is_refused(await host.call("echo", {"n": 0}))
        calls = [await queued(gateway, host, number) for number in (1, 2, 3)]
        answer = await host.call("echo", {"n": 4})
        assert (answer.status, answer.headers["Retry-After"]) == (200, "4")
        assert answer.error["data"] == {"origin": "gateway", "reason": "rate", "policy": "calls", "retryAfterMs": 4000}
        answers = await asyncio.gather(*calls)
        assert [each.result["structuredContent"] for each in answers] == [{"n": number} for number in (1, 2, 3)]
        sent = [each["params"]["arguments"] for each in server.heard("tools/call")]
        assert sent == [{"n": number} for number in range(4)]
        assert await gateway.count(WAITING) == 0
        assert await decisions(gateway) == {
            ("calls", "allowed"): 1,
            ("calls", "delayed"): 3,
            ("calls", "rejected"): 1,
        }


async def test_a_flood_is_refused_at_once_but_for_those_whose_turn_comes(opens: Opens, server: ScriptedServer) -> None:
    async with opens(BY_SECONDS, wait="3s") as gateway, bounded():
        host = gateway.modern()
        answers = [asyncio.create_task(host.call("echo")) for _ in range(60)]
        done = await asyncio.gather(*answers)
        assert sum(not is_refused(each) for each in done) == 4
        assert len(server.heard("tools/call")) == 4


async def test_without_a_wait_nothing_waits_also_after_a_reload(opens: Opens, server: ScriptedServer) -> None:
    async with opens(BY_SECONDS, wait="3s") as gateway, bounded():
        host = gateway.modern()
        await host.call("echo")
        call = await queued(gateway, host, 1)
        limits = {"rate": [BY_SECONDS], "wait": "0s"}
        await gateway.reload(configuration({"reports": server.url, "search": server.url}, limits=limits))
        assert is_refused(await host.call("echo"))
        # What waits already has its turn.
        assert not is_refused(await call)


async def test_each_budget_has_a_line_of_its_own(opens: Opens) -> None:
    async with opens(BY_SECONDS, wait="3s") as gateway, bounded():
        host = await gateway.greeted()
        await host.call("echo")
        call = await queued(gateway, host, 1)
        assert (await host.ask("tools/list")).status == 200
        assert await gateway.count(WAITING) == 1
        assert not is_refused(await call)


@pytest.mark.parametrize("how", ["the host leaves", "the host cancels"])
async def test_a_wait_ends_with_its_host(opens: Opens, server: ScriptedServer, how: str) -> None:
    async with opens({**BY_SECONDS, "rate": "1/m"}, wait="60s") as gateway, bounded():
        host = await gateway.greeted()
        await host.call("echo")
        call = asyncio.create_task(host.ask("tools/call", {"name": "echo", "arguments": {}}, id="mine"))
        await gateway.shows(WAITING, 1)
        if how == "the host leaves":
            call.cancel()
        else:
            await host.tell("notifications/cancelled", {"requestId": "mine"})
            assert (await call).status == 202
        await gateway.shows(WAITING, 0)
        assert len(server.heard("tools/call")) == 1


async def test_a_drain_ends_all_waits_and_refuses_what_starts_something(opens: Opens, server: ScriptedServer) -> None:
    async with opens({**BY_SECONDS, "rate": "1/m", "methods": ["*"]}, wait="60s") as gateway, bounded():
        host = gateway.modern()
        await host.call("echo")
        call = await queued(gateway, host, 1)
        draining = asyncio.create_task(gateway.drain())
        answer = await call
        assert answer.error["code"] == 503
        await draining
        assert len(server.heard("tools/call")) == 1


async def test_a_session_whose_request_waits_is_in_use(opens: Opens) -> None:
    concurrency = {"sessions_per_context": 2}
    async with opens({**BY_SECONDS, "methods": ["ping"]}, wait="3s", concurrency=concurrency) as gateway, bounded():
        host = await gateway.greeted()
        await host.ask("ping")
        ping = asyncio.create_task(host.ask("ping"))
        await gateway.shows(WAITING, 1)
        for _ in range(3):
            await gateway.greeted()
        assert (await ping).result == {}


async def test_a_body_that_is_no_message_is_refused_at_once_and_takes_no_place_of_those_that_wait(opens: Opens) -> None:
    async with opens({**BY_SECONDS, "methods": ["*"]}, wait="3s") as gateway, bounded():
        host = gateway.modern()
        answers = [await host.post(b"no message") for _ in range(3)]
        assert [each.code for each in answers] == [-32700] * 3
        assert await gateway.count(WAITING) == 0


async def test_a_get_stream_waits_for_its_turn_and_then_opens(opens: Opens) -> None:
    async with opens({**BY_SECONDS, "methods": ["*"], "burst": 2}, wait="3s") as gateway, bounded():
        host: Host = await gateway.greeted()
        await host.ask("ping")
        async with host.listen() as stream:
            assert not stream.ended
        assert (await decisions(gateway))["calls", "delayed"] == 1


async def test_a_shadow_and_what_protects_let_nothing_wait(opens: Opens) -> None:
    address = {"name": "ip", "scope": "ip", "rate": "1/s", "burst": 4, "before_auth": True}
    async with opens({**BY_SECONDS, "mode": "shadow"}, address, wait="60s") as gateway, bounded():
        host = gateway.modern()
        assert [is_refused(await host.call("echo")) for _ in range(4)] == [False] * 4
        assert (await host.call("echo")).status == 429
        assert (await decisions(gateway))["calls", "shadow"] == 3


async def test_forty_hosts_of_one_caller_that_start_at_once_are_all_served(server: ScriptedServer) -> None:
    """With the limits as shipped; each initializes, asks four lists and opens a stream."""
    config = configuration({"reports": server.url})
    config = config.model_copy(update={"limits": type(config.limits)()})
    lists = {"prompts/list": "prompts", "resources/list": "resources", "resources/templates/list": "resourceTemplates"}
    server.methods |= {method: result({member: []}) for method, member in lists.items()}
    async with serve(config, Environment()) as gateway, bounded(60):

        async def start() -> None:
            host = await gateway.greeted()
            for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list"):
                assert not is_refused(await host.ask(method)), method
            async with host.listen():
                assert not is_refused(await host.call("echo"))

        await asyncio.gather(*(start() for _ in range(40)))
        refused = {key: times for key, times in (await decisions(gateway)).items() if key[1] == "rejected"}
        assert refused == {}
