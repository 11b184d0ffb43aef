"""A server of the modern era that makes tasks of calls itself: hosts that know none have their calls answered.

Its tasks are followed for them, and they hear of none.
"""

import asyncio
from typing import Any

import pytest

from helpers.gateway.gateway import Gateway
from helpers.host.host import both_eras
from helpers.modern_schema import CAPABILITIES, TASKS
from helpers.server import Rounds, ScriptedServer, Turn, raw
from helpers.server.modern_tasks import ModernTasks, TaskTool
from helpers.waiting import eventually
from interaction.bridges import DONE, FORM, modern
from interaction.questions import ACCEPTED, ELICIT, capable
from interaction.server_tasks import ASKABLE, gateway, natives, report
from requirements import covers

__all__ = ["gateway", "modern", "natives", "report"]


@covers("M-NEG-8", "B-CONV-5")
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-06-18", "2025-11-25"])
async def test_a_host_of_the_legacy_era_has_its_call_answered(
    modern: ScriptedServer, gateway: Gateway, report: TaskTool, revision: str
) -> None:
    host = await gateway.greeted(revision)
    calling = asyncio.create_task(host.call("report"))
    task = await report.made()
    await task.looked(2)
    task.complete(DONE)
    answer = await calling
    assert answer.result == DONE
    assert "native" not in answer.text
    # Plainly first: only what its server refuses to run so becomes a task of the server's.
    declared = [call["params"]["_meta"][CAPABILITIES] for call in modern.heard("tools/call")]
    assert declared == [{}, {"extensions": {TASKS: {}}}]
    assert TASKS not in str(modern.heard("tools/list"))


async def test_a_poll_that_is_refused_for_long_is_made_again_within_half_a_minute(
    modern: ScriptedServer, gateway: Gateway, report: TaskTool
) -> None:
    host = await gateway.greeted()
    calling = asyncio.create_task(host.call("report"))
    task = await report.made()
    await task.looked(1)
    shown, polls = modern.methods["tasks/get"], len(modern.heard("tasks/get"))
    modern.methods["tasks/get"] = raw(b"later", content_type="text/plain", status=503, Retry_After="3000")
    await eventually(lambda: len(modern.heard("tasks/get")) > polls)
    modern.methods["tasks/get"] = shown
    task.complete(DONE)
    assert (await calling).result == DONE


@covers("M-NEG-2", "M-NEG-8", "V-DISC-4")
async def test_a_host_without_the_extension_has_its_call_answered_though_its_server_insists_on_tasks(
    gateway: Gateway, report: TaskTool
) -> None:
    host = gateway.modern(tasks=False)
    calling = asyncio.create_task(host.call("report"))
    (await report.made()).complete(DONE)
    answer = await calling
    assert (answer.result["resultType"], answer.result["content"]) == ("complete", DONE["content"])
    assert "native" not in answer.text


@covers("M-PROG-1")
@both_eras
async def test_what_the_task_says_of_itself_is_progress_of_the_call(
    gateway: Gateway, report: TaskTool, era: str
) -> None:
    meta = {"progressToken": "p"}
    if era == "modern":
        host = gateway.modern(tasks=False)
        calling = asyncio.create_task(host.call("report", meta=meta))
    else:
        calling = asyncio.create_task((await gateway.greeted()).call("report", _meta=meta))
    task = await report.made()
    for words in ("half of it", "nearly all"):
        task.say(words)
        await task.looked(2)
    task.complete(DONE)
    told = [note["params"] for note in (await calling).notices]
    assert [(each["progressToken"], each["message"]) for each in told] == [("p", "half of it"), ("p", "nearly all")]
    assert told[0]["progress"] < told[1]["progress"]


@covers("B-CONV-8")
@both_eras
async def test_an_error_of_the_task_is_the_error_of_the_call(gateway: Gateway, report: TaskTool, era: str) -> None:
    host = await gateway.greeted(era=era, tasks=False)
    calling = asyncio.create_task(host.call("report"))
    (await report.made()).fail(-32001, "no such year", data={"year": 1})
    assert (await calling).error == {"code": -32001, "message": "no such year", "data": {"year": 1}}


