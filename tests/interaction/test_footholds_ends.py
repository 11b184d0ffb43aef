"""How a call ends that was at its server when the gateway did, and which calls are no business of the next gateway."""

import asyncio
from pathlib import Path

import pytest

from helpers.failing_store import HoldingStore
from helpers.gateway.configuration import configuration, file_store
from helpers.gateway.gateway import Environment, serve
from helpers.gateway.replicas import key_file
from helpers.host.host import Host
from helpers.server import Hold, LastingTool, ScriptedServer, progress_note
from helpers.waiting import bounded, eventually
from interaction.falls import LOST, config_of, fallen, kept, left, tool, up_to
from interaction.test_restarts import DONE

__all__ = ["tool"]

RERUN = {"upgrade": [{"tool": "*", "mode": "auto", "on_lost": "rerun"}]}

# --- ends


async def test_a_cancel_after_the_restart_reaches_the_server_as_one_of_the_first_request(
    server: ScriptedServer, tool: LastingTool, tmp_path: Path
) -> None:
    task, call = await fallen(server, tool, tmp_path)
    async with serve(config_of(server, tmp_path)) as gateway:
        host = await gateway.greeted()
        await call.listened_to(2)
        await host.ask("tasks/cancel", {"taskId": task})
        await eventually(lambda: server.cancelled)
        await eventually(lambda: server.verbs("DELETE"))
    assert server.cancelled == [call.turn.id]


@pytest.mark.parametrize("how", ["session", "stream"])
async def test_a_call_that_its_server_does_not_know_any_more_ends_as_lost_and_is_not_made_again(
    server: ScriptedServer, tool: LastingTool, tmp_path: Path, how: str
) -> None:
    task, _ = await fallen(server, tool, tmp_path)
    if how == "session":
        server.forget_sessions()
    tool.forgets = True
    async with serve(config_of(server, tmp_path)) as gateway:
        host = await gateway.greeted()
        lost = await host.ask("tasks/result", {"taskId": task})
    assert lost.error["data"] == LOST
    assert "may or may not have completed" in lost.error["message"]
    assert len(tool.calls) == 1


async def test_one_that_may_run_again_is_made_again_only_where_its_server_does_not_know_of_it(
    server: ScriptedServer, tool: LastingTool, tmp_path: Path
) -> None:
    task, _ = await fallen(server, tool, tmp_path, tasks=RERUN)
    tool.forgets = True
    async with serve(config_of(server, tmp_path)) as gateway:
        host = await gateway.greeted()
        again = await tool.called(2)
        assert (await kept(tmp_path, task, up_to("1.0"))).reruns == 0
        again.answer(DONE)
        await host.until(task, "completed")
    assert len(tool.calls) == 2


async def test_one_that_may_run_again_goes_on_where_its_server_knows_of_it(
    server: ScriptedServer, tool: LastingTool, tmp_path: Path
) -> None:
    task, call = await fallen(server, tool, tmp_path, tasks=RERUN)
    call.answer(DONE)
    async with serve(config_of(server, tmp_path)) as gateway:
        await (await gateway.greeted()).until(task, "completed")
    assert len(tool.calls) == 1


@pytest.mark.parametrize("theirs", ["context.key", "other.key"])
async def test_a_call_goes_on_only_where_one_of_us_kept_it(
    server: ScriptedServer, tool: LastingTool, tmp_path: Path, theirs: str
) -> None:
    """Who can write to the store cannot have anything sent (T25)."""
    keys = {name: str(key_file(tmp_path, name)) for name in {theirs, "context.key"}}
    auths = [{"mode": "none", "context": {"key_file": keys[name]}} for name in (theirs, "context.key")]
    async with serve(config_of(server, tmp_path, auth=auths[0])) as gateway:
        host = await gateway.greeted()
        task = (await host.start("report"))["taskId"]
        call = await tool.called()
        await kept(tmp_path, task)
        await left(gateway)
    call.answer(DONE)
    async with serve(config_of(server, tmp_path, auth=auths[1])) as gateway:
        ours = theirs == "context.key"
        await gateway.again(host).until(task, "completed" if ours else "failed")
    assert len(tool.asked) == ours


async def test_calls_of_one_session_go_on_together_and_the_last_one_ends_it(
    server: ScriptedServer, tool: LastingTool, tmp_path: Path
) -> None:
    async with serve(config_of(server, tmp_path)) as gateway:
        host = await gateway.greeted()
        tasks = [(await host.start("report"))["taskId"] for _ in range(2)]
        calls = [await tool.called(number) for number in (1, 2)]
        for task in tasks:
            await kept(tmp_path, task)
        await left(gateway)
    assert calls[0].session == calls[1].session
    calls[0].answer(DONE)
    async with serve(config_of(server, tmp_path)) as gateway:
        host = gateway.again(host)
        await asyncio.gather(*(call.listened_to(2) for call in calls))
        ended = {call.turn.id: task for call, task in zip(calls, tasks, strict=True)}
        first = await first_of(host, tasks)
        second = next(task for task in ended.values() if task != first)
        assert server.verbs("DELETE") == []
        next(call for call in calls if not call.is_over).answer(DONE)
        await host.until(second, "completed")
        await eventually(lambda: server.verbs("DELETE"))
    assert len(server.verbs("DELETE")) == 1


