"""Calls of hosts without tasks under a rule with `mode: always`: each is stored as a task before it is sent."""

import asyncio
from pathlib import Path

import pytest

from helpers.scripted_upstream import Hold, ScriptedServer, result
from helpers.talking_tool import TalkingTool
from helpers.waiting import bounded, eventually
from helpers.whole_gateway import configuration, running
from interaction.handing_off import ERAS, WAIT, YEAR, calls, cut, handle_of, handoff, kept, taskless, waited
from interaction.holding import CAPABLE
from interaction.questioning import ACCEPTED, DONE, ELICIT

eras = pytest.mark.parametrize("era", ERAS)


@pytest.fixture
async def hold(server: ScriptedServer) -> Hold:
    """What the tool `report` waits for."""
    server.script["report"] = hold = Hold()
    return hold


@eras
async def test_a_quick_call_is_answered_as_ever_and_each_one_runs(server: ScriptedServer, era: str) -> None:
    server.script["report"] = result({**DONE, "structuredContent": YEAR})
    async with running(configuration({"reports": server.url}, tasks=handoff("1h", mode="always"))) as gateway:
        host = await taskless(gateway, era)
        for _ in range(3):
            answer = (await host.call("report", YEAR)).result
            assert (answer["content"], answer["structuredContent"]) == (DONE["content"], YEAR)
        assert calls(server) == 3
        assert await gateway.count("taskgate_tool_calls_total", disposition="handoff") == 3
        await gateway.shows("taskgate_tasks_finished_total", 3)


@eras
async def test_a_late_call_is_answered_with_its_handle(server: ScriptedServer, hold: Hold, era: str) -> None:
    async with running(configuration({"reports": server.url}, tasks=handoff(mode="always"))) as gateway:
        host = await taskless(gateway, era)
        handle = handle_of(await host.call("report", YEAR))
        hold.release(DONE)
        assert (await waited(host, handle)).result["content"] == DONE["content"]
        assert calls(server) == 1


@eras
async def test_a_call_of_a_gateway_that_ended_does_not_run_again(
    server: ScriptedServer, hold: Hold, tmp_path: Path, era: str
) -> None:
    config = configuration({"reports": server.url}, folder=tmp_path, tasks=handoff("1h", mode="always"))
    async with running(config) as gateway:
        lost = asyncio.create_task((await taskless(gateway, era)).call("report", YEAR))
        async with bounded():
            await hold.begun.wait()
        await gateway.close()
        lost.cancel()
        await asyncio.wait([lost])
    async with running(config) as gateway:
        host = await taskless(gateway, era)
        answer = await host.call("report", YEAR)
        assert "it may or may not have completed" in str(answer.message)
        assert calls(server) == 1
        # The model has read that. If it calls once more, it means that.
        hold.release(DONE)
        async with bounded():
            assert (await host.call("report", YEAR)).result["content"] == DONE["content"]


@eras
async def test_a_lost_connection_keeps_the_call_and_the_same_call_made_again_finds_it(
    server: ScriptedServer, hold: Hold, era: str
) -> None:
    async with running(configuration({"reports": server.url}, tasks=handoff("1h", mode="always"))) as gateway:
        await cut(await taskless(gateway, era), hold)
        again = asyncio.create_task((await taskless(gateway, era)).call("report", YEAR))
        await gateway.shows("taskgate_calls_joined_total", 1, how="retry")
        hold.release(DONE)
        async with bounded():
            assert (await again).result["content"] == DONE["content"]
        assert (calls(server), server.cancelled) == (1, [])


@eras
async def test_a_lost_call_that_no_host_asks_for_is_cancelled_after_the_window(
    server: ScriptedServer, hold: Hold, era: str
) -> None:
    tasks = handoff("1h", mode="always")
    tasks["handoff"]["retry_window"] = "50ms"
    async with running(configuration({"reports": server.url}, tasks=tasks)) as gateway:
        await cut(await taskless(gateway, era), hold)
        await eventually(lambda: bool(server.cancelled) or hold.left.is_set())
        await gateway.shows("taskgate_tasks_finished_total", 1, status="cancelled")


@eras
async def test_a_call_above_the_cap_blocks(server: ScriptedServer, hold: Hold, era: str) -> None:
    limits = {"concurrency": {"tasks_per_context": 1}}
    async with running(configuration({"reports": server.url}, tasks=handoff(mode="always"), limits=limits)) as gateway:
        host = await taskless(gateway, era)
        handle_of(await host.call("report", {"year": 2025}))
        blocked = asyncio.create_task(host.call("report", YEAR))
        await gateway.shows("taskgate_tool_calls_total", 1, disposition="direct")
        hold.release(DONE)
        async with bounded():
            assert (await blocked).result["content"] == DONE["content"]


