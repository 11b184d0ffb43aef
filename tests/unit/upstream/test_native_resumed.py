"""Tasks of servers whose session, or whose process here, is gone."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from helpers.recording_listener import RecordingListener
from helpers.server import ScriptedServer, event, open_stream
from helpers.server.legacy_tasks import LegacyTask, LegacyTasks
from helpers.upstream_calls import task_call
from helpers.waiting import eventually
from taskgate.domain.events import CallSucceeded
from taskgate.protocol.messages import Params
from taskgate.protocol.server_messages import Question
from taskgate.upstream.calls import Resumed, ResumePoint
from unit.upstream.asking import ACCEPTED, question
from unit.upstream.conftest import EVERYTHING, Caller, call_params
from unit.upstream.natively import DONE, end_of, failure_of, running, words_of


async def test_a_call_can_be_gone_on_with_from_the_moment_that_there_is_a_task(
    server: ScriptedServer, caller: Caller, tasks: LegacyTasks
) -> None:
    ear = RecordingListener()
    call = running(caller, ear=ear)
    task = await tasks.made()
    await eventually(lambda: ear.resume_points)
    assert ear.resume_points[-1] == ResumePoint("session-1", "2025-11-25", task.id, task.call)
    task.complete(DONE)
    await end_of(call)


async def test_a_task_is_followed_in_the_next_session_after_its_server_ended_one(
    server: ScriptedServer, caller: Caller, far: LegacyTasks
) -> None:
    ear = RecordingListener()
    call = running(caller, ear=ear)
    task = await far.made()
    await eventually(lambda: ear.resume_points)
    server.forget_sessions()
    # The server did answer, so there is nothing to be patient with.
    await eventually(lambda: len(ear.resume_points) == 2)
    assert ear.resume_points[-1] == ResumePoint("session-2", "2025-11-25", task.id, task.call)
    await server.streaming()
    await task.announce("working", "Still here")
    await eventually(lambda: words_of(ear) == ["Still here"])
    task.complete(DONE)
    await task.announce("completed")
    assert isinstance(await end_of(call), CallSucceeded)
    assert len(server.heard("tools/call")) == 1


def resume_point(task: str | None, **more: Any) -> ResumePoint:
    """Where the first call of a first session is."""
    return ResumePoint(**{"session": "session-1", "revision": "2025-11-25", "task": task, "request": 5} | more)


def goes_on(caller: Caller, ear: RecordingListener, resumed: Resumed) -> "asyncio.Task[Any]":
    """A call of another process, gone on with."""

    async def call() -> Any:
        params, within = call_params("research").head, timedelta(seconds=60)
        return caller.session.outcome(
            await caller.session.call(
                task_call("research", params, within, resumes=resumed),
                ear,
            )
        )

    return asyncio.create_task(call())


async def gone(caller: Caller, call: "asyncio.Task[Any]") -> None:
    """Its process is gone, which was no secret to it."""
    call.cancel()
    await asyncio.wait((call,))
    await caller.close()


async def test_a_task_that_another_process_made_is_gone_on_with(
    server: ScriptedServer, asked: Caller, tasks: LegacyTasks, new_caller_of: Any
) -> None:
    first = new_caller_of(server.url, host=EVERYTHING)
    ear = RecordingListener(leaves=True)
    call = running(first, ear=ear)
    task = await tasks.made()
    task.ask(question("q", message="Word?"))
    await eventually(lambda: ear.questions)
    await gone(first, call)
    heard = RecordingListener()
    word = Question("elicitation/create", Params('{"message":"Word?"}'))
    call = goes_on(asked, heard, Resumed(resume_point(task.id), {'"q"': word}))
    await eventually(lambda: heard.questions)
    assert heard.questions[0].key == '"q"'
    heard.questions[0].answer(ACCEPTED)
    assert (await server.reply_to("q"))["result"] == {"action": "accept"}
    task.move("working", "Reading")
    await eventually(lambda: words_of(heard)[-1:] == ["Reading"])
    task.complete(DONE)
    assert isinstance(await end_of(call), CallSucceeded)
    assert (len(server.heard("tools/call")), len(server.heard("initialize"))) == (1, 1)
    assert heard.resume_points[-1] == ResumePoint("session-1", "2025-11-25", task.id, 5)


async def test_a_task_that_outlived_its_session_is_gone_on_with_in_another(
    server: ScriptedServer, caller: Caller, tasks: LegacyTasks, new_caller_of: Any
) -> None:
    first, ear = new_caller_of(server.url), RecordingListener(leaves=True)
    call = running(first, ear=ear)
    task = await tasks.made()
    await eventually(lambda: ear.resume_points)
    await gone(first, call)
    server.forget_sessions()
    heard = RecordingListener()
    call = goes_on(caller, heard, Resumed(ear.resume_points[-1], {}))
    await eventually(lambda: heard.resume_points and heard.resume_points[-1].session == "session-2")
    task.complete(DONE)
    assert isinstance(await end_of(call), CallSucceeded)
    assert len(server.heard("tools/call")) == 1


@pytest.mark.parametrize("session", ["session-1", "session-7", None])
async def test_a_task_that_its_server_does_not_know_any_more_cannot_be_gone_on_with(
    server: ScriptedServer, caller: Caller, tasks: LegacyTasks, session: str | None
) -> None:
    server.live.add("session-1")
    server.sessions = session is not None
    failure = await failure_of(
        goes_on(caller, RecordingListener(), Resumed(resume_point("unknown", session=session), {}))
    )
    assert (failure.reason, failure.dispatched) == ("call_lost", True)
    assert server.heard("tools/call") == []


async def test_a_call_that_was_left_before_there_was_a_task_is_followed_once_there_is(
    server: ScriptedServer, caller: Caller, tasks: LegacyTasks
) -> None:
    server.live.add("session-1")
    handle = {"task": {"taskId": "theirs-0001", "status": "working", "pollInterval": 100}}

    async def goes_on_from(request: Any) -> Any:
        assert request.headers["Last-Event-ID"] == "e-1"
        response = await open_stream(request)
        await response.write(event({"jsonrpc": "2.0", "id": 5, "result": handle}))
        await response.write_eof()
        return response

    server.resume = goes_on_from
    tasks.all.append(task := LegacyTask(server, "theirs-0001", {}, 5, 100))
    ear = RecordingListener()
    call = goes_on(caller, ear, Resumed(resume_point(None, event="e-1"), {}))
    await eventually(lambda: ear.resume_points)
    assert ear.resume_points[-1] == resume_point("theirs-0001")
    task.complete(DONE)
    assert isinstance(await end_of(call), CallSucceeded)
    assert server.heard("tools/call") == []
