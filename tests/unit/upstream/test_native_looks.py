"""A task that a server made of a call is looked at, and what it says of itself is told."""

import json

import pytest

from helpers.recording_listener import RecordingListener
from helpers.server import Hold, ScriptedServer
from helpers.server.legacy_tasks import LegacyTasks
from helpers.waiting import bounded, eventually
from requirements import covers
from taskgate.domain.events import CallSucceeded
from unit.upstream.conftest import Caller
from unit.upstream.natively import DONE, end_of, relayed, running, words_of


@covers("L-GET-4")
@pytest.mark.parametrize(("poll", "least"), [(150, 0.15), (1, 0.1)])
async def test_a_task_is_looked_at_no_sooner_than_its_server_wants(
    caller: Caller, tasks: LegacyTasks, poll: int, least: float
) -> None:
    tasks.poll = poll
    call = running(caller)
    task = await tasks.made()
    await eventually(lambda: len(task.looked) == 4)
    task.complete(DONE)
    assert isinstance(await end_of(call), CallSucceeded)
    # From the first look on: there is none to keep a distance from before it.
    pauses = [later - sooner for sooner, later in zip(task.looked, task.looked[1:], strict=False)]
    assert all(pause >= least * 0.99 for pause in pauses)
    assert tasks.looks("tasks/result") == 1


@covers("L-NOTIF-1")
async def test_what_a_server_tells_of_a_task_is_not_waited_for(
    server: ScriptedServer, caller: Caller, far: LegacyTasks
) -> None:
    call = running(caller)
    task = await far.made()
    await server.streaming()
    await eventually(lambda: task.looked)
    task.outcome = {"result": DONE}
    await task.announce("completed")
    assert isinstance(await end_of(call), CallSucceeded)
    assert far.looks() == 1


async def test_what_is_told_of_other_tasks_and_after_the_end_means_nothing(
    server: ScriptedServer, caller: Caller, far: LegacyTasks
) -> None:
    hold, ears = Hold(), [RecordingListener(), RecordingListener()]
    far.instead["tasks/result"] = [hold]
    calls = [running(caller, ear=ear) for ear in ears]
    tasks = [await far.made(), await far.made(2)]
    await server.streaming()
    await eventually(lambda: all(ear.resume_points for ear in ears))
    first, second = (far.all[[task.id for task in tasks].index(ear.resume_points[0].task or "")] for ear in ears)
    await first.announce("completed")
    async with bounded():
        await hold.begun.wait()
    await first.announce("working", "Late")
    await second.announce("working", "On")
    await eventually(lambda: words_of(ears[1]) == ["On"])
    hold.release(DONE)
    assert isinstance(await end_of(calls[0]), CallSucceeded)
    assert words_of(ears[0]) == []
    assert not calls[1].done()
    second.outcome = {"result": DONE}
    await second.announce("completed")
    await end_of(calls[1])


@covers("L-PROG-2")
async def test_what_a_task_says_of_itself_is_told_as_progress_and_comes_no_further_than_numbers(
    server: ScriptedServer, caller: Caller, far: LegacyTasks
) -> None:
    ear = RecordingListener()
    call = running(caller, ear=ear)
    task = await far.made()
    await server.streaming()
    await eventually(lambda: ear.resume_points)
    for message in ("Gathering", "Gathering", "Reading"):
        await task.announce("working", message)
    await eventually(lambda: len(ear.notifications) == 2)
    note = {"progressToken": task.call, "progress": 3, "total": 4, "message": "Page 3"}
    await server.push({"jsonrpc": "2.0", "method": "notifications/progress", "params": note})
    await task.announce("working", "Writing")
    await eventually(lambda: len(ear.notifications) == 4)
    assert words_of(ear) == ["Gathering", "Reading", "3/4: Page 3", "3: Writing"]
    done = [on_notification.params["progress"].value for on_notification in ear.notifications]
    assert done == sorted(set(done))
    task.outcome = {"result": DONE}
    await task.announce("completed")
    await end_of(call)


@pytest.mark.parametrize("progress", [True, False])
async def test_what_a_task_says_of_itself_is_told_to_hosts_that_want_to_know(
    caller: Caller, tasks: LegacyTasks, progress: bool
) -> None:
    ear = RecordingListener()
    call = relayed(caller, progress=progress, ear=ear)
    task = await tasks.made()
    task.move("working", "Gathering")
    await eventually(lambda: len(task.looked) > 1)
    task.complete(DONE)
    await end_of(call)
    assert words_of(ear) == (["Gathering"] if progress else [])


@covers("L-RES-2", "L-RES-3")
async def test_what_came_of_a_task_is_the_calls_own_answer(caller: Caller, tasks: LegacyTasks) -> None:
    call = relayed(caller)
    task = await tasks.made()
    task.complete(DONE | {"_meta": {"a": 1}})
    came = await end_of(call)
    assert json.loads(came.text)["result"] == DONE | {"_meta": {"a": 1}}
    call = relayed(caller)
    task = await tasks.made(2)
    task.fail("It broke", {"error": {"code": -32042, "message": "Sign in", "data": {"a": 1}}})
    came = await end_of(call)
    assert json.loads(came.text)["error"] == {"code": -32042, "message": "Sign in", "data": {"a": 1}}
    call = running(caller)
    (await tasks.made(3)).fail("boom")
    failed = await end_of(call)
    assert isinstance(failed, CallSucceeded)
    assert (failed.tool_error, failed.message) == (True, "boom")
    assert tasks.cancelled == []
