"""Calls of hosts without tasks under a rule with `mode: always`: each is stored as a task before it is sent."""

import asyncio
from pathlib import Path

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import serve
from helpers.host.host import ERAS
from helpers.server import Hold, ScriptedServer, TalkingTool, result
from helpers.waiting import bounded, eventually
from interaction.handoffs import YEAR, calls, handoff, taskless
from interaction.questions import DONE

eras = pytest.mark.parametrize("era", ERAS)


@pytest.fixture
async def hold(server: ScriptedServer) -> Hold:
    """What the tool `report` waits for."""
    server.script["report"] = hold = Hold()
    return hold


@eras
async def test_a_quick_call_is_answered_as_ever_and_each_one_runs(server: ScriptedServer, era: str) -> None:
    server.script["report"] = result({**DONE, "structuredContent": YEAR})
    async with serve(configuration({"reports": server.url}, tasks=handoff("1h", mode="always"))) as gateway:
        host = await taskless(gateway, era)
        for _ in range(3):
            answer = (await host.call("report", YEAR)).result
            assert (answer["content"], answer["structuredContent"]) == (DONE["content"], YEAR)
        assert calls(server) == 3
        assert await gateway.count("taskgate_tool_calls_total", disposition="handoff") == 3
        await gateway.shows("taskgate_tasks_finished_total", 3)


@eras
async def test_a_call_of_a_gateway_that_ended_does_not_run_again(
    server: ScriptedServer, hold: Hold, tmp_path: Path, era: str
) -> None:
    config = configuration({"reports": server.url}, folder=tmp_path, tasks=handoff("1h", mode="always"))
    async with serve(config) as gateway:
        lost = asyncio.create_task((await taskless(gateway, era)).call("report", YEAR))
        async with bounded():
            await hold.begun.wait()
        await gateway.close()
        lost.cancel()
        await asyncio.wait([lost])
    async with serve(config) as gateway:
        host = await taskless(gateway, era)
        answer = await host.call("report", YEAR)
        assert "it may or may not have completed" in str(answer.message)
        assert calls(server) == 1
        # The model has read that. If it calls once more, it means that.
        hold.release(DONE)
        async with bounded():
            assert (await host.call("report", YEAR)).result["content"] == DONE["content"]


@pytest.mark.parametrize("rule", [{"join_retries": "never"}, {"handoff": {"after": "1h", "on_disconnect": "cancel"}}])
@eras
async def test_a_call_that_ends_with_its_connection_is_not_stored(
    server: ScriptedServer, rule: dict[str, object], era: str
) -> None:
    server.script["report"] = result(DONE)
    tasks = handoff("1h", **{"mode": "always", **rule})
    async with serve(configuration({"reports": server.url}, tasks=tasks)) as gateway:
        assert (await (await taskless(gateway, era)).call("report", YEAR)).result["content"] == DONE["content"]
        assert await gateway.count("taskgate_tasks_started_total") == 0


async def test_a_cancellation_of_a_legacy_host_cancels_its_call(server: ScriptedServer, hold: Hold) -> None:
    async with serve(configuration({"reports": server.url}, tasks=handoff("1h", mode="always"))) as gateway:
        host = await taskless(gateway, "legacy")
        params = {"name": "report", "arguments": YEAR}
        asking = asyncio.create_task(host.ask("tools/call", params, id="call"))
        async with bounded():
            await hold.begun.wait()
        other = asyncio.create_task((await taskless(gateway, "legacy")).call("report", YEAR))
        await eventually(lambda: calls(server) == 2)
        await host.tell("notifications/cancelled", {"requestId": "call"})
        async with bounded():
            assert (await asking).status == 202
        await eventually(lambda: bool(server.cancelled))
        # The equal call of another host is its own.
        hold.release(DONE)
        async with bounded():
            assert (await other).result["content"] == DONE["content"]


@eras
async def test_progress_crosses_with_the_token_of_the_host(server: ScriptedServer, era: str) -> None:
    server.script["report"] = tool = TalkingTool()
    async with serve(configuration({"reports": server.url}, tasks=handoff("1h", mode="always"))) as gateway:
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
            assert (await stream.result())["content"] == DONE["content"]
