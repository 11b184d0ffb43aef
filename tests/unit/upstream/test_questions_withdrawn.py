"""When nobody needs to answer a question any more: its server, its call or its session has given it up."""

import asyncio
from typing import Any

import pytest

from helpers.recording_listener import RecordingListener
from helpers.server import (
    Hold,
    ScriptedServer,
    Turn,
    breaks_off,
    event,
    note,
    open_stream,
    progress_note,
    status,
    stream,
)
from helpers.virtual_time import turns
from helpers.waiting import bounded, eventually
from taskgate.errors import UpstreamFailed
from unit.upstream.asking import ACCEPTED, CANCELLED, Asking, question
from unit.upstream.conftest import Caller


class Withdrawal:
    """Counts how often it was told of, and remembers whether the question was closed by then."""

    def __init__(self, ear: RecordingListener) -> None:
        [self.question] = ear.questions
        self.told: list[bool] = []
        self.question.when_withdrawn(self.tell)

    def tell(self) -> None:
        self.told.append(self.question.is_open)


@pytest.mark.parametrize("end", ["answer", "failure", "cancel", "close"])
async def test_a_question_is_withdrawn_with_its_call(server: ScriptedServer, asked: Caller, end: str) -> None:
    async with Asking(server, asked) as asking:
        withdrawal = Withdrawal(asking.ear)
        match end:
            case "answer":
                asking.goes_on.set_result(None)
            case "failure":
                asking.goes_on.set_result("break")
            case "cancel":
                asking.call.cancel()
            case "close":
                await asked.session.close()
        await asyncio.wait((asking.call,))
        assert withdrawal.told == [False]
        withdrawal.question.when_withdrawn(withdrawal.tell)
        assert withdrawal.told == [False, False]
        withdrawal.question.answer(ACCEPTED)
    await asked.session.close()
    assert server.replies == []
    assert len(withdrawal.told) == 2


async def test_a_question_is_withdrawn_when_the_time_of_its_call_is_up(server: ScriptedServer, asked: Caller) -> None:
    await asked.session.open()
    async with Asking(server, asked, within=0.2) as asking:
        withdrawal = Withdrawal(asking.ear)
        async with bounded():
            with pytest.raises(UpstreamFailed):
                await asking.call
        assert withdrawal.told == [False]


@pytest.mark.parametrize("place", ["call", "get"])
async def test_a_server_withdraws_what_it_asked(server: ScriptedServer, asked: Caller, place: str) -> None:
    cancelled = note("notifications/cancelled", requestId="q")
    if place == "get":
        async with Asking(server, asked) as asking:
            withdrawal = Withdrawal(asking.ear)
            await server.push(note("notifications/cancelled", requestId="other"), cancelled, cancelled)
            await eventually(lambda: withdrawal.told)
            withdrawal.question.answer(ACCEPTED)
    else:
        server.script["regrets"] = stream({"content": []}, before=[question(), cancelled])
        await asked.call("regrets")
        withdrawal = Withdrawal(asked.heard.of_calls)
    await asked.session.close()
    assert withdrawal.told == [False]
    assert server.replies == []


async def test_a_question_beside_the_stream_of_the_only_call_is_answered_for_it_when_that_ends(
    server: ScriptedServer, asked: Caller
) -> None:
    async with Asking(server, asked, question("own")) as asking:
        await server.push(question("beside"))
        await eventually(lambda: len(asking.ear.questions) == 2)
        asking.goes_on.set_result(None)
        await asyncio.wait((asking.call,))
        assert (await server.reply_to("beside"))["result"] == CANCELLED
        assert [each.is_open for each in asking.ear.questions] == [False, False]
    await asked.session.close()
    assert len(server.replies) == 1


async def test_a_question_of_the_session_outlives_calls_and_ends_with_the_session(
    server: ScriptedServer, asked: Caller
) -> None:
    await asked.session.open()
    await server.streaming()
    await server.push(question())
    await eventually(lambda: asked.heard.of_session.questions)
    withdrawal = Withdrawal(asked.heard.of_session)
    await asked.call()
    assert withdrawal.question.is_open
    await asked.session.close()
    assert withdrawal.told == [False]
    assert server.replies == []


async def test_a_question_is_withdrawn_when_the_server_has_lost_the_session(
    server: ScriptedServer, asked: Caller
) -> None:
    await asked.session.open()
    await server.streaming()
    await server.push(question())
    await eventually(lambda: asked.heard.of_session.questions)
    withdrawal = Withdrawal(asked.heard.of_session)
    server.forget_sessions()
    await asked.call()
    await eventually(lambda: withdrawal.told)
    withdrawal.question.answer(ACCEPTED)
    await asked.call()
    await asked.session.close()
    assert server.replies == []


async def test_a_call_that_outlives_its_session_hears_no_question(server: ScriptedServer, asked: Caller) -> None:
    server.script["asks"] = reply = Hold()

    async def asks_late(turn: Turn) -> Any:
        response = await open_stream(turn.request)
        reply.begun.set()
        await asyncio.shield(reply.released)
        await response.write(event(question()) + event(turn.answer({"content": []})))
        await response.write_eof()
        return response

    server.script["asks"] = asks_late
    calling = asyncio.create_task(asked.call("asks"))
    async with bounded():
        await reply.begun.wait()
    server.script["lost"] = server.methods["ping"] = status(404)
    with pytest.raises(UpstreamFailed):
        await asked.call("lost")
    await turns()
    reply.release(None)
    async with bounded():
        assert (await calling).error is None
    assert asked.heard.of_calls.questions == []


async def test_an_answered_question_is_not_withdrawn_any_more(server: ScriptedServer, asked: Caller) -> None:
    async with Asking(server, asked) as asking:
        withdrawal = Withdrawal(asking.ear)
        withdrawal.question.answer(ACCEPTED)
        withdrawal.question.when_withdrawn(withdrawal.tell)
        await server.push(note("notifications/cancelled", requestId="q"), progress_note(0, 1))
        await asked.session.close()
    assert withdrawal.told == []


async def test_a_call_that_breaks_off_withdraws_what_it_asked(server: ScriptedServer, asked: Caller) -> None:
    server.script["breaks"] = breaks_off(question())
    with pytest.raises(UpstreamFailed):
        await asked.call("breaks")
    assert [each.is_open for each in asked.heard.of_calls.questions] == [False]
