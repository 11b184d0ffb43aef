"""Questions that come beside all calls and name a task of which nobody knows yet what call it was made of."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from helpers.recording_listener import RecordingListener
from helpers.server import ScriptedServer, note
from helpers.server.legacy_tasks import RELATED, LegacyTasks
from helpers.waiting import bounded, eventually
from requirements import covers
from taskgate.upstream.legacy import server_tasks
from taskgate.upstream.legacy.questions import MAX_OPEN, PATIENCE
from unit.upstream.asking import question
from unit.upstream.conftest import Caller
from unit.upstream.natively import DONE, running

PING = {"jsonrpc": "2.0", "id": "ping", "method": "ping"}


def about(task: str, id: Any = "q") -> dict[str, Any]:
    """A question that names a task."""
    return question(id, _meta={RELATED: {"taskId": task}})


async def says(server: ScriptedServer, *messages: Any) -> None:
    """Returns once the server's words, on the stream of the session, have been heard."""
    await server.streaming()
    before = len(server.replies)
    await server.push(*messages, PING)
    await eventually(lambda: any(reply["id"] == "ping" for reply in server.replies[before:]))


@asynccontextmanager
async def making(caller: Caller, tasks: LegacyTasks, count: int = 2) -> AsyncIterator[list[RecordingListener]]:
    """So many calls in a block whose tasks are made, and not known to us; whose ears they have, in that order."""
    tasks.handles.clear()
    ears: list[RecordingListener] = []
    calls = []
    for number in range(1, count + 1):
        ears.append(RecordingListener())
        calls.append(running(caller, ear=ears[-1]))
        await tasks.made(number)
    try:
        yield ears
    finally:
        for call in calls:
            call.cancel()
        tasks.handles.set()
        await asyncio.wait(calls)


@covers("U-HTTP-3", "L-INPUT-5")
async def test_a_question_is_kept_until_it_is_known_whose_task_it_names(
    server: ScriptedServer, asked: Caller, tasks: LegacyTasks
) -> None:
    async with making(asked, tasks, 3) as ears:
        await says(server, about("theirs-0002", "a"), about("theirs-0003", "b"), about("theirs-0002", "a"))
        assert [ear.questions for ear in (*ears, asked.heard.of_session)] == [[], [], [], []]
        tasks.handles.set()
        await eventually(lambda: ears[1].questions and ears[2].questions)
        assert [[each.key for each in ear.questions] for ear in ears] == [[], ['"a"'], ['"b"']]
    assert asked.heard.of_session.questions == []


async def test_one_that_names_a_task_nobody_made_is_for_no_call_once_all_are_known(
    server: ScriptedServer, asked: Caller, tasks: LegacyTasks
) -> None:
    async with making(asked, tasks) as ears:
        await says(server, about("another"))
        tasks.handles.set()
        await eventually(lambda: asked.heard.of_session.questions)
        assert [ear.questions for ear in ears] == [[], []]


async def test_one_is_not_kept_for_long(server: ScriptedServer, asked: Caller, tasks: LegacyTasks) -> None:
    async with making(asked, tasks):
        await says(server, about("theirs-0002"))
        assert asked.heard.of_session.questions == []
        await asyncio.sleep(PATIENCE)
        await eventually(lambda: asked.heard.of_session.questions)


async def test_the_only_call_there_is_has_it_at_once(server: ScriptedServer, asked: Caller, tasks: LegacyTasks) -> None:
    async with making(asked, tasks, 1) as ears:
        await says(server, about("theirs-0001"))
        assert len(ears[0].questions) == 1


async def test_the_only_call_does_not_have_what_names_another_task(
    server: ScriptedServer, asked: Caller, tasks: LegacyTasks
) -> None:
    ear = RecordingListener()
    call = running(asked, ear=ear)
    task = await tasks.made()
    await eventually(lambda: ear.resume_points)
    await says(server, about("another"), about(task.id, "mine"))
    assert [each.key for each in ear.questions] == ['"mine"']
    assert len(asked.heard.of_session.questions) == 1
    task.complete(DONE)
    async with bounded():
        await call


async def test_one_that_is_withdrawn_while_it_is_kept_is_not_asked(
    server: ScriptedServer, asked: Caller, tasks: LegacyTasks
) -> None:
    async with making(asked, tasks) as ears:
        await says(server, about("theirs-0001"), note("notifications/cancelled", requestId="q"))
        tasks.handles.set()
        await eventually(lambda: all(ear.resume_points for ear in ears))
        assert [ear.questions for ear in (*ears, asked.heard.of_session)] == [[], [], []]


async def test_one_that_is_kept_when_the_session_ends_is_not_asked(
    server: ScriptedServer, asked: Caller, tasks: LegacyTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_tasks, "SIGN_OF_LIFE", timedelta(seconds=0.05))
    async with making(asked, tasks) as ears:
        await says(server, about("theirs-0001"))
        async with bounded():
            await asked.session.close()
        assert [ear.questions for ear in (*ears, asked.heard.of_session)] == [[], [], []]


async def test_not_more_are_kept_than_may_be_open(server: ScriptedServer, asked: Caller, tasks: LegacyTasks) -> None:
    async with making(asked, tasks):
        await says(server, *(about("theirs-0001", number) for number in range(MAX_OPEN + 1)))
        assert [each.question.method for each in asked.heard.of_session.questions] == ["elicitation/create"]
