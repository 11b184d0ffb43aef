"""Ways round a limit that somebody might try, and what closes each."""

import asyncio
from datetime import timedelta
from typing import Any

from helpers.failing_store import HoldingStore
from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Environment, open_store, serve
from helpers.manual_clock import ManualClock
from helpers.server import Hold, ScriptedServer
from helpers.waiting import bounded, eventually, until
from interaction.idempotency import KEY, YEAR, calls, upgrade
from interaction.questions import DONE
from interaction.rate_limits import CALLS, Opens, passes
from interaction.reloads import SUCCESS

# --- what is owed of a rate ------------------------------------------------------------------------------------------


async def test_a_wider_rate_lets_in_soon_who_had_used_up_the_narrow_one(
    server: ScriptedServer, clock: ManualClock
) -> None:
    def config(rate: str) -> Any:
        return configuration(
            {"reports": server.url}, limits={"rate": [{**CALLS, "rate": rate, "burst": 5}], "wait": "0s"}
        )

    async with serve(config("1/h"), Environment(clock=clock)) as gateway:
        host = gateway.modern()
        assert await passes(host, *["echo"] * 6) == [True] * 5 + [False]
        assert await gateway.reload(config("10/s")) == SUCCESS
        # What is left is nothing still, but of the rate that is now.
        assert (await host.call("echo")).error["data"]["retryAfterMs"] == 100
        clock.advance(timedelta(seconds=0.1))
        assert await passes(host, "echo", "echo") == [True, False]
        clock.advance(timedelta(seconds=1))
        assert await passes(host, *["echo"] * 6) == [True] * 5 + [False]


# --- requests without a message --------------------------------------------------------------------------------------


async def test_streams_that_are_opened_again_and_again_are_requests_too(opens: Opens) -> None:
    async with opens({"name": "rest", "scope": "context", "rate": "1/m", "burst": 3, "methods": ["*"]}) as gateway:
        # `initialize` is the first.
        host = await gateway.greeted()
        head = {"Accept": "text/event-stream", **host.head()}
        told = []
        for _ in range(4):
            async with bounded(), host.http.get(host.url, headers=head) as response:
                told.append((response.status, response.headers.get("Retry-After")))
        assert told == [(200, None), (200, None), (429, "60"), (429, "60")]
        assert await host.leave() == 200


# --- look-ups that fail ----------------------------------------------------------------------------------------------


async def test_one_request_that_names_a_thousand_tasks_is_no_thousand_guesses(opens: Opens) -> None:
    guesses = {"name": "guesses", "scope": "context", "rate": "1/m", "burst": 3, "event": "lookup_failure"}
    async with opens(guesses) as gateway:
        host = gateway.modern()
        names = [f"{number:032d}" for number in range(1000)]
        answer = await host.ask("subscriptions/listen", {"notifications": {"taskIds": names}})
        assert answer.error["data"]["policy"] == "guesses"
        await until(lambda: gateway.count("taskgate_task_access_denials_total"), lambda found: found == 4)


# --- calls that join others ------------------------------------------------------------------------------------------

ASKABLE = {"elicitation": {}}
JOINS = upgrade("sync", join_retries="30s")


async def test_a_call_is_not_joined_by_a_host_that_can_be_asked_other_things(server: ScriptedServer) -> None:
    """What its server asks, or refuses to do without asking, depends on what it was told of the first host."""
    server.script["report"] = hold = Hold()
    async with serve(configuration({"reports": server.url}, tasks=JOINS)) as gateway:
        able, unable = gateway.modern(capabilities=ASKABLE), gateway.modern()
        both = [asyncio.create_task(host.call("report", YEAR)) for host in (able, unable)]
        async with bounded():
            await eventually(lambda: len(calls(server)) == 2)
            hold.release(DONE)
            await asyncio.gather(*both)
        assert await gateway.count("taskgate_calls_joined_total") == 0


async def test_a_key_of_a_call_that_runs_makes_no_task_beside_it(server: ScriptedServer) -> None:
    server.script["report"] = hold = Hold()
    async with serve(configuration({"reports": server.url}, tasks=upgrade())) as gateway:
        host = await gateway.greeted()
        plain = asyncio.create_task(host.call("report", YEAR, _meta={KEY: "k"}))
        async with bounded():
            await hold.begun.wait()
            again = await (await gateway.greeted()).call("report", YEAR, task={}, _meta={KEY: "k"})
            assert again.code == -32602
            hold.release(DONE)
            await plain
        assert len(calls(server)) == 1


async def test_a_call_that_two_hosts_share_goes_on_as_a_task_though_the_first_leaves_while_it_is_made(
    server: ScriptedServer,
) -> None:
    server.script["report"] = hold = Hold()
    tasks = {**upgrade("auto", join_retries="30s"), "inline_grace": "0s"}
    store = HoldingStore(await open_store("memory", None))
    config = configuration({"reports": server.url}, tasks=tasks)
    async with serve(config, Environment(store=store)) as gateway:
        host = gateway.modern()
        params = {"name": "report", "arguments": YEAR}
        async with host.asking("tools/call", params) as first, host.asking("tools/call", params) as second, bounded():
            with store.holding("insert") as begun:
                await begun.wait()
                await gateway.counted("taskgate_calls_joined_total")
                await first.leave()
            task = (await second.answer()).result
            assert task["resultType"] == "task"
            await hold.begun.wait()
            hold.release(DONE)
            assert (await host.until(task["taskId"], "completed"))["result"]["content"] == DONE["content"]
        assert len(calls(server)) == 1


async def test_a_task_that_a_host_was_given_goes_on_though_another_leaves_without_hearing_of_it(
    server: ScriptedServer,
) -> None:
    server.script["report"] = hold = Hold()
    store = HoldingStore(await open_store("memory", None))
    config = configuration({"reports": server.url}, tasks=upgrade(join_retries="30s"))
    async with serve(config, Environment(store=store)) as gateway:
        host = gateway.modern()
        task = await host.start("report", YEAR)
        async with bounded():
            with store.holding("load") as begun:
                async with host.asking("tools/call", {"name": "report", "arguments": YEAR}) as again:
                    await begun.wait()
                    await again.leave()
            hold.release(DONE)
            assert (await host.until(task["taskId"], "completed"))["result"]["content"] == DONE["content"]
        assert len(calls(server)) == 1


async def test_a_host_with_tasks_of_the_same_era_is_given_one_for_the_call_that_runs(server: ScriptedServer) -> None:
    server.script["report"] = hold = Hold()
    tasks = {**upgrade(), "inline_grace": "0s"}
    async with serve(configuration({"reports": server.url}, tasks=tasks)) as gateway:
        host = gateway.modern()
        plain = asyncio.create_task(gateway.modern(tasks=False).call("report", YEAR, meta={KEY: "k"}))
        async with bounded():
            await hold.begun.wait()
            task = await host.start("report", YEAR, meta={KEY: "k"})
            assert (await host.start("report", YEAR, meta={KEY: "k"}))["taskId"] == task["taskId"]
            hold.release(DONE)
            assert (await plain).result["content"] == DONE["content"]
            assert (await host.until(task["taskId"], "completed"))["result"]["content"] == DONE["content"]
        assert len(calls(server)) == 1