async def first_of(host: Host, tasks: list[str]) -> str:
    """The one of them that is completed first."""
    async with bounded():
        while True:
            for task in tasks:
                if (await host.task(task))["status"] == "completed":
                    return task
            await asyncio.sleep(0.005)


async def test_whoever_waits_for_a_task_that_goes_on_after_the_gateway_is_told_to_come_back(
    server: ScriptedServer, tool: LastingTool, tmp_path: Path
) -> None:
    config = configuration(
        {"reports": server.url},
        folder=tmp_path,
        server={"drain": {"delay": "0s", "timeout": "20s", "running_tasks": "fail"}},
    )
    async with serve(config) as gateway:
        host = await gateway.greeted()
        task = (await host.start("report"))["taskId"]
        call = await tool.called()
        waiting = asyncio.create_task(host.ask("tasks/result", {"taskId": task}))
        dropped = asyncio.create_task(host.ask("tasks/result", {"taskId": task}))
        await gateway.shows("taskgate_streams", 2, side="downstream", kind="response")
        dropped.cancel()
        await kept(tmp_path, task)
        await left(gateway)
        told = await waiting
    assert (told.code, told.error["data"]["reason"]) == (503, "draining")
    call.answer(DONE)
    async with serve(config) as gateway:
        again = await gateway.again(host).ask("tasks/result", {"taskId": task})
    assert again.result["content"] == DONE["content"]


# --- what is kept, and what is not


async def test_a_call_that_became_a_task_on_its_way_is_kept_where_it_was_heard_to_before(
    server: ScriptedServer, tool: LastingTool, tmp_path: Path
) -> None:
    upgrade = {"upgrade": [{"tool": "*", "mode": "auto", "inline_grace": "200ms"}]}
    config = config_of(server, tmp_path, tasks=upgrade)
    async with serve(config) as gateway:
        calling = asyncio.create_task(gateway.modern().start("report"))
        call = await tool.called()
        call.say(progress_note(call.token, 1))
        async with bounded():
            task = (await calling)["taskId"]
        await kept(tmp_path, task, up_to("0.1"))
        await left(gateway)
    assert server.cancelled == []
    call.answer(DONE)
    async with serve(config) as gateway:
        await Host(gateway.http, gateway.url(), era="modern").until(task, "completed")
    assert len(tool.calls) == 1


async def test_a_gateway_that_ends_while_a_checkpoint_is_written_leaves_its_call_at_the_server(
    server: ScriptedServer, tool: LastingTool, tmp_path: Path
) -> None:
    store = HoldingStore(await file_store(tmp_path))
    async with serve(config_of(server, tmp_path), Environment(store=store)) as gateway:  # type: ignore[arg-type]
        with store.holding("swap", when_done=True) as written:
            task = (await (await gateway.greeted()).start("report"))["taskId"]
            call = await tool.called()
            async with bounded():
                await written.wait()
            await kept(tmp_path, task)
            ending = asyncio.create_task(left(gateway))
            await gateway.shows("taskgate_draining", 1)
        await ending
    assert server.cancelled == []
    assert not call.is_over


async def test_what_a_gateway_forgets_that_ends_is_cancelled_at_the_server_as_ever(
    server: ScriptedServer, tool: LastingTool
) -> None:
    """Its store is in memory: nobody could go on."""
    async with serve(config_of(server, None)) as gateway:
        host = await gateway.greeted()
        task = (await host.start("report"))["taskId"]
        call = await tool.called()
        call.say(progress_note(call.token, 1))
        async with bounded():
            while (await host.task(task)).get("statusMessage") is None:
                await asyncio.sleep(0.005)
        await gateway.drain()
    assert server.cancelled == [call.turn.id]


async def test_a_call_without_a_place_to_go_on_from_ends_as_shut_down(server: ScriptedServer, tmp_path: Path) -> None:
    server.script["report"] = hold = Hold()
    async with serve(config_of(server, tmp_path)) as gateway:
        host = await gateway.greeted()
        task = (await host.start("report"))["taskId"]
        async with bounded():
            await hold.begun.wait()
            await gateway.drain()
    async with serve(config_of(server, tmp_path)) as gateway:
        answer = await gateway.again(host).ask("tasks/result", {"taskId": task})
    assert answer.error["data"] == {"origin": "gateway", "reason": "shutdown", "dispatched": True}


async def test_a_plain_call_is_no_business_of_the_next_gateway(
    server: ScriptedServer, tool: LastingTool, tmp_path: Path
) -> None:
    async with serve(config_of(server, tmp_path)) as gateway:
        calling = asyncio.create_task((await gateway.greeted()).call("report"))
        call = await tool.called()
        call.answer(DONE)
        async with bounded():
            assert (await calling).result["content"] == DONE["content"]
    assert len(server.verbs("DELETE")) == 1
