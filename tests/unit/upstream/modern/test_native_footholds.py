"""Tasks of a server that are gone on with by somebody else: where they are told to be, and from there."""

import asyncio
import json
from typing import Any

import pytest

from helpers.recording_listener import RecordingListener
from helpers.server import ScriptedServer, status
from helpers.server.modern_tasks import ModernTasks, TaskTool
from helpers.waiting import bounded, eventually
from taskgate.domain.versions import Peer, Revision
from taskgate.protocol.messages import Params
from taskgate.protocol.server_messages import Question
from taskgate.upstream import failures
from taskgate.upstream.calls import Resumed, ResumePoint
from taskgate.upstream.pauses import USUAL
from unit.upstream.houses import Guest
from unit.upstream.modern.asking import ACCEPTED, ELICIT, SAMPLE
from unit.upstream.modern.conftest import NewGuest
from unit.upstream.modern.natives import DONE, Following, left, natives, slow

__all__ = ["natives", "slow"]

HERE = ResumePoint(task="native-1", revision="2026-07-28")
QUESTION = Question("elicitation/create", Params(json.dumps(ELICIT["params"])))


# --- where it can be gone on with


async def test_whoever_hears_a_call_knows_its_task_as_soon_as_there_is_one(guest: Guest, slow: TaskTool) -> None:
    async with Following(guest, slow) as following:
        await eventually(lambda: following.ear.resume_points)
        assert following.ear.resume_points == [HERE]


async def test_whoever_hears_a_call_knows_when_all_answers_have_arrived(guest: Guest, slow: TaskTool) -> None:
    async with Following(guest, slow) as following:
        following.task.ask(a=ELICIT, b=ELICIT)
        a, b = await following.asked(2)
        a.answer(ACCEPTED)
        b.answer(ACCEPTED)
        assert following.ear.resume_points == [HERE]
        await following.task.brought()
        await eventually(lambda: len(following.ear.resume_points) == 2)
        assert following.ear.resume_points[-1] == HERE


async def test_nothing_is_said_of_answers_while_some_have_not_arrived(
    server: ScriptedServer, guest: Guest, slow: TaskTool
) -> None:
    async with Following(guest, slow) as following:
        following.task.ask(a=ELICIT)
        (question,) = await following.asked()
        server.methods["tasks/update"] = status(503)
        question.answer(ACCEPTED)
        await eventually(lambda: len(server.heard("tasks/update")) > 2)
        assert following.ear.resume_points == [HERE]


async def test_an_answer_that_came_while_another_was_brought_has_not_arrived(
    server: ScriptedServer, guest: Guest, slow: TaskTool
) -> None:
    update, first, go_on = server.methods["tasks/update"], asyncio.Event(), asyncio.Event()

    async def wait(turn: Any) -> Any:
        first.set()
        await go_on.wait()
        return await update(turn)

    async with Following(guest, slow) as following, bounded():
        following.task.ask(a=ELICIT, b=ELICIT)
        a, b = await following.asked(2)
        server.methods["tasks/update"] = wait
        a.answer(ACCEPTED)
        await first.wait()
        b.answer(ACCEPTED)
        server.methods["tasks/update"] = status(503)
        go_on.set()
        await eventually(lambda: len(server.heard("tasks/update")) > 2)
        assert following.task.updates == [{"a": {"action": "accept", "content": {"a": 1}}}]
        assert following.ear.resume_points == [HERE]


async def test_nobody_can_go_on_with_a_task_of_a_server_that_ends_with_this_process(
    guest: Guest, slow: TaskTool
) -> None:
    object.__setattr__(guest.upstream_context, "outlives", False)
    async with Following(guest, slow) as following:
        await following.task.looked(2)
        assert following.ear.resume_points == []


# --- gone on with


async def test_a_call_goes_on_from_its_task_and_is_not_made_again(
    server: ScriptedServer, guest: Guest, new_guest: NewGuest, slow: TaskTool
) -> None:
    task = await left(guest, slow)
    other, ear = new_guest(), RecordingListener()
    calling = asyncio.create_task(other.run("slow", ear=ear, resumes=Resumed(HERE, {})))
    await task.looked()
    task.complete(DONE)
    async with bounded():
        assert json.loads((await calling).text)["result"]["content"] == DONE["content"]
    assert len(server.heard("tools/call")) == 1
    assert ear.resume_points == [HERE]


