"""Tasks of servers that end otherwise: given up, too late, forgotten, or at a server that does not answer."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from helpers.recording_listener import RecordingListener
from helpers.server import Hold, ScriptedServer, Turn, error, event, note, open_stream, raw, resets, result, status
from helpers.server.legacy_tasks import LegacyTasks
from helpers.waiting import bounded, eventually
from requirements import covers
from taskgate.domain.events import CallSucceeded
from taskgate.upstream.legacy.background_posts import PAUSES
from taskgate.upstream.pauses import DEAF_FOR, POLL_PAUSE_MOST
from unit.upstream.asking import ACCEPTED, question
from unit.upstream.conftest import EVERYTHING, Caller
from unit.upstream.natively import DONE, end_of, failure_of, running

BIG = b'{"jsonrpc":"2.0","id":1,"result":{"content":"' + b"x" * 70_000 + b'"}}'


@covers("L-CANCEL-4")
async def test_a_call_that_is_given_up_is_cancelled_by_the_name_of_its_task(
    server: ScriptedServer, caller: Caller, tasks: LegacyTasks
) -> None:
    call = running(caller)
    task = await tasks.made()
    await eventually(tasks.looks)
    call.cancel()
    await asyncio.wait((call,))
    await eventually(lambda: tasks.cancelled == ["theirs-0001"])
    # A look may be under way, and is cancelled as any request.
    assert task.call not in server.cancelled


async def test_a_cancel_that_its_server_does_not_take_for_now_is_sent_again(caller: Caller, tasks: LegacyTasks) -> None:
    tasks.instead["tasks/cancel"] = [status(503), resets()]
    call = running(caller)
    await tasks.made()
    await eventually(tasks.looks)
    call.cancel()
    await asyncio.sleep(sum(PAUSES[:2]))
    await eventually(lambda: tasks.cancelled == ["theirs-0001"])


async def test_a_call_that_is_given_up_while_it_is_asked_for_is_cancelled_once_there_is_a_task(
    server: ScriptedServer, asked: Caller, tasks: LegacyTasks
) -> None:
    was_given_up, begun, ear = asyncio.Event(), asyncio.Event(), RecordingListener()

    async def late(turn: Turn) -> Any:
        response = await open_stream(turn.request)
        begun.set()
        await was_given_up.wait()
        await response.write(event(note("notifications/message", level="info", data="late")))
        await response.write(event(turn.answer({"task": {"taskId": "late", "status": "working"}})))
        await response.write_eof()
        return response

    tasks.instead["tools/call"] = [late]
    call = running(asked, ear=ear)
    async with bounded():
        await begun.wait()
    await server.streaming()
    await server.push(question("q"))
    await eventually(lambda: ear.questions)
    call.cancel()
    await asyncio.wait((call,))
    was_given_up.set()
    await eventually(lambda: tasks.looks("tasks/cancel") == 1)
    assert (ear.resume_points, ear.notifications) == ([], [])
    assert (await server.reply_to("q"))["result"] == {"action": "cancel"}


async def test_a_session_that_ends_waits_a_moment_for_a_task_that_is_not_known_yet(
    caller: Caller, tasks: LegacyTasks
) -> None:
    tasks.handles.clear()
    call = running(caller)
    await tasks.made()
    closing = asyncio.create_task(caller.close())
    tasks.handles.set()
    async with bounded():
        await closing
    failure = await failure_of(call)
    assert (failure.reason, failure.dispatched) == ("closed", True)
    assert tasks.cancelled == ["theirs-0001"]


async def test_a_session_that_ends_leaves_a_task_that_is_not_known_yet_to_whoever_goes_on_with_the_call(
    caller: Caller, tasks: LegacyTasks
) -> None:
    tasks.handles.clear()
    call = running(caller, ear=RecordingListener(leaves=True))
    await tasks.made()
    closing = asyncio.create_task(caller.close())
    tasks.handles.set()
    async with bounded():
        await closing
    await failure_of(call)
    assert tasks.cancelled == []


@pytest.mark.parametrize("reply", [{"content": []}, {"task": {}}, None])
async def test_a_call_that_is_given_up_while_it_is_asked_for_may_come_to_something_else(
    caller: Caller, tasks: LegacyTasks, reply: Any
) -> None:
    hold = Hold()
    tasks.instead["tools/call"] = [hold]
    call = running(caller)
    async with bounded():
        await hold.begun.wait()
    call.cancel()
    await asyncio.wait((call,))
    if reply is not None:
        hold.release(reply)
    await caller.close()
    assert tasks.looks("tasks/cancel") == 0


async def test_a_call_that_is_given_up_before_it_left_does_not_leave(
    server: ScriptedServer, caller: Caller, tasks: LegacyTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    await caller.session.open()
    natives, begun, ends = caller.session.era_session._server_tasks, asyncio.Event(), asyncio.Event()  # type: ignore[attr-defined]
    reach = natives._reach

    async def slowly(*_: Any, **__: Any) -> Any:
        begun.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ends.set()

    await caller.session.tools()
    monkeypatch.setattr(natives, "_reach", reach._replace(ask=slowly))
    call = running(caller)
    async with bounded():
        await begun.wait()
        call.cancel()
        await ends.wait()
    await asyncio.wait((call,))
    assert server.heard("tools/call") == []


@covers("V-INIT-9")
async def test_a_task_that_takes_too_long_is_cancelled(
    new_caller_of: Any, server: ScriptedServer, far: LegacyTasks
) -> None:
    caller = new_caller_of(server.url, call=timedelta(seconds=0.3))
    failure = await failure_of(running(caller))
    assert (failure.reason, failure.dispatched) == ("timeout", True)
    await eventually(lambda: far.cancelled == ["theirs-0001"])


@covers("V-INIT-9")
async def test_a_task_that_moves_or_waits_for_its_host_has_more_time(
    new_caller_of: Any, server: ScriptedServer, tasks: LegacyTasks
) -> None:
    caller, ear = new_caller_of(server.url, host=EVERYTHING, call=timedelta(seconds=0.6)), RecordingListener()
    loop = asyncio.get_running_loop()
    began, call = loop.time(), running(caller, ear=ear)
    task = await tasks.made()
    while loop.time() - began < 1:
        count = len(task.looked)
        task.move("working", f"step {count}")
        await eventually(lambda: len(task.looked) > count)  # noqa: B023  it is awaited at once
    task.ask(question("q"))
    await eventually(lambda: ear.questions)
    later = len(task.looked) + 8
    await eventually(lambda: len(task.looked) > later)
    assert not call.done()
    ear.questions[0].answer(ACCEPTED)
    task.complete(DONE)
    assert isinstance(await end_of(call), CallSucceeded)


async def test_a_task_that_is_left_for_somebody_else_is_neither_cancelled_nor_is_its_session_ended(
    server: ScriptedServer, caller: Caller, tasks: LegacyTasks
) -> None:
    ear = RecordingListener(leaves=True)
    call = running(caller, ear=ear)
    task = await tasks.made()
    task.move("input_required")
    await eventually(lambda: task.waiting)
    call.cancel()
    await asyncio.wait((call,))
    await caller.close()
    assert tasks.cancelled == []
    assert server.verbs("DELETE") == []


async def test_the_end_of_a_session_ends_its_tasks(server: ScriptedServer, caller: Caller, tasks: LegacyTasks) -> None:
    call = running(caller)
    task = await tasks.made()
    task.move("input_required")
    await eventually(lambda: task.waiting)
    await caller.close()
    failure = await failure_of(call)
    assert (failure.reason, failure.dispatched) == ("closed", True)
    assert tasks.cancelled == ["theirs-0001"]
    assert len(server.verbs("DELETE")) == 1


async def test_a_task_that_its_server_forgot_has_an_unknown_end(caller: Caller, tasks: LegacyTasks) -> None:
    call = running(caller)
    await tasks.made()
    tasks.all.clear()
    failure = await failure_of(call)
    assert (failure.reason, failure.dispatched) == ("call_lost", True)
    assert "may or may not have completed" in str(failure)
    assert tasks.looks("tasks/cancel") == 0


async def test_a_task_that_its_server_cancelled_has_failed(caller: Caller, tasks: LegacyTasks) -> None:
    call = running(caller)
    (await tasks.made()).move("cancelled")
    failure = await failure_of(call)
    assert (failure.reason, failure.dispatched) == ("closed", True)
    assert tasks.looks("tasks/cancel") == 0


@pytest.mark.parametrize("reply", [status(503), resets(), error(-32603, "Busy"), status(429), status(405)])
async def test_a_look_that_fails_for_now_is_made_again(caller: Caller, tasks: LegacyTasks, reply: Any) -> None:
    tasks.instead["tasks/get"] = [reply]
    call = running(caller)
    await eventually(lambda: tasks.looks() == 2)
    tasks.all[0].complete(DONE)
    assert isinstance(await end_of(call), CallSucceeded)
    assert tasks.looks("tools/call") == 1


async def test_a_result_that_is_not_told_for_now_is_asked_for_again(caller: Caller, tasks: LegacyTasks) -> None:
    tasks.instead["tasks/result"] = [error(-32603, "Busy")]
    call = running(caller)
    (await tasks.made()).complete(DONE)
    assert isinstance(await end_of(call), CallSucceeded)
    assert tasks.looks("tasks/result") == 2


@pytest.mark.parametrize(
    ("method", "reply", "reason"),
    [
        ("tasks/get", result({"status": 7}), "malformed"),
        ("tasks/result", raw(BIG), "too_large"),
    ],
)
async def test_what_would_fail_again_fails_at_once(
    caller: Caller, tasks: LegacyTasks, method: str, reply: Any, reason: str
) -> None:
    tasks.instead[method] = [reply]
    call = running(caller)
    (await tasks.made()).move("input_required")
    failure = await failure_of(call)
    assert (failure.reason, failure.dispatched) == (reason, True)
    await eventually(lambda: tasks.cancelled == ["theirs-0001"])


async def test_a_server_that_is_deaf_for_too_long_is_given_up(
    new_caller_of: Any, server: ScriptedServer, tasks: LegacyTasks
) -> None:
    loop, long = asyncio.get_running_loop(), 2 * DEAF_FOR
    server.methods["tasks/get"] = status(503)
    caller = new_caller_of(server.url, call=timedelta(seconds=long))
    began = loop.time()
    failure = await failure_of(running(caller, within=long), long)
    assert (failure.reason, failure.dispatched) == ("refused", True)
    assert DEAF_FOR <= loop.time() - began < DEAF_FOR + 2 * POLL_PAUSE_MOST
    await eventually(lambda: tasks.cancelled == ["theirs-0001"])
