"""A call that another process made, and that its server goes on with, is gone on with where it was heard to."""

import asyncio
import json
from typing import Any

import pytest

from helpers.recording_listener import RecordingListener
from helpers.server import LastingTool, ScriptedServer, progress_note
from helpers.waiting import bounded, eventually
from taskgate.upstream.calls import Resumed, ResumePoint
from taskgate.upstream.legacy import background_posts
from taskgate.upstream.settings import TransportKind
from unit.upstream.adopting import DONE, FORM, Before, after, before, going_on, tool
from unit.upstream.asking import ACCEPTED, question
from unit.upstream.conftest import Caller, new_caller

__all__ = ["after", "before", "tool"]


async def test_a_call_is_told_to_be_held_wherever_it_was_heard_to(before: Before) -> None:
    assert before.resume_point == ResumePoint("session-1", "2025-11-25", None, before.call.turn.id, "0.0")
    before.call.say(progress_note(before.call.token, 1))
    await before.placed(2)
    assert before.resume_point.event == "0.1"


async def test_events_that_come_together_are_one_place_which_is_told_once_all_were_heard(
    before: Before,
) -> None:
    before.call.say(progress_note(before.call.token, 1), progress_note(before.call.token, 2))
    await eventually(lambda: before.resume_point.event == "0.2")
    assert len(before.ear.notifications) == 2


async def test_a_place_is_told_only_once_the_server_has_what_was_answered_before(
    server: ScriptedServer, before: Before, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever goes on from there is not asked again what was asked before."""
    arrives = asyncio.Event()
    say = background_posts.BackgroundPosts._arrived

    async def late(self: background_posts.BackgroundPosts, *message: Any) -> bool:
        await arrives.wait()
        return await say(self, *message)

    monkeypatch.setattr(background_posts.BackgroundPosts, "_arrived", late)
    asking = asyncio.create_task(before.call.ask(question("q")))
    await before.placed(2)
    before.ear.questions[0].answer(ACCEPTED)
    before.call.say(progress_note(before.call.token, 1), progress_note(before.call.token, 2))
    await eventually(lambda: len(before.ear.notifications) == 2)
    before.call.say(progress_note(before.call.token, 3))
    await eventually(lambda: len(before.ear.notifications) == 3)
    assert len(before.ear.resume_points) == 2
    arrives.set()
    async with bounded():
        await asking
    await before.placed(3)
    assert before.resume_point.event == "0.4"


@pytest.mark.parametrize("transport", TransportKind)
async def test_a_call_is_held_only_where_its_server_does_not_go_with_this_process(
    server: ScriptedServer, tool: LastingTool, transport: TransportKind
) -> None:
    caller = new_caller(server.url, transport=transport)
    calling = asyncio.create_task(caller.run("long"))
    call = await tool.called()
    call.say(progress_note(call.token, 1))
    await eventually(lambda: caller.heard.call)
    call.answer(DONE)
    async with bounded():
        await calling
    assert bool(caller.heard.of_calls.resume_points) is (transport is TransportKind.HTTP)
    await caller.close()


async def test_a_call_goes_on_in_its_session_and_is_not_made_again(
    server: ScriptedServer, tool: LastingTool, before: Before, after: Caller
) -> None:
    before.call.say(progress_note(before.call.token, 1))
    await before.placed(2)
    heard = RecordingListener()
    outcome = going_on(after, Resumed(before.resume_point, {}), heard)
    await before.call.listened_to(2)
    before.call.say(progress_note(before.call.token, 2))
    await eventually(lambda: heard.notifications)
    before.call.answer(DONE)
    async with bounded():
        response = await outcome
    assert response.result.value == DONE
    assert tool.asked == ["0.1"]
    # What was heard before is not heard again, and what comes is held as before.
    assert len(heard.notifications) == 1
    assert heard.resume_points[-1] == before.resume_point._replace(event="0.2")
    assert (len(server.heard("initialize")), len(server.heard("tools/call"))) == (1, 1)
    get = server.verbs("GET")[-1]
    assert (get.headers["mcp-session-id"], get.headers["mcp-protocol-version"]) == ("session-1", "2025-11-25")


async def test_what_was_answered_meanwhile_is_heard_after_the_call_was_over_for_the_server(
    before: Before, after: Caller
) -> None:
    before.call.answer(DONE)
    async with bounded():
        await before.calling
        assert (await going_on(after, Resumed(before.resume_point, {}))).result.value == DONE


async def test_a_question_that_was_asked_before_is_asked_under_its_name_and_its_answer_reaches_the_server(
    server: ScriptedServer, before: Before, after: Caller
) -> None:
    asking = asyncio.create_task(before.call.ask(question(7)))
    await before.placed(2)
    key = before.ear.questions[0].key
    assert key == "7"
    heard = RecordingListener()
    outcome = going_on(after, Resumed(before.resume_point, {key: FORM, "[]": FORM, "{": FORM}), heard)
    await eventually(lambda: heard.questions)
    assert [(each.key, each.question) for each in heard.questions] == [("7", FORM)]
    heard.questions[0].answer(ACCEPTED)
    async with bounded():
        assert (await asking)["result"] == json.loads(ACCEPTED)["result"]
    before.call.answer(DONE)
    async with bounded():
        await outcome
    assert server.replies[-1]["id"] == 7


async def test_a_question_that_is_replayed_and_known_is_asked_once(before: Before, after: Caller) -> None:
    asking = asyncio.create_task(before.call.ask(question("q")))
    await before.placed(2)
    heard = RecordingListener()
    outcome = going_on(after, Resumed(before.ear.resume_points[0], {'"q"': FORM}), heard)
    await before.call.listened_to(2)
    before.call.say(progress_note(before.call.token, 1))
    await eventually(lambda: heard.notifications)
    assert len(heard.questions) == 1
    heard.questions[0].refuse()
    before.call.answer(DONE)
    async with bounded():
        await asyncio.gather(asking, outcome)
