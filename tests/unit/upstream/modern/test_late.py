"""Calls that are given up before their server has answered, and may have been made a task just then."""

import asyncio
from typing import Any

import pytest

from helpers.recording_listener import RecordingListener
from helpers.server import Hold, ScriptedServer, raw, result
from helpers.server.modern_tasks import ModernTasks, TaskTool
from helpers.waiting import bounded
from requirements import covers
from taskgate.upstream.legacy.connection import SIGN_OF_LIFE
from unit.upstream.houses import Guest
from unit.upstream.modern.asking import failure_of
from unit.upstream.modern.natives import Following, natives, slow

__all__ = ["natives", "slow"]


@covers("M-CANCEL-3")
async def test_the_task_of_a_call_that_was_cancelled_before_it_was_known_is_ended(
    server: ScriptedServer, guest: Guest, slow: TaskTool
) -> None:
    slow.handles.clear()
    async with Following(guest, slow) as following:
        following.call.cancel()
        await asyncio.wait((following.call,))
        slow.handles.set()
        await following.task.cancelled()
    assert following.task.cancels == 1
    assert following.ear.resume_points == []
    assert server.faults == []


async def test_the_task_of_a_call_whose_time_was_over_before_it_was_known_is_ended(
    guest: Guest, slow: TaskTool
) -> None:
    slow.handles.clear()
    async with Following(guest, slow, within=0.1) as following:
        assert await failure_of(following.call) == ("timeout", True)
        slow.handles.set()
        await following.task.cancelled()


async def test_a_session_that_ends_waits_a_moment_for_a_task_that_is_not_known_yet(
    guest: Guest, slow: TaskTool
) -> None:
    slow.handles.clear()
    async with Following(guest, slow) as following:
        closing = asyncio.create_task(guest.session.close())
        assert await failure_of(following.call) == ("closed", True)
        slow.handles.set()
        async with bounded():
            await closing
        assert following.task.cancels == 1


@covers("H-MOD-10")
@pytest.mark.parametrize("how", ["a cancel", "the end of the session"])
async def test_a_server_that_does_not_answer_is_left_soon(
    server: ScriptedServer, guest: Guest, natives: ModernTasks, how: str
) -> None:
    server.script["holds"] = hold = Hold()
    call = asyncio.create_task(guest.run("holds"))
    async with bounded():
        await hold.begun.wait()
        call.cancel()
        await (hold.left.wait() if how == "a cancel" else guest.session.close())
        await hold.left.wait()
    assert server.heard("tasks/cancel") == []


async def test_a_call_that_somebody_else_has_now_is_left_at_once(
    server: ScriptedServer, guest: Guest, natives: ModernTasks
) -> None:
    server.script["holds"] = hold = Hold()
    call = asyncio.create_task(guest.run("holds", ear=RecordingListener(leaves=True)))
    async with bounded(SIGN_OF_LIFE.total_seconds()):
        await hold.begun.wait()
        call.cancel()
        await hold.left.wait()


@pytest.mark.parametrize("reply", [result({"content": []}), raw(b"{"), result({"resultType": "task", "taskId": ""})])
async def test_what_comes_too_late_and_is_no_task_is_nothing(
    server: ScriptedServer, guest: Guest, natives: ModernTasks, reply: Any
) -> None:
    begun, goes_on = asyncio.Event(), asyncio.Event()

    async def late_reply(turn: Any) -> Any:
        begun.set()
        await goes_on.wait()
        return await reply(turn)

    server.script["late"] = late_reply
    call = asyncio.create_task(guest.run("late"))
    async with bounded():
        await begun.wait()
    call.cancel()
    await asyncio.wait((call,))
    goes_on.set()
    async with bounded():
        await guest.session.close()
    assert server.heard("tasks/cancel") == []


async def test_a_task_that_was_over_when_it_was_made_is_not_ended(
    server: ScriptedServer, guest: Guest, natives: ModernTasks
) -> None:
    quick = natives.tool("slow", status="completed")
    quick.handles.clear()
    async with Following(guest, quick) as following:
        following.call.cancel()
        await asyncio.wait((following.call,))
        quick.handles.set()
        async with bounded():
            await guest.session.close()
    assert server.heard("tasks/cancel") == []