@pytest.mark.parametrize("rule", [{"join_retries": "never"}, {"handoff": {"after": "1h", "on_disconnect": "cancel"}}])
@eras
async def test_a_call_that_ends_with_its_connection_is_not_stored(
    server: ScriptedServer, rule: dict[str, object], era: str
) -> None:
    server.script["report"] = result(DONE)
    tasks = handoff("1h", **{"mode": "always", **rule})
    async with running(configuration({"reports": server.url}, tasks=tasks)) as gateway:
        assert (await (await taskless(gateway, era)).call("report", YEAR)).result["content"] == DONE["content"]
        assert await gateway.count("taskgate_tasks_started_total") == 0


@pytest.mark.parametrize("others", [0, 1])
async def test_a_cancellation_of_a_legacy_host_cancels_its_call_unless_another_host_waits_for_it(
    server: ScriptedServer, hold: Hold, others: int
) -> None:
    async with running(configuration({"reports": server.url}, tasks=handoff("1h", mode="always"))) as gateway:
        host = await taskless(gateway, "legacy")
        params = {"name": "report", "arguments": YEAR}
        asking = asyncio.create_task(host.ask("tools/call", params, id="call"))
        async with bounded():
            await hold.begun.wait()
        waiting = [asyncio.create_task((await taskless(gateway, "legacy")).call("report", YEAR)) for _ in range(others)]
        await gateway.shows("taskgate_calls_joined_total", others)
        await host.tell("notifications/cancelled", {"requestId": "call"})
        async with bounded():
            assert (await asking).status == 202
        if others == 0:
            await eventually(lambda: bool(server.cancelled))
        hold.release(DONE)
        async with bounded():
            assert [(await each).result["content"] for each in waiting] == [DONE["content"]] * others


async def test_a_question_of_the_server_reaches_a_legacy_host_on_the_stream_of_its_call_and_then_of_its_wait(
    server: ScriptedServer,
) -> None:
    server.script["report"] = tool = TalkingTool()
    async with running(configuration({"reports": server.url}, tasks=handoff("300ms", mode="always"))) as gateway:
        host = await taskless(gateway, "legacy", **CAPABLE)
        async with host.asking("tools/call", {"name": "report", "arguments": YEAR}) as stream:
            await tool.ask("q-1")
            first = await stream.until(ELICIT)
            await stream.end()
        assert [note["params"]["requestId"] for note in stream.of("notifications/cancelled")] == [first["id"]]
        handle = stream.heard[-1]["result"]["content"][0]["text"].partition('{"handle": "')[2][:32]
        async with host.asking("tools/call", {"name": WAIT, "arguments": {"handle": handle}}) as stream:
            asked = await stream.until(ELICIT)
            await host.respond(asked["id"], ACCEPTED)
            assert (await tool.told("q-1"))["result"] == ACCEPTED
            await tool.finish(DONE)
            assert (await stream.answered())["content"] == DONE["content"]


@eras
async def test_a_drain_answers_with_the_handle(server: ScriptedServer, hold: Hold, era: str) -> None:
    async with running(configuration({"reports": server.url}, tasks=handoff("1h", mode="always"))) as gateway:
        host = await taskless(gateway, era)
        call = asyncio.create_task(host.call("report", YEAR))
        async with bounded():
            await hold.begun.wait()
        closing = asyncio.create_task(gateway.drain())
        async with bounded():
            handle = handle_of(await call)
        waiting = asyncio.create_task(waited(host, handle))
        hold.release(DONE)
        async with bounded():
            assert (await waiting).result["content"] == DONE["content"]
            await closing


@eras
async def test_progress_crosses_with_the_token_of_the_host(server: ScriptedServer, era: str) -> None:
    server.script["report"] = tool = TalkingTool()
    async with running(configuration({"reports": server.url}, tasks=handoff("1h", mode="always"))) as gateway:
        host = await taskless(gateway, era)
        params = {"name": "report", "arguments": YEAR}
        meta = {"progressToken": "mine"}
        asking = (
            host.asking("tools/call", params, meta=meta)
            if era == "modern"
            else host.asking("tools/call", {**params, "_meta": meta})
        )
        async with asking as stream:
            async with bounded():
                await tool.begun.wait()
            token = tool.called.token
            await tool.note("notifications/progress", progressToken=token, progress=3, total=10, message="fetching")
            told = await stream.until("notifications/progress")
            assert (told["params"]["progressToken"], told["params"]["message"]) == ("mine", "3/10: fetching")
            await tool.finish(DONE)
            assert (await stream.answered())["content"] == DONE["content"]


@eras
async def test_a_call_is_kept_once_its_connection_is_lost_while_it_is_stored(
    server: ScriptedServer, hold: Hold, era: str
) -> None:
    async with running(configuration({"reports": server.url}, tasks=handoff("1h", mode="always"))) as gateway:
        await cut(await taskless(gateway, era), hold)
        await kept(gateway)
        hold.release(DONE)
        await gateway.shows("taskgate_tasks_finished_total", 1)
        assert (await (await taskless(gateway, era)).call("report", YEAR)).result["content"] == DONE["content"]
        assert calls(server) == 1
