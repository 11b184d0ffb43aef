"""Tasks whose server tells of them by itself: looked at when it does, and not only as often as it wants."""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest

from helpers.server import ScriptedServer, error, note, status
from helpers.server.modern_tasks import ModernTasks, TaskTool
from helpers.waiting import bounded, eventually
from requirements import covers
from taskgate.clock import SystemClock
from taskgate.upstream.modern.server_tasks import ServerTaskStreams
from taskgate.upstream.pauses import LEAST
from unit.upstream.houses import Guest
from unit.upstream.modern.asking import LISTEN
from unit.upstream.modern.natives import DONE, Following, natives

__all__ = ["natives"]

SELDOM = 60_000


@pytest.fixture
async def streams(server: ScriptedServer, natives: ModernTasks, guest: Guest) -> AsyncIterator[ServerTaskStreams]:
    """The streams of one session that are for tasks, of which the server tells."""
    server.listens.grants_tasks = True
    found = ServerTaskStreams(guest.upstream_context, None, SystemClock())
    yield found
    await found.close()


@pytest.fixture
def seldom(server: ScriptedServer, natives: ModernTasks) -> TaskTool:
    """A tool whose tasks are to be looked at once a minute, and told of besides."""
    server.listens.grants_tasks = True
    return natives.tool("slow", interval=SELDOM)


def listened(server: ScriptedServer) -> list[Any]:
    """The tasks that were listened for, stream by stream."""
    return [each["params"]["notifications"].get("taskIds") for each in server.heard(LISTEN)]


def news(task: str) -> Any:
    return note("notifications/tasks", taskId=task, status="working")


@covers("M-SUB-2")
async def test_a_task_is_looked_at_when_its_server_tells_of_it(
    server: ScriptedServer, guest: Guest, seldom: TaskTool
) -> None:
    async with Following(guest, seldom) as following:
        await server.listens.opened()
        assert server.listens.filters == [{"taskIds": ["native-1"]}]
        assert following.task.looks == 1
        await server.push(news("native-1"))
        await following.task.looked()
        following.task.complete(DONE)
        await server.push(news("native-1"))
        assert (await following.response()).error is None
    await server.leaving(LISTEN)
    assert server.faults == []


async def test_a_task_that_is_told_of_without_end_is_not_looked_at_without_end(
    server: ScriptedServer, guest: Guest, seldom: TaskTool
) -> None:
    async with Following(guest, seldom) as following:
        await server.listens.opened()
        async with bounded():
            while following.task.looks < 4:
                await server.push(news("native-1"))
                await asyncio.sleep(LEAST / 10)
        times = following.task.times
    assert all(later - sooner >= LEAST for sooner, later in pairwise(times))


async def test_news_of_another_task_are_none_of_this_one(server: ScriptedServer, streams: ServerTaskStreams) -> None:
    told: list[bool] = []
    stream = streams.listen("native-1", SELDOM, lambda: told.append(True))
    assert stream is not None
    await server.listens.opened()
    (granted,) = server.listens.filters
    granted["taskIds"].append("native-2")
    await server.push(news("native-2"), news("native-1"))
    await eventually(lambda: told)
    assert told == [True]


async def test_nobody_listens_for_what_is_looked_at_often(
    server: ScriptedServer, guest: Guest, natives: ModernTasks
) -> None:
    server.listens.grants_tasks = True
    async with Following(guest, natives.tool("slow", interval=1_000)) as following:
        await following.task.looked()
        following.task.complete(DONE)
        await following.response()
    async with Following(guest, natives.tool("slow", interval=None)) as following:
        await following.task.looked()
        following.task.complete(DONE)
        await following.response()
    assert listened(server) == []


@pytest.mark.parametrize("how", ["grants nothing", status(404), error(-32601, "no such method", status=404)])
async def test_a_server_that_does_not_tell_of_its_tasks_is_not_asked_again(
    server: ScriptedServer, streams: ServerTaskStreams, how: Any
) -> None:
    server.listens.grants_tasks = False
    if how != "grants nothing":
        server.methods[LISTEN] = how
    stream = streams.listen("native-1", SELDOM, print)
    assert stream is not None
    await eventually(lambda: stream.is_over)
    await stream.close()
    assert streams.listen("native-2", SELDOM, print) is None
    assert listened(server) == [["native-1"]]


async def test_a_stream_that_was_let_go_is_no_reason_not_to_listen(
    server: ScriptedServer, streams: ServerTaskStreams
) -> None:
    stream = streams.listen("native-1", SELDOM, print)
    assert stream is not None
    await server.listens.opened()
    await stream.close()
    assert streams.listen("native-2", SELDOM, print) is not None


async def test_a_server_that_is_only_away_for_now_is_asked_again(
    server: ScriptedServer, streams: ServerTaskStreams
) -> None:
    server.methods[LISTEN] = status(503)
    streams.listen("native-1", SELDOM, print)
    await eventually(lambda: listened(server))
    del server.methods[LISTEN]
    await server.listens.opened()
    assert streams.listen("native-2", SELDOM, print) is not None
    await server.listens.opened(2)


async def test_a_call_goes_on_where_its_server_tells_nothing(
    server: ScriptedServer, guest: Guest, seldom: TaskTool
) -> None:
    server.methods[LISTEN] = status(404)
    async with Following(guest, seldom) as following:
        await eventually(lambda: listened(server))
        assert not following.call.done()


async def test_nothing_is_listened_to_any_more_when_a_session_has_ended_however_little_time_there_is(
    server: ScriptedServer, guest: Guest, seldom: TaskTool
) -> None:
    async with Following(guest, seldom), bounded():
        await server.listens.opened()
        # The calls of the session are let go in another step, and may need more time than there is.
        await guest.session._server_tasks.close()
        assert [task for task in asyncio.all_tasks() if "SubscriptionStream" in repr(task)] == []
