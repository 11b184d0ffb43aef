"""Tasks that a server of the modern era runs as its own, when the gateway that followed them has ended.

The next one goes on where they are: no call is made twice, nobody is asked twice, and no answer is lost.
"""

import asyncio
from pathlib import Path
from typing import Any

from helpers.gateway.gateway import Gateway
from helpers.host.host import Host, both_eras
from helpers.server import ScriptedServer, status
from helpers.server.modern_tasks import ModernTasks, TaskTool
from helpers.stored_tasks import stored_task
from helpers.waiting import bounded, eventually
from interaction.bridges import ALWAYS, DONE, FORM, before, modern
from interaction.falls import LOST
from interaction.questions import ACCEPTED, capable
from interaction.server_tasks import ASKABLE, OFTEN, natives, report
from requirements import covers

__all__ = ["modern", "natives", "report"]


def sections(folder: Path) -> dict[str, Any]:
    """Of a gateway that makes a task of every call, over a file in the folder."""
    store = {"backend": "sqlite", "sqlite": {"path": str(folder / "taskgate.db")}}
    return {"tasks": ALWAYS | OFTEN, "store": store}


async def kept(gateway: Gateway, folder: Path, task: str) -> None:
    """Returns once the record says where the call is: what ends before that ends the call."""
    await stored_task(folder, task, lambda found: found.checkpoint)
    # What was asked of the store before is answered before.
    await gateway.ready()


async def asked(host: Host, task: str, count: int = 1) -> dict[str, Any]:
    """What a task waits for, once that is so much."""
    async with bounded():
        while len(found := (await host.until(task, "input_required"))["inputRequests"]) < count:
            await asyncio.sleep(0.005)
    return dict(found)


def unheard(modern: ScriptedServer, method: str) -> bool:
    return modern.heard(method) == []


@covers("R-RES-8")
@both_eras
async def test_a_task_goes_on_where_it_is(modern: ScriptedServer, report: TaskTool, tmp_path: Path, era: str) -> None:
    host: Any
    async with before(modern, **sections(tmp_path)) as gateway:
        host = await gateway.greeted(era=era)
        made = (await host.start("report"))["taskId"]
        task = await report.made()
        await kept(gateway, tmp_path, made)
    seen = task.looks
    async with before(modern, **sections(tmp_path)) as gateway:
        await eventually(lambda: task.looks > seen)
        task.say("half of it", updated="2026-08-01T09:00:01.000Z")
        task.complete(DONE)
        if era == "modern":
            done = (await gateway.modern().until(made, "completed"))["result"]
        else:
            done = (await gateway.again(host).ask("tasks/result", {"taskId": made})).result
        assert done["content"] == DONE["content"]
    assert len(modern.heard("tools/call")) == 1
    assert unheard(modern, "tasks/cancel")


@covers("R-RES-8", "M-UPD-4")
async def test_what_was_asked_before_is_answered_after_and_asked_once(
    modern: ScriptedServer, report: TaskTool, tmp_path: Path
) -> None:
    async with before(modern, **sections(tmp_path)) as gateway:
        host = gateway.modern(capabilities=ASKABLE)
        made = (await host.start("report"))["taskId"]
        task = await report.made()
        task.ask(secret=FORM, other=FORM)
        was = await asked(host, made, 2)
        first, second = was
        await host.update(made, {first: ACCEPTED})
        await task.brought()
        await kept(gateway, tmp_path, made)
        async with bounded():
            while len(await asked(host, made)) > 1:
                await asyncio.sleep(0.005)
    async with before(modern, **sections(tmp_path)) as gateway:
        host = gateway.modern(capabilities=ASKABLE)
        assert await asked(host, made) == {second: was[second]}
        await task.looked(2)
        assert await asked(host, made) == {second: was[second]}
        await host.update(made, {second: {"action": "decline"}})
        await eventually(lambda: {"other": {"action": "decline"}} in task.updates)
        task.complete(DONE)
        await host.until(made, "completed")
    # One that had just arrived may come again, which means nothing (M-UPD-2).
    brought = {(key, str(answer)) for update in task.updates for key, answer in update.items()}
    assert brought == {("secret", str(ACCEPTED)), ("other", str({"action": "decline"}))}
    assert len(modern.heard("tools/call")) == 1


