"""Tasks of a server that nobody waits for any more: cancelled there, unless somebody else goes on with them."""

import asyncio
from typing import Any

import pytest

from helpers.server import ScriptedServer, raw, status
from helpers.server.modern_tasks import ModernTasks, TaskTool
from helpers.waiting import bounded, eventually
from requirements import covers
from taskgate.upstream.legacy.connection import SIGN_OF_LIFE
from taskgate.upstream.modern.server_tasks import PAUSES
from unit.upstream.houses import Guest
from unit.upstream.modern.asking import failure_of
from unit.upstream.modern.natives import DONE, Following, left, natives, slow

__all__ = ["natives", "slow"]


@covers("H-MOD-10", "M-CANCEL-3")
async def test_a_call_that_is_cancelled_cancels_its_task(server: ScriptedServer, guest: Guest, slow: TaskTool) -> None:
    async with Following(guest, slow) as following:
        await following.task.looked()
        following.call.cancel()
        await following.task.cancelled()
    assert server.faults == []
    assert following.task.cancels == 1
    await eventually(lambda: ("tasks/cancel", None) in guest.heard.answered)


async def test_a_call_that_somebody_else_goes_on_with_cancels_nothing(
    server: ScriptedServer, guest: Guest, slow: TaskTool
) -> None:
    await left(guest, slow)
    await guest.session.close()
    assert server.heard("tasks/cancel") == []


@pytest.mark.parametrize("end", ["completed", "failed", "cancelled", "lost"])
async def test_a_task_that_is_over_is_not_cancelled(
    server: ScriptedServer, guest: Guest, slow: TaskTool, natives: ModernTasks, end: str
) -> None:
    async with Following(guest, slow) as following:
        following.task.complete(DONE)
        if end == "failed":
            following.task.fail(-1, "no")
        elif end == "cancelled":
            following.task.status = "cancelled"
        elif end == "lost":
            natives.forget()
        async with bounded():
            await asyncio.wait((following.call,))
    await guest.session.close()
    assert server.heard("tasks/cancel") == []


async def test_a_call_that_takes_too_long_cancels_its_task(guest: Guest, slow: TaskTool) -> None:
    async with Following(guest, slow, within=0.2) as following:
        assert await failure_of(following.call) == ("timeout", True)
        await following.task.cancelled()


async def test_a_session_that_ends_has_cancelled_the_tasks_of_its_calls(guest: Guest, slow: TaskTool) -> None:
    async with Following(guest, slow) as following:
        await following.task.looked()
        async with bounded():
            await guest.session.close()
        assert following.task.cancels == 1
        assert await failure_of(following.call) == ("closed", True)


async def test_a_session_that_ends_does_not_wait_long_for_a_server(
    server: ScriptedServer, guest: Guest, slow: TaskTool
) -> None:
    server.methods["tasks/cancel"] = status(503)
    async with Following(guest, slow) as following:
        await following.task.looked()
        async with bounded(2 * SIGN_OF_LIFE.total_seconds()):
            await guest.session.close()
    assert following.task.cancels == 0


async def test_a_cancel_that_does_not_arrive_is_tried_again(
    server: ScriptedServer, guest: Guest, slow: TaskTool
) -> None:
    end, server.methods["tasks/cancel"] = server.methods["tasks/cancel"], status(503)
    async with Following(guest, slow) as following:
        await following.task.looked()
        following.call.cancel()
        await asyncio.sleep(PAUSES[0])
        await eventually(lambda: len(server.heard("tasks/cancel")) == 2)
        server.methods["tasks/cancel"] = end
        await asyncio.sleep(PAUSES[1])
        await following.task.cancelled()


@pytest.mark.parametrize(("trouble", "tries"), [(status(503), 1 + len(PAUSES)), (raw(b"x"), 1)])
async def test_a_cancel_that_never_arrives_is_told_to_the_operator(
    server: ScriptedServer,
    guest: Guest,
    slow: TaskTool,
    caplog: pytest.LogCaptureFixture,
    trouble: Any,
    tries: int,
) -> None:
    server.methods["tasks/cancel"] = trouble
    async with Following(guest, slow) as following:
        await following.task.looked()
        following.call.cancel()
        await asyncio.sleep(sum(PAUSES))
        await eventually(lambda: "a task of a server could not be cancelled" in caplog.text)
    assert len(server.heard("tasks/cancel")) == tries
    assert "native-1" not in caplog.text
