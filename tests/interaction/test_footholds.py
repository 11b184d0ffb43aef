"""A call that is at its server when the gateway ends goes on after the next start, and is not made again.

Its server tells what it says in event streams that can be taken up again. The gateway that ends tells it nothing; one
that falls cannot.
"""

import asyncio
import json
import sqlite3
from base64 import urlsafe_b64decode
from contextlib import closing
from pathlib import Path

import pytest

from helpers.gateway.gateway import serve
from helpers.gateway.replicas import key_file
from helpers.host.host import Host
from helpers.server import LastingTool, ScriptedServer, note, progress_note
from helpers.stored_tasks import stored_tasks
from helpers.waiting import bounded, eventually
from interaction.falls import config_of, fallen, kept, left, tool, up_to
from interaction.questions import ACCEPTED, CAPABLE, capable
from interaction.test_restarts import DONE
from requirements import covers

__all__ = ["tool"]

QUESTION = {"jsonrpc": "2.0", "id": "q-1", "method": "elicitation/create"}
ASKED = {"mode": "form", "message": "Which?", "requestedSchema": {"type": "object", "properties": {}}}


async def test_a_gateway_that_ends_leaves_the_call_to_the_next_which_hears_it_to_its_end(
    server: ScriptedServer, tool: LastingTool, tmp_path: Path
) -> None:
    async with serve(config_of(server, tmp_path)) as gateway:
        host = await gateway.greeted()
        task = (await host.start("report", _meta={"progressToken": 7}))["taskId"]
        call = await tool.called()
        call.say(progress_note(call.token, 1))
        await kept(tmp_path, task, up_to("0.1"))
        await left(gateway)
    assert (server.cancelled, server.verbs("DELETE")) == ([], [])
    call.say(note("notifications/progress", progressToken=call.token, progress=2, message="half"))
    async with serve(config_of(server, tmp_path)) as gateway:
        host = gateway.again(host)
        async with bounded():
            while "half" not in (await host.task(task)).get("statusMessage", ""):
                await asyncio.sleep(0.005)
        waiting = asyncio.create_task(host.ask("tasks/result", {"taskId": task}))
        call.answer(DONE)
        async with bounded():
            assert (await waiting).result["content"] == DONE["content"]
        assert await gateway.count("taskgate_task_recoveries_total", outcome="retried") == 1
        # Nobody else is left in the session.
        await eventually(lambda: server.verbs("DELETE"))
    assert (tool.asked, len(tool.calls), len(server.heard("initialize"))) == (["0.1"], 1, 1)
    assert [each.headers["mcp-session-id"] for each in server.verbs("DELETE")] == [call.session]


async def test_what_a_gateway_that_fell_had_kept_goes_on(
    server: ScriptedServer, tool: LastingTool, tmp_path: Path
) -> None:
    task, call = await fallen(server, tool, tmp_path)
    call.answer(DONE)
    async with serve(config_of(server, tmp_path)) as gateway:
        host = await gateway.greeted()
        await host.until(task, "completed")
    assert len(tool.calls) == 1


@covers("T25")
async def test_no_session_and_no_event_of_a_server_can_be_read_in_the_file(
    server: ScriptedServer, tool: LastingTool, tmp_path: Path
) -> None:
    secret = {"auth": {"mode": "none", "context": {"key_file": str(key_file(tmp_path))}}}
    task, call = await fallen(server, tool, tmp_path, **secret)
    with closing(sqlite3.connect(tmp_path / "taskgate.db")) as file:
        ((head,),) = file.execute("SELECT head FROM tasks WHERE id = ?", (task,)).fetchall()
    sealed = urlsafe_b64decode(json.loads(head)[20][7][0])
    stored = b"".join(each.read_bytes() for each in tmp_path.rglob("taskgate.db*"))
    assert call.session.encode() not in sealed + stored
    assert b"0.1" not in sealed, "the event from which the call is resumed"
    call.answer(DONE)
    async with serve(config_of(server, tmp_path, **secret)) as gateway:
        await (await gateway.greeted()).until(task, "completed")
    assert len(tool.calls) == 1


# --- questions