@both_eras
async def test_a_server_that_lost_its_task_has_failed_the_call(
    gateway: Gateway, report: TaskTool, natives: ModernTasks, era: str
) -> None:
    host = await gateway.greeted(era=era, tasks=False)
    calling = asyncio.create_task(host.call("report"))
    await report.made()
    natives.forget()
    answer = await calling
    assert (answer.code, answer.error["data"]) == (
        -32603, {"origin": "gateway", "reason": "call_lost", "dispatched": True},
    )  # fmt: skip
    assert "native" not in answer.text


async def test_what_the_task_asks_is_asked_on_the_stream_of_the_call(gateway: Gateway, report: TaskTool) -> None:
    host = await capable(gateway)
    async with host.asking("tools/call", {"name": "report", "arguments": {}}) as call:
        task = await report.made()
        task.ask(secret=FORM)
        question = await call.until(ELICIT)
        assert "secret" not in str(question)
        await host.respond(question["id"], ACCEPTED)
        assert await task.brought() == {"secret": ACCEPTED}
        task.complete(DONE)
        assert await call.result() == DONE


@covers("M-MRTR-3", "M-MRTR-8")
async def test_what_the_task_asks_a_host_without_the_extension_is_a_round_of_a_held_call(
    gateway: Gateway, report: TaskTool
) -> None:
    host = gateway.modern(tasks=False, capabilities=ASKABLE)
    calling = asyncio.create_task(host.call("report"))
    task = await report.made()
    task.ask(secret=FORM)
    asked = (await calling).result
    assert asked["resultType"] == "input_required"
    assert "secret" not in str(asked)
    answers = dict.fromkeys(asked["inputRequests"], ACCEPTED)
    params = {"inputResponses": answers, "requestState": asked["requestState"]}
    calling = asyncio.create_task(host.call("report", **params))
    assert await task.brought() == {"secret": ACCEPTED}
    task.complete(DONE)
    assert (await calling).result["content"] == DONE["content"]
    assert len(report.tasks) == 1


@covers("M-CREATE-4")
async def test_a_round_that_the_server_asks_before_it_makes_a_task_is_the_hosts_as_it_is(
    modern: ScriptedServer, gateway: Gateway, report: TaskTool
) -> None:
    asks = Rounds({"inputRequests": {"its own key": FORM}, "requestState": "its own state"})

    async def first_asks(turn: Turn) -> Any:
        return await (report if "inputResponses" in turn.message["params"] else asks)(turn)

    modern.script["report"] = first_asks
    host = gateway.modern(tasks=False, capabilities=ASKABLE)
    asked = (await host.call("report")).result
    assert list(asked["inputRequests"]) == ["its own key"]
    params = {"inputResponses": {"its own key": ACCEPTED}, "requestState": asked["requestState"]}
    calling = asyncio.create_task(host.call("report", **params))
    (await report.made()).complete(DONE)
    assert (await calling).result["content"] == DONE["content"]
    assert modern.heard("tools/call")[-1]["params"]["requestState"] == "its own state"


@covers("H-MOD-9", "H-MOD-10")
async def test_a_modern_host_that_leaves_cancels_the_servers_task(gateway: Gateway, report: TaskTool) -> None:
    async with gateway.modern(tasks=False).asking("tools/call", {"name": "report", "arguments": {}}) as asked:
        task = await report.made()
        await asked.leave()
        await task.cancelled()


async def test_a_host_that_cancels_its_call_cancels_the_servers_task(gateway: Gateway, report: TaskTool) -> None:
    host = await gateway.greeted()
    async with host.asking("tools/call", {"name": "report", "arguments": {}}, id="mine"):
        task = await report.made()
        await host.tell("notifications/cancelled", {"requestId": "mine"})
        await task.cancelled()


@covers("H-MOD-9", "H-MOD-10", "L-CANCEL-4")
@both_eras
async def test_a_call_that_is_given_up_before_its_host_could_know_of_a_task_has_that_cancelled_as_well(
    modern: ScriptedServer, gateway: Gateway, report: TaskTool, era: str
) -> None:
    report.handles.clear()
    host = await gateway.greeted(era=era, tasks=False)
    async with host.asking("tools/call", {"name": "report", "arguments": {}}, id="mine") as asked:
        task = await report.made()
        if era == "modern":
            await asked.leave()
        else:
            await host.tell("notifications/cancelled", {"requestId": "mine"})
        report.handles.set()
        await task.cancelled()
    assert task.looks == 0