async def test_an_answer_that_had_not_arrived_arrives_after(
    modern: ScriptedServer, report: TaskTool, tmp_path: Path
) -> None:
    async with before(modern, **sections(tmp_path)) as gateway:
        host = gateway.modern(capabilities=ASKABLE)
        made = (await host.start("report"))["taskId"]
        task = await report.made()
        task.ask(secret=FORM)
        (key,) = await asked(host, made)
        update, modern.methods["tasks/update"] = modern.methods["tasks/update"], status(503)
        await host.update(made, {key: ACCEPTED})
        await eventually(lambda: modern.heard("tasks/update"))
        await kept(gateway, tmp_path, made)
    modern.methods["tasks/update"] = update
    async with before(modern, **sections(tmp_path)) as gateway:
        assert await task.brought() == {"secret": ACCEPTED}
        task.complete(DONE)
        await gateway.modern().until(made, "completed")
    assert task.updates == [{"secret": ACCEPTED}]


async def test_a_question_that_was_withdrawn_meanwhile_is_withdrawn_from_the_host(
    modern: ScriptedServer, report: TaskTool, tmp_path: Path
) -> None:
    async with before(modern, **sections(tmp_path)) as gateway:
        host = gateway.modern(capabilities=ASKABLE)
        made = (await host.start("report"))["taskId"]
        task = await report.made()
        task.ask(secret=FORM)
        await asked(host, made)
        await kept(gateway, tmp_path, made)
    task.work()
    async with before(modern, **sections(tmp_path)) as gateway:
        host = gateway.modern(capabilities=ASKABLE)
        assert "inputRequests" not in await host.until(made, "working")
        task.complete(DONE)
        await host.until(made, "completed")
    assert task.updates == []


async def test_a_task_that_its_server_lost_meanwhile_is_a_call_whose_end_nobody_knows(
    modern: ScriptedServer, natives: ModernTasks, report: TaskTool, tmp_path: Path
) -> None:
    async with before(modern, **sections(tmp_path)) as gateway:
        made = (await gateway.modern().start("report"))["taskId"]
        await kept(gateway, tmp_path, made)
    natives.forget()
    async with before(modern, **sections(tmp_path)) as gateway:
        found = await gateway.modern().until(made, "failed")
    assert found["error"]["data"] == LOST
    assert len(modern.heard("tools/call")) == 1


async def test_a_task_that_was_cancelled_before_is_not_gone_on_with(
    modern: ScriptedServer, report: TaskTool, tmp_path: Path
) -> None:
    async with before(modern, **sections(tmp_path)) as gateway:
        host = gateway.modern()
        made = (await host.start("report"))["taskId"]
        task = await report.made()
        await task.looked()
        await host.cancel(made)
        await task.cancelled()
    looked = task.looks
    async with before(modern, **sections(tmp_path)) as gateway:
        await gateway.modern().until(made, "cancelled")
    assert task.looks == looked


async def test_a_plain_call_is_given_up_with_its_task(modern: ScriptedServer, report: TaskTool, tmp_path: Path) -> None:
    """Nobody could be told what it comes to."""
    async with before(modern, **sections(tmp_path)) as gateway:
        calling = asyncio.create_task((await capable(gateway)).call("report"))
        task = await report.made()
        await task.looked()
    await asyncio.wait((calling,))
    assert calling.exception() is not None or "error" in (calling.result().message or {})
    assert task.cancels == 1


async def test_a_server_that_is_back_later_than_the_gateway_is_waited_for(
    modern: ScriptedServer, report: TaskTool, tmp_path: Path
) -> None:
    async with before(modern, **sections(tmp_path)) as gateway:
        made = (await gateway.modern().start("report"))["taskId"]
        task = await report.made()
        await kept(gateway, tmp_path, made)
    methods = dict(modern.methods)
    modern.methods |= dict.fromkeys(("tasks/get", "server/discover"), status(503))
    told = len(modern.heard("tasks/get"))
    async with before(modern, **sections(tmp_path)) as gateway:
        await eventually(lambda: len(modern.heard("tasks/get")) > told + 1)
        modern.methods.clear()
        modern.methods |= methods
        task.complete(DONE)
        await gateway.modern().until(made, "completed")
