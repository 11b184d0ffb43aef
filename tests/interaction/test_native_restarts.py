"""Tasks that a server of 2025-11-25 runs as its own, when the gateway that followed them has ended.

The next one goes on where they are: no call is made twice, nobody is asked twice, and no answer is lost.
"""

import asyncio
from pathlib import Path
from typing import Any

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import serve
from helpers.host.host import both_eras
from helpers.server import ScriptedServer
from helpers.server.legacy_tasks import LegacyTasks
from helpers.stored_tasks import copied, stored_task
from helpers.waiting import bounded, eventually
from interaction.falls import LOST
from interaction.questions import ACCEPTED, DONE, ELICIT, RELATED, capable
from interaction.server_tasks import ASKED, tasks
from requirements import covers

__all__ = ["tasks"]


def sections(folder: Path, server: ScriptedServer) -> Any:
    """Of a gateway over a file in the folder, which makes a task of every call of a host that knows tasks."""
    rules = {"upgrade": [{"tool": "*", "mode": "always"}]}
    return configuration({"reports": server.url}, folder=folder, tasks=rules)


@covers("R-RES-8")
@both_eras
async def test_a_task_goes_on_where_it_is(server: ScriptedServer, tasks: LegacyTasks, tmp_path: Path, era: str) -> None:
    host: Any
    async with serve(sections(tmp_path, server)) as gateway:
        host = await gateway.greeted(era=era)
        made = (await host.start("research"))["taskId"]
        task = await tasks.made()
        await eventually(lambda: task.looked)
    seen = len(task.looked)
    async with serve(sections(tmp_path, server)) as gateway:
        await eventually(lambda: len(task.looked) > seen)
        task.move("working", "half of it")
        task.complete(DONE)
        if era == "modern":
            done = (await gateway.modern().until(made, "completed"))["result"]
        else:
            done = (await gateway.again(host).ask("tasks/result", {"taskId": made})).result
        assert done["content"] == DONE["content"]
    assert len(server.heard("tools/call")) == 1
    assert (tasks.cancelled, server.cancelled) == ([], [])
    # The session that the task was made in was left to whoever goes on, and ended by them.
    assert [request.headers["mcp-session-id"] for request in server.verbs("DELETE")].count("session-1") == 1


@covers("R-RES-8", "L-INPUT-3")
async def test_what_was_asked_before_is_answered_after_and_asked_once(
    server: ScriptedServer, tasks: LegacyTasks, tmp_path: Path
) -> None:
    async with serve(sections(tmp_path, server)) as gateway:
        host = await capable(gateway)
        made = (await host.start("research"))["taskId"]
        task = await tasks.made()
        task.ask(ASKED)
        await host.until(made, "input_required")
    async with serve(sections(tmp_path, server)) as gateway:
        again = gateway.again(host)
        await eventually(lambda: task.waiting)
        async with again.asking("tasks/result", {"taskId": made}) as stream:
            asked = await stream.until(ELICIT)
            await again.respond(asked["id"], ACCEPTED)
            assert (await server.reply_to("q-1"))["result"] == ACCEPTED
            task.move("working")
            await again.until(made, "working")
            task.ask(ASKED | {"id": "q-2"})
            await again.respond((await stream.until(ELICIT, times=2))["id"], ACCEPTED)
            await server.reply_to("q-2")
            task.complete(DONE)
            assert await stream.result() == DONE | {"_meta": {RELATED: {"taskId": made}}}
    assert [reply["id"] for reply in server.replies if "result" in reply] == ["q-1", "q-2"]
    assert len(server.heard("tools/call")) == 1


@covers("S-SEC-9")
async def test_a_task_that_its_server_forgot_meanwhile_has_an_unknown_end(
    server: ScriptedServer, tasks: LegacyTasks, tmp_path: Path
) -> None:
    async with serve(sections(tmp_path, server)) as gateway:
        host = await gateway.greeted()
        made = (await host.start("research"))["taskId"]
        task = await tasks.made()
        await eventually(lambda: task.looked)
    tasks.all.clear()
    async with serve(sections(tmp_path, server)) as gateway:
        again = gateway.again(host)
        answer = await again.ask("tasks/result", {"taskId": made})
    assert answer.error["data"] == LOST
    assert len(server.heard("tools/call")) == 1


async def test_a_task_that_outlived_its_servers_session_goes_on_in_another(
    server: ScriptedServer, tasks: LegacyTasks, tmp_path: Path
) -> None:
    async with serve(sections(tmp_path, server)) as gateway:
        host = await gateway.greeted()
        made = (await host.start("research"))["taskId"]
        task = await tasks.made()
        await eventually(lambda: task.looked)
    server.forget_sessions()
    async with serve(sections(tmp_path, server)) as gateway:
        seen = len(task.looked)
        await eventually(lambda: len(task.looked) > seen)
        task.complete(DONE)
        async with bounded():
            while (await gateway.again(host).task(made))["status"] != "completed":
                await asyncio.sleep(0.01)
    assert len(server.heard("tools/call")) == 1


@covers("S-SEC-9", "R-RES-8")
async def test_a_task_whose_handle_never_reached_a_gateway_that_fell_has_an_unknown_end_and_is_not_made_again(
    server: ScriptedServer, tasks: LegacyTasks, tmp_path: Path
) -> None:
    tasks.handles.clear()
    folders = [tmp_path / "fell", tmp_path / "next"]
    for folder in folders:
        folder.mkdir()
    async with serve(sections(folders[0], server)) as gateway:
        host = await gateway.greeted()
        made = (await host.start("research"))["taskId"]
        await tasks.made()
        await stored_task(folders[0], made, lambda task: task.was_sent)
        copied(*folders)
        tasks.handles.set()
        async with serve(sections(folders[1], server)) as after:
            answer = await (await after.greeted()).ask("tasks/result", {"taskId": made})
    assert answer.error["data"] == LOST
    assert len(server.heard("tools/call")) == 1