@pytest.mark.parametrize("when", ["before", "between", "after"])
async def test_a_question_is_asked_once_and_its_answer_reaches_the_server_whoever_was_asked(
    server: ScriptedServer, tool: LastingTool, tmp_path: Path, when: str
) -> None:
    """`when` the server asks: while the first gateway runs, while none does, or under the second."""
    async with serve(config_of(server, tmp_path)) as gateway:
        host = await capable(gateway)
        task = (await host.start("report"))["taskId"]
        call = await tool.called()
        if when == "before":
            asking = asyncio.create_task(call.ask({**QUESTION, "params": ASKED}))
            await host.until(task, "input_required")
        await kept(tmp_path, task, up_to("0.1" if when == "before" else "0.0"))
        await left(gateway)
    if when == "between":
        asking = asyncio.create_task(call.ask({**QUESTION, "params": ASKED}))
    async with serve(config_of(server, tmp_path)) as gateway:
        host = gateway.again(host)
        if when == "after":
            await call.listened_to(2)
            asking = asyncio.create_task(call.ask({**QUESTION, "params": ASKED}))
        async with bounded(), host.asking("tasks/result", {"taskId": task}) as waiting:
            question = await waiting.until("elicitation/create")
            await host.respond(question["id"], ACCEPTED)
            assert (await asking)["result"] == ACCEPTED
            call.answer(DONE)
            assert (await waiting.result())["content"] == DONE["content"]
        assert len(waiting.of("elicitation/create")) == 1
    assert [each["id"] for each in server.replies] == ["q-1"]
    assert len(tool.calls) == 1


async def test_a_question_that_was_open_at_the_fall_keeps_its_input_key_and_is_not_doubled_by_a_replay(
    server: ScriptedServer, tool: LastingTool, tmp_path: Path
) -> None:
    """The place that was kept is before the question, so the server tells of it again."""
    config = config_of(server, tmp_path, tasks={"upgrade": [{"tool": "*", "mode": "always"}]})
    async with serve(config) as gateway:
        host = gateway.modern(capabilities=CAPABLE)
        task = (await host.start("report"))["taskId"]
        call = await tool.called()
        await kept(tmp_path, task, up_to("0.0"))
        asking = asyncio.create_task(call.ask({**QUESTION, "params": ASKED}))
        (key,) = (await host.until(task, "input_required"))["inputRequests"]
        record = await kept(tmp_path, task, lambda checkpoint: bool(checkpoint.asked))
        await left(gateway)
    assert record.checkpoint is not None
    assert [(of_server, of_host) for of_server, _, of_host in record.checkpoint.asked] == [('"q-1"', key)]
    async with serve(config) as gateway:
        host = Host(gateway.http, gateway.url(), capabilities=CAPABLE, era="modern")
        await call.listened_to(2)
        call.say(progress_note(call.token, 1))
        found = await host.task(task)
        assert list(found["inputRequests"]) == [key]
        await host.update(task, {key: ACCEPTED})
        async with bounded():
            await asking
        call.answer(DONE)
        await host.until(task, "completed")
    assert [each["id"] for each in server.replies] == ["q-1"]


async def test_an_answer_that_may_not_have_arrived_is_given_again(
    server: ScriptedServer, tool: LastingTool, tmp_path: Path
) -> None:
    async with serve(config_of(server, tmp_path)) as gateway:
        host = await capable(gateway)
        task = (await host.start("report"))["taskId"]
        call = await tool.called()
        call.say({**QUESTION, "params": ASKED})
        await kept(tmp_path, task, up_to("0.1"))
        async with bounded(), host.asking("tasks/result", {"taskId": task}) as waiting:
            question = await waiting.until("elicitation/create")
            await host.respond(question["id"], ACCEPTED)
            await server.reply_to("q-1")
        # The server has said nothing since, so nobody knows that it has it.
        assert stored_tasks(tmp_path)[task].answers
        await left(gateway)
    server.requests.clear()
    async with serve(config_of(server, tmp_path)) as gateway:
        host = gateway.again(host)
        async with bounded():
            assert (await server.reply_to("q-1"))["result"] == ACCEPTED
        assert (await host.task(task))["status"] == "working"
        call.say(progress_note(call.token, 1))
        await kept(tmp_path, task, lambda checkpoint: not checkpoint.asked)
        assert stored_tasks(tmp_path)[task].answers == {}
        call.answer(DONE)
        await host.until(task, "completed")


async def test_a_question_that_nobody_answers_has_its_time_again(
    server: ScriptedServer, tool: LastingTool, tmp_path: Path
) -> None:
    async with serve(config_of(server, tmp_path)) as gateway:
        host = await capable(gateway)
        task = (await host.start("report"))["taskId"]
        call = await tool.called()
        call.say({**QUESTION, "params": ASKED})
        await host.until(task, "input_required")
        await kept(tmp_path, task, up_to("0.1"))
        await left(gateway)
    soon = config_of(server, tmp_path, tasks={"input_required": {"max_wait": "1s"}})
    async with serve(soon) as gateway:
        host = gateway.again(host)
        async with bounded():
            assert (await server.reply_to("q-1"))["result"] == {"action": "cancel"}
        await host.until(task, "working")
        call.answer(DONE)
        await host.until(task, "completed")
