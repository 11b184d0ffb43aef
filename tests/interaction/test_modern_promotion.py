"""Calls of the modern era that become tasks: once their grace is over, or at once, as the operator wants."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from helpers.failing_store import FailingStore, HoldingStore
from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Environment, Gateway, open_store, serve
from helpers.package_objects import counted, expect_no_growth, no_collections
from helpers.server import Hold, ScriptedServer
from helpers.stored_tasks import stored_tasks
from helpers.waiting import bounded, eventually
from interaction.questions import DONE
from interaction.refusals import NEEDED, refused
from requirements import covers

AT_ONCE, NEVER = {"inline_grace": "0s"}, {"inline_grace": "1h"}


def rules(mode: str, **more: Any) -> dict[str, Any]:
    """The tasks section with one mode for all tools."""
    return {"upgrade": [{"tool": "*", "mode": mode}], **more}


@pytest.fixture
async def gateway(server: ScriptedServer) -> AsyncIterator[Gateway]:
    """A gateway that makes a task of every call that is not over at once."""
    async with serve(configuration({"reports": server.url}, tasks=AT_ONCE)) as gateway:
        yield gateway


@pytest.fixture
async def patient(server: ScriptedServer) -> AsyncIterator[Gateway]:
    """A gateway that gives every call an hour until it becomes a task."""
    async with serve(configuration({"reports": server.url}, tasks=NEVER)) as gateway:
        yield gateway


# --- after the grace -------------------------------------------------------------------------------------------------


@covers("M-CREATE-1")
async def test_a_call_that_is_quick_enough_is_answered_and_makes_no_task(patient: Gateway) -> None:
    answer = await patient.modern().call("echo", {"a": 1})
    assert (answer.result["resultType"], answer.result["structuredContent"]) == ("complete", {"a": 1})
    assert not answer.streamed
    assert await patient.count("taskgate_tasks_started_total") == 0
    assert await patient.count("taskgate_tool_calls_total", tool="echo", disposition="inline") == 1


@covers("M-CREATE-1", "M-CREATE-2")
async def test_a_call_that_takes_longer_than_the_grace_is_the_call_of_a_task(
    server: ScriptedServer, gateway: Gateway
) -> None:
    server.script["report"] = hold = Hold()
    host = gateway.modern()
    task = await host.start("report", {"year": 2026})
    assert task["status"] == "working"
    assert (await host.task(task["taskId"]))["status"] == "working"
    hold.release(DONE)
    assert (await host.until(task["taskId"], "completed"))["result"]["content"] == DONE["content"]
    assert len(server.heard("tools/call")) == 1
    assert await gateway.count("taskgate_tool_calls_total", tool="report", disposition="task") == 1


@covers("M-CREATE-3")
async def test_a_handle_leaves_only_after_its_task_is_stored(server: ScriptedServer) -> None:
    server.script["report"] = Hold()
    store = HoldingStore(await open_store("memory", None))
    config = configuration({"reports": server.url}, tasks=AT_ONCE)
    async with serve(config, Environment(store=store)) as gateway:  # type: ignore[arg-type]
        host = gateway.modern()
        with store.holding("insert") as inserting:
            starting = asyncio.create_task(host.start("report"))
            async with bounded():
                await inserting.wait()
            await gateway.metrics()
            assert not starting.done()
        async with bounded():
            await host.cancel((await starting)["taskId"])


async def test_what_ends_while_its_task_is_being_stored_is_the_end_of_that_task(server: ScriptedServer) -> None:
    server.script["report"] = hold = Hold()
    store = HoldingStore(await open_store("memory", None))
    config = configuration({"reports": server.url}, tasks=AT_ONCE)
    async with serve(config, Environment(store=store)) as gateway:  # type: ignore[arg-type]
        host = gateway.modern()
        with store.holding("insert") as inserting:
            starting = asyncio.create_task(host.start("report"))
            async with bounded():
                await inserting.wait()
            hold.release(DONE)
            await eventually(lambda: len(hold.turns) == 1)
            await gateway.metrics()
        async with bounded():
            task = await starting
        assert (await host.until(task["taskId"], "completed"))["result"]["content"] == DONE["content"]


@covers("M-CREATE-3", "M-PROG-1")
async def test_what_is_stored_says_that_the_call_has_left_and_nothing_of_its_request(
    server: ScriptedServer, tmp_path: Path
) -> None:
    server.script["report"] = Hold()
    async with serve(configuration({"reports": server.url}, folder=tmp_path, tasks=AT_ONCE)) as gateway:
        task = await gateway.modern().start("report", meta={"progressToken": "p"})
        stored = stored_tasks(tmp_path)[task["taskId"]]
        # Should this process die, nobody runs the call again.
        assert stored.was_sent
        assert (stored.progress_token, stored.host_session) == (None, None)


async def test_a_call_that_was_a_task_is_gone_at_once(server: ScriptedServer, tmp_path: Path) -> None:
    # What is stored is in a file. The timer of a call is one of an hour.
    tasks = {**AT_ONCE, "ttl": {"max": "1h"}}
    async with serve(configuration({"reports": server.url}, folder=tmp_path, tasks=tasks)) as gateway:
        host = gateway.modern()

        async def end(count: int) -> None:
            for _ in range(count):
                await host.start("echo")
            await gateway.shows("taskgate_tasks_finished_total", await gateway.count("taskgate_tasks_started_total"))

        await end(6)
        with no_collections():
            before = counted()
            await end(6)
            # Its owner, its change and what it was advised.
            await expect_no_growth(before, 6, remembered={"OwnerKey", "_Entry", "_PollState"})


@covers("R-RES-6")
async def test_a_call_above_the_cap_goes_on_without_a_task(server: ScriptedServer) -> None:
    server.script["report"] = hold = Hold()
    limits = {"concurrency": {"tasks_per_context": 1}}
    async with serve(configuration({"reports": server.url}, tasks=AT_ONCE, limits=limits)) as gateway:
        host = gateway.modern()
        await host.start("report")
        second = asyncio.create_task(host.call("report"))
        await eventually(lambda: len(hold.turns) == 2)
        hold.release(DONE)
        async with bounded():
            assert (await second).result["resultType"] == "complete"
        assert await gateway.count("taskgate_tasks_started_total") == 1


@covers("R-RES-6")
async def test_a_call_goes_on_without_a_task_while_the_store_fails(server: ScriptedServer) -> None:
    server.script["report"] = hold = Hold()
    store = FailingStore(await open_store("memory", None))
    config = configuration({"reports": server.url}, tasks=AT_ONCE)
    async with serve(config, Environment(store=store)) as gateway:  # type: ignore[arg-type]
        store.failing = {"insert"}
        calling = asyncio.create_task(gateway.modern().call("report"))
        await eventually(lambda: store.refused)
        hold.release(DONE)
        async with bounded():
            assert (await calling).result["content"] == DONE["content"]
        assert len(server.heard("tools/call")) == 1


async def test_a_tool_that_its_server_calls_a_task_of_its_own_is_the_operators_to_decide_on(
    server: ScriptedServer, gateway: Gateway
) -> None:
    server.tools[1]["execution"] = {"taskSupport": "required"}
    server.script["report"] = hold = Hold()
    async with bounded():
        assert (await gateway.modern().call("report")).result["resultType"] == "task"
        await hold.begun.wait()
    hold.release(DONE)


@covers("M-CREATE-1")
async def test_a_host_without_the_extension_is_never_given_a_task(server: ScriptedServer, gateway: Gateway) -> None:
    server.script["report"] = hold = Hold()
    calling = asyncio.create_task(gateway.modern(tasks=False).call("report"))
    async with bounded():
        await hold.begun.wait()
    hold.release(DONE)
    async with bounded():
        assert (await calling).result["resultType"] == "complete"


# --- what the operator wants -----------------------------------------------------------------------------------------


async def test_a_tool_that_is_never_a_task_is_waited_for(server: ScriptedServer) -> None:
    server.script["report"] = hold = Hold()
    async with serve(configuration({"reports": server.url}, tasks=rules("sync", **AT_ONCE))) as gateway:
        calling = asyncio.create_task(gateway.modern().call("report"))
        async with bounded():
            await hold.begun.wait()
        hold.release(DONE)
        async with bounded():
            assert (await calling).result["resultType"] == "complete"


@pytest.mark.parametrize("mode", ["always", "required"])
async def test_a_tool_that_is_always_a_task_is_one_before_it_is_called(server: ScriptedServer, mode: str) -> None:
    async with serve(configuration({"reports": server.url}, tasks=rules(mode, **NEVER))) as gateway:
        host = gateway.modern()
        task = await host.start("echo", {"a": 1})
        ended = await host.until(task["taskId"], "completed")
        assert ended["result"]["structuredContent"] == {"a": 1}
        assert await gateway.count("taskgate_tool_calls_total", tool="echo", disposition="task") == 1


@pytest.mark.parametrize("answers", [{}, {"a": {"action": "accept", "content": {}}}], ids=["none", "one"])
@pytest.mark.parametrize("mode", ["always", "required"])
async def test_answers_to_what_nobody_asked_let_no_call_past_its_task(
    server: ScriptedServer, mode: str, answers: dict[str, Any]
) -> None:
    async with serve(configuration({"reports": server.url}, tasks=rules(mode, **NEVER))) as gateway:
        task = await gateway.modern().start("echo", inputResponses=answers)
        assert task["resultType"] == "task"


async def test_a_tool_that_is_only_a_task_is_refused_to_hosts_without_tasks(server: ScriptedServer) -> None:
    async with serve(configuration({"reports": server.url}, tasks=rules("required"))) as gateway:
        error = refused(await gateway.modern(tasks=False).call("echo"), 400, -32021)
        assert error["data"] == NEEDED
        assert server.heard("tools/call") == []
        assert await gateway.count("taskgate_tool_calls_total", tool="echo", disposition="rejected") == 1


async def test_a_task_that_is_made_at_once_is_refused_above_the_cap(server: ScriptedServer) -> None:
    server.script["report"] = Hold()
    limits = {"concurrency": {"tasks_per_context": 1}}
    async with serve(configuration({"reports": server.url}, tasks=rules("always"), limits=limits)) as gateway:
        host = gateway.modern()
        await host.start("report")
        refused(await host.call("report"), 200, 429)
        assert await gateway.count("taskgate_tool_calls_total", tool="report", disposition="rejected") == 1


async def test_a_tool_that_is_not_listed_is_for_its_server_to_refuse(server: ScriptedServer) -> None:
    async with serve(configuration({"reports": server.url}, tasks=rules("always"))) as gateway:
        answer = await gateway.modern().call("unlisted", {"a": 1})
        assert answer.result["structuredContent"] == {"a": 1}