async def test_what_was_asked_before_is_told_anew_under_its_key_and_answered(
    guest: Guest, new_guest: NewGuest, slow: TaskTool
) -> None:
    task = await left(guest, slow, a=ELICIT)
    ear = RecordingListener()
    calling = asyncio.create_task(new_guest().run("slow", ear=ear, resumes=Resumed(HERE, {"a": QUESTION})))
    await eventually(lambda: ear.questions)
    (question,) = ear.questions
    assert (question.key, question.question) == ("a", QUESTION)
    # There was no answer that would have had to be brought.
    await eventually(lambda: ear.resume_points == [HERE])
    question.answer(ACCEPTED)
    assert await task.brought() == {"a": {"action": "accept", "content": {"a": 1}}}
    task.ask(b=SAMPLE)
    await eventually(lambda: len(ear.questions) == 2)
    assert [each.key for each in ear.questions] == ["a", "b"]
    task.complete(DONE)
    async with bounded():
        await calling


async def test_what_was_asked_before_is_told_anew_whatever_is_left_of_it(
    guest: Guest, new_guest: NewGuest, slow: TaskTool
) -> None:
    task = await left(guest, slow, a=ELICIT)
    # Who takes a call over knows no more than the method: the host was found to be able before.
    page, ear = Question("elicitation/create", None), RecordingListener()
    host = Peer(revision=Revision.R2025_11_25, capabilities={"elicitation": {"url": {}}}, info={})
    calling = asyncio.create_task(new_guest(host).run("slow", ear=ear, resumes=Resumed(HERE, {"a": page})))
    await eventually(lambda: ear.questions)
    assert [each.question for each in ear.questions] == [page]
    await task.looked(2)
    assert task.updates == []
    task.complete(DONE)
    async with bounded():
        await calling


async def test_an_answer_that_is_there_is_brought_before_the_task_is_looked_at(
    guest: Guest, new_guest: NewGuest, slow: TaskTool
) -> None:
    class Knows(RecordingListener):
        """Has the answer already."""

        def asked(self, question: Any) -> None:
            super().asked(question)
            question.answer(ACCEPTED)

    task = await left(guest, slow, a=ELICIT)
    looks, ear = task.looks, Knows()
    calling = asyncio.create_task(new_guest().run("slow", ear=ear, resumes=Resumed(HERE, {"a": QUESTION})))
    await task.brought()
    assert (task.looks, ear.resume_points) == (looks, [])
    task.complete(DONE)
    async with bounded():
        await calling
    assert ear.resume_points == [HERE]


async def test_what_a_task_does_not_wait_for_any_more_is_withdrawn_from_whoever_has_it(
    guest: Guest, new_guest: NewGuest, slow: TaskTool
) -> None:
    task = await left(guest, slow, a=ELICIT)
    task.work()
    ear, gone = RecordingListener(), asyncio.Event()
    calling = asyncio.create_task(new_guest().run("slow", ear=ear, resumes=Resumed(HERE, {"a": QUESTION})))
    await eventually(lambda: ear.questions)
    ear.questions[0].when_withdrawn(gone.set)
    async with bounded():
        await gone.wait()
    task.complete(DONE)
    async with bounded():
        await calling


async def test_a_task_that_is_gone_is_a_call_of_which_nobody_knows(guest: Guest, natives: ModernTasks) -> None:
    with pytest.raises(failures.Gone):
        await guest.run("slow", resumes=Resumed(HERE, {}))
    with pytest.raises(failures.Gone):
        await guest.run("slow", resumes=Resumed(ResumePoint(session="s", revision="2025-11-25"), {}))


async def test_a_server_that_is_not_back_yet_is_waited_for(
    server: ScriptedServer, guest: Guest, new_guest: NewGuest, slow: TaskTool
) -> None:
    task = await left(guest, slow)
    other, handle = new_guest(), server.methods["tasks/get"]
    server.methods["server/discover"] = server.methods["tasks/get"] = status(503)
    calling = asyncio.create_task(other.run("slow", resumes=Resumed(HERE, {})))
    asked = len(server.heard("tasks/get"))
    await asyncio.sleep(3 * USUAL)
    assert len(server.heard("tasks/get")) > asked + 1
    server.methods["tasks/get"] = handle
    task.complete(DONE)
    async with bounded():
        assert (await calling).error is None
