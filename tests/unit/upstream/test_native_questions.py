"""What a server asks for a task of its own, and the result that is waited for meanwhile."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest

from helpers.recording_listener import RecordingListener
from helpers.server import Hold, ScriptedServer, Turn, breaks_off, error, note, result, status
from helpers.server.legacy_tasks import RELATED, LegacyTask, LegacyTasks
from helpers.waiting import bounded, eventually
from requirements import covers
from taskgate.domain.events import CallSucceeded
from taskgate.errors import UpstreamFailed
from taskgate.upstream.calls import ResumePoint
from unit.upstream.asking import ACCEPTED, question
from unit.upstream.conftest import EVERYTHING, Caller
from unit.upstream.natively import DONE, end_of, running


@covers("L-INPUT-3", "L-INPUT-4")
async def test_a_server_asks_on_the_stream_of_the_result_and_is_answered(
    server: ScriptedServer, asked: Caller, tasks: LegacyTasks
) -> None:
    ear = RecordingListener()
    call = running(asked, ear=ear)
    task = await tasks.made()
    for number, id_ in enumerate(("q-1", 7), 1):
        task.ask(question(id_, message=f"Word {number}?", _meta={RELATED: {"taskId": task.id}}))
        await eventually(lambda: len(ear.questions) == number)  # noqa: B023  it is awaited at once
        assert ear.questions[-1].key == json.dumps(id_)
        assert ear.questions[-1].question.params is not None
        assert task.id not in ear.questions[-1].question.params.head
        ear.questions[-1].answer(ACCEPTED)
        assert (await server.reply_to(id_))["result"] == {"action": "accept"}
        task.move("working")
    task.complete(DONE)
    assert isinstance(await end_of(call), CallSucceeded)
    assert tasks.looks("tasks/result") == 1


@covers("U-HTTP-3")
async def test_a_question_beside_any_call_is_for_the_task_that_it_names(
    server: ScriptedServer, asked: Caller, far: LegacyTasks
) -> None:
    ears = [RecordingListener(), RecordingListener()]
    calls = [running(asked, ear=ears[0]), running(asked, ear=ears[1])]
    tasks = [await far.made(), await far.made(2)]
    mine = next(ear for ear, call in zip(ears, calls, strict=True) if call)
    await server.streaming()
    await eventually(lambda: all(ear.resume_points for ear in ears))
    named = {ear.resume_points[0].task: ear for ear in ears}
    for task in tasks:
        await server.push(question(f"of {task.id}", _meta={RELATED: {"taskId": task.id}}))
        mine = named[task.id]
        await eventually(lambda: len(mine.questions) == 1)  # noqa: B023  it is awaited at once
    await server.push(question("of none"), question("of another", _meta={RELATED: {"taskId": "unknown"}}))
    await eventually(lambda: len(asked.heard.of_session.questions) == 2)
    for task in tasks:
        task.outcome = {"result": DONE}
        await task.announce("completed")
    await asyncio.gather(*map(end_of, calls))
    assert not any(ear.questions[0].is_open for ear in ears)


async def test_a_question_that_names_nothing_is_for_the_only_call_that_is_followed(
    server: ScriptedServer, asked: Caller, far: LegacyTasks
) -> None:
    ear = RecordingListener()
    call = running(asked, ear=ear)
    task = await far.made()
    await server.streaming()
    await eventually(lambda: ear.resume_points)
    await server.push(question("q"))
    await eventually(lambda: ear.questions)
    task.outcome = {"result": DONE}
    await task.announce("completed")
    await end_of(call)


async def test_a_server_that_lets_nobody_wait_for_a_result_is_asked_again_and_again(
    caller: Caller, tasks: LegacyTasks
) -> None:
    tasks.instead["tasks/result"] = [error(-32602, "It has not ended"), error(-32603, "Nor now")]
    call = running(caller)
    task = await tasks.made()
    task.move("input_required")
    await eventually(lambda: tasks.looks("tasks/result") == 3)
    task.complete(DONE)
    assert isinstance(await end_of(call), CallSucceeded)


async def test_a_result_whose_stream_breaks_off_is_waited_for_on_another(caller: Caller, tasks: LegacyTasks) -> None:
    tasks.instead["tasks/result"] = [breaks_off(), status(502)]
    call = running(caller)
    task = await tasks.made()
    task.complete(DONE)
    assert isinstance(await end_of(call), CallSucceeded)
    assert tasks.looks("tasks/result") == 3


async def test_a_task_that_fails_while_its_result_is_waited_for_is_looked_at_once_more(
    caller: Caller, far: LegacyTasks
) -> None:
    call = running(caller)
    task = await far.made()
    task.move("input_required")
    await eventually(lambda: task.waiting)
    task.fail("boom")
    failed = await end_of(call)
    assert (failed.tool_error, failed.message) == (True, "boom")
    assert far.looks("tasks/result") == 1


async def test_what_comes_on_the_stream_of_a_result_is_its_calls_whatever_else_is_followed(
    server: ScriptedServer, asked: Caller, tasks: LegacyTasks
) -> None:
    ears = [RecordingListener(), RecordingListener()]
    calls = [running(asked, ear=ear) for ear in ears]
    for task in (await tasks.made(), await tasks.made(2)):
        task.ask(question(f"of {task.id}"))
        task.questions.append(note("notifications/message", level="info", data=task.id))
    await eventually(lambda: all(ear.questions and ear.notifications for ear in ears))
    assert asked.heard.of_session.questions == []
    for ear in ears:
        (resume_point,) = ear.resume_points
        assert ear.questions[0].key == f'"of {resume_point.task}"'
        assert [
            on_notification.params["data"].value
            for on_notification in ear.notifications
            if "data" in on_notification.params
        ] == [resume_point.task]
    for task in tasks.all:
        task.complete(DONE)
    await asyncio.gather(*map(end_of, calls))


async def test_a_server_may_be_silent_until_there_is_a_result(
    new_caller_of: Any, server: ScriptedServer, tasks: LegacyTasks
) -> None:
    caller, hold = new_caller_of(server.url, first_byte=timedelta(seconds=0.3)), Hold()
    tasks.instead["tasks/result"] = [hold]
    call = running(caller)
    task = await tasks.made()
    task.move("input_required")
    async with bounded():
        await hold.begun.wait()
    later = len(task.looked) + 6
    await eventually(lambda: len(task.looked) > later)
    hold.release(DONE)
    assert isinstance(await end_of(call), CallSucceeded)
    assert tasks.looks("tasks/result") == 1


@pytest.mark.parametrize("names", [True, False])
async def test_what_is_asked_before_there_is_a_handle_is_asked_for_the_task(
    new_caller_of: Any, server: ScriptedServer, tasks: LegacyTasks, names: bool
) -> None:
    hold, ear, asked = (
        Hold(),
        RecordingListener(),
        new_caller_of(server.url, host=EVERYTHING, call=timedelta(seconds=0.5)),
    )
    tasks.instead["tools/call"] = [hold]
    tasks.all.append(task := LegacyTask(server, "theirs-0001", {}, None, 100))
    call = running(asked, ear=ear)
    async with bounded():
        await hold.begun.wait()
    await server.streaming()
    await server.push(question("q", **({"_meta": {RELATED: {"taskId": task.id}}} if names else {})))
    await eventually(lambda: ear.questions)
    hold.release({"task": task.shown()})
    # Its host's time is not the server's, however long that is.
    await eventually(lambda: len(task.looked) > 8)
    assert ear.questions[0].is_open
    ear.questions[0].answer(ACCEPTED)
    assert (await server.reply_to("q"))["result"] == {"action": "accept"}
    task.outcome = {"result": DONE}
    await task.announce("completed")
    assert isinstance(await end_of(call), CallSucceeded)
    assert len([reply for reply in server.replies if reply["id"] == "q"]) == 1


@pytest.mark.parametrize("reply", [result({"content": []}), result({"task": {"taskId": ""}}), status(500)])
async def test_what_was_asked_before_it_turned_out_that_there_is_no_task_ends_with_the_call(
    server: ScriptedServer, asked: Caller, tasks: LegacyTasks, reply: Any
) -> None:
    hold, ear = Hold(), RecordingListener()

    async def late(turn: Turn) -> Any:
        await hold(turn)
        return await reply(turn)

    tasks.instead["tools/call"] = [late]
    call = running(asked, ear=ear)
    async with bounded():
        await hold.begun.wait()
    await server.streaming()
    await server.push(question("q"))
    await eventually(lambda: ear.questions)
    hold.release(None)
    await asyncio.wait((call,))
    assert call.exception() is None or isinstance(call.exception(), UpstreamFailed)
    assert not ear.questions[0].is_open
    assert (await server.reply_to("q"))["result"] == {"action": "cancel"}


async def test_whoever_goes_on_with_the_call_is_told_when_an_answer_has_arrived(
    server: ScriptedServer, asked: Caller, tasks: LegacyTasks
) -> None:
    arrived: list[int] = []

    class Noting(RecordingListener):
        """Notes how many answers there were when it heard of a foothold."""

        def on_checkpoint(self, resume_point: ResumePoint) -> None:
            super().on_checkpoint(resume_point)
            arrived.append(len(server.replies))

    ear = Noting()
    call = running(asked, ear=ear)
    task = await tasks.made()
    task.ask(question("q"))
    await eventually(lambda: ear.questions)
    ear.questions[0].answer(ACCEPTED)
    await server.reply_to("q")
    await eventually(lambda: len(ear.resume_points) == 2)
    assert (ear.resume_points[0] == ear.resume_points[1], arrived) == (True, [0, 1])
    task.complete(DONE)
    await end_of(call)
