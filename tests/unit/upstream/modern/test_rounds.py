"""Calls that a server answers with questions: asked of the host, and sent again with what it says."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest

from helpers.recording_listener import RecordingListener
from helpers.server import Rounds, ScriptedServer, Turn, error, result, status, stream
from helpers.waiting import bounded, eventually
from requirements import covers
from taskgate.errors import UpstreamFailed
from taskgate.protocol.messages import Params
from taskgate.protocol.server_messages import Question
from taskgate.upstream.calls import NextRound, UpstreamCall
from taskgate.upstream.modern import rounds
from unit.upstream.houses import Guest
from unit.upstream.modern.asking import ACCEPTED, ELICIT, ROOTS, SAMPLE, SAMPLED, Questioned, told
from unit.upstream.modern.conftest import NewGuest


@covers("M-MRTR-3")
async def test_a_round_is_asked_and_the_request_sent_again_with_the_answers_and_the_state(
    server: ScriptedServer, guest: Guest
) -> None:
    state = 'exactly "this" \\ süd'
    server.script["asks"] = asks = Rounds({"inputRequests": {"q 1": ELICIT, "q2": ROOTS}, "requestState": state})
    async with Questioned(guest, 2) as questioned:
        assert [each.question.method for each in questioned.ear.questions] == ["elicitation/create", "roots/list"]
        questioned.ear.questions[1].answer('{"result":{"roots":[]}}')
        questioned.ear.questions[0].answer(ACCEPTED)
        assert (await questioned.answer()).error is None
    assert asks.answers == [{"q 1": {"action": "accept", "content": {"a": 1}}, "q2": {"roots": []}}]
    assert asks.states == [state]
    first, second = server.heard("tools/call")
    assert first["id"] != second["id"]
    assert {**second["params"], "_meta": None} == {
        **first["params"], "_meta": None, "inputResponses": asks.answers[0], "requestState": state,
    }  # fmt: skip
    assert server.faults == []


@covers("M-MRTR-3")
async def test_each_round_brings_its_own_answers_and_its_own_state(server: ScriptedServer, guest: Guest) -> None:
    server.script["asks"] = Rounds(
        {"inputRequests": {"a": ELICIT}, "requestState": "one"}, {"inputRequests": {"b": SAMPLE}}
    )
    async with Questioned(guest, 1) as questioned:
        questioned.ear.questions[0].answer(ACCEPTED)
        (await questioned.asked(2))[1].answer(SAMPLED)
        assert (await questioned.answer()).error is None
    answered = [(None if each is None else list(each), state) for each, state in told(server)]
    assert answered == [(None, None), (["a"], "one"), (["b"], None)]
    assert guest.heard.answered[-1] == ("tools/call", None)
    assert len([each for each in guest.heard.answered if each[0] == "tools/call"]) == 1


@pytest.mark.parametrize("method", ["prompts/get", "resources/read"])
@covers("M-MRTR-1")
async def test_prompts_and_resources_may_ask_too(server: ScriptedServer, guest: Guest, method: str) -> None:
    server.methods[method] = Rounds(
        {"inputRequests": {"a": ELICIT}}, answer={"messages": [], "contents": [], **server.cache}
    )
    params = {"prompts/get": '{"name":"p"}', "resources/read": '{"uri":"a:b"}'}[method]
    calling = asyncio.create_task(guest.ask(method, params))
    await eventually(lambda: guest.heard.of_calls.questions)
    guest.heard.of_calls.questions[0].answer(ACCEPTED)
    async with bounded():
        assert (await calling).error is None


@covers("M-MRTR-1")
async def test_no_other_request_may_ask(server: ScriptedServer, guest: Guest) -> None:
    server.methods["prompts/list"] = Rounds({"inputRequests": {"a": ELICIT}})
    with pytest.raises(UpstreamFailed, match="does not allow"):
        await guest.ask("prompts/list", "{}")


async def test_a_round_goes_on_as_it_is_to_who_passes_rounds(server: ScriptedServer, guest: Guest) -> None:
    server.script["asks"] = Rounds({"inputRequests": {"a": ELICIT}, "requestState": "s"})
    ear = RecordingListener(passes_rounds=True)
    response = await guest.call("asks", ear=ear)
    found = json.loads(response.text)["result"]
    assert found == {"resultType": "input_required", "inputRequests": {"a": ELICIT}, "requestState": "s"}
    assert ear.questions == []


async def test_what_a_passed_round_left_is_replaced_by_the_next(server: ScriptedServer, guest: Guest) -> None:
    """A call whose first round its host answered by itself, and which became a task since."""
    server.script["asks"] = Rounds(
        {"inputRequests": {"a": ELICIT}, "requestState": "s"}, {"inputRequests": {"b": ELICIT}}
    )
    ear = RecordingListener(passes_rounds=True)
    await guest.call("asks", ear=ear)
    ear.passes_rounds = False
    given = '{"name":"asks","inputResponses":{"a":{"action":"decline"}},"requestState":"s"}'
    calling = asyncio.create_task(guest.session.call(UpstreamCall("tools/call", Params(given), tool="asks"), ear))
    await eventually(lambda: ear.questions)
    ear.questions[0].answer(ACCEPTED)
    async with bounded():
        assert (await calling).error is None
    assert [state for _, state in told(server)] == [None, "s", None]
    assert list(told(server)[-1][0]) == ["b"]


# --- rounds that are kept, and gone on with -------------------------------------------------------------------------


async def test_who_keeps_a_round_has_all_that_the_next_takes_and_is_asked_before_that_leaves(
    server: ScriptedServer, guest: Guest
) -> None:
    server.script["asks"] = asks = Rounds({"inputRequests": {"a": ELICIT, "b": ELICIT}, "requestState": "s"})
    may_leave = asyncio.Event()

    async def leave() -> bool:
        await may_leave.wait()
        return True

    guest.heard.of_calls.leave = leave
    calling = asyncio.create_task(guest.call("asks"))
    await eventually(lambda: guest.heard.of_calls.kept)
    (between,) = guest.heard.of_calls.kept
    assert between.state == '"s"'
    assert [question for _, question in between.asked.values()] == guest.heard.of_calls.questions
    assert (list(between.asked), between.given) == (["a", "b"], {})
    for question in guest.heard.of_calls.questions:
        question.answer(ACCEPTED)
    await eventually(lambda: len(between.given) == 2)
    assert len(asks.turns) == 1
    may_leave.set()
    async with bounded():
        assert (await calling).error is None
    assert (asks.states, len(asks.turns)) == (["s"], 2)


async def no() -> bool:
    return False


async def yes() -> bool:
    return True


async def test_a_round_that_is_another_ones_by_now_does_not_leave(server: ScriptedServer, guest: Guest) -> None:
    server.script["asks"] = asks = Rounds({"inputRequests": {"a": ELICIT}, "requestState": "s"})
    guest.heard.of_calls.leave = no
    calling = asyncio.create_task(guest.call("asks"))
    await eventually(lambda: guest.heard.of_calls.questions)
    guest.heard.of_calls.questions[0].answer(ACCEPTED)
    with pytest.raises(UpstreamFailed, match="closed"):
        async with bounded():
            await calling
    assert len(asks.turns) == 1


FORMS = Question("elicitation/create", None)


async def test_a_call_goes_on_with_its_next_round(server: ScriptedServer, guest: Guest) -> None:
    """What nobody answered is cancelled, as it would have been where it was asked."""
    server.script["asks"] = result({"content": []})
    given = {"a": (FORMS, ACCEPTED), "b": (FORMS, None)}
    await guest.run("asks", resumes=NextRound('"s"', given, yes))
    assert told(server) == [({"a": {"action": "accept", "content": {"a": 1}}, "b": {"action": "cancel"}}, "s")]


async def test_a_call_does_not_go_on_that_is_another_ones_by_now(server: ScriptedServer, guest: Guest) -> None:
    with pytest.raises(UpstreamFailed) as failed:
        await guest.run("asks", resumes=NextRound('"s"', {"a": (FORMS, ACCEPTED)}, no))
    assert failed.value.dispatched
    assert server.heard("tools/call") == []


async def test_a_call_whose_server_asked_what_nobody_answered_ends_there(server: ScriptedServer, guest: Guest) -> None:
    """There is no form for that (10.2), so the next round is not to leave either."""
    given = {"a": (Question("roots/list", None), None)}
    response = await guest.run("asks", resumes=NextRound('"s"', given, no))
    assert response.error is not None
    assert response.error.value["data"]["reason"] == "unanswered"
    assert server.heard("tools/call") == []


# --- rounds without end --------------------------------------------------------------------------------------------


async def test_a_round_without_questions_is_answered_by_itself(server: ScriptedServer, guest: Guest) -> None:
    server.script["asks"] = asks = Rounds({"requestState": "busy"}, {"requestState": "busier"})
    assert (await guest.run("asks")).error is None
    assert asks.states == ["busy", "busier"]
    assert [answers for answers, _ in told(server)] == [None, None, None]


async def test_a_round_without_questions_brings_no_answers_of_an_earlier_one(
    server: ScriptedServer, guest: Guest
) -> None:
    server.script["asks"] = Rounds({"inputRequests": {"a": ELICIT}}, {"requestState": "busy"})
    async with Questioned(guest, 1) as questioned:
        questioned.ear.questions[0].answer(ACCEPTED)
        assert (await questioned.answer()).error is None
    assert [(answers is None, state) for answers, state in told(server)] == [
        (True, None),
        (False, None),
        (True, "busy"),
    ]


async def test_a_server_that_is_never_ready_is_given_up(server: ScriptedServer, new_guest: NewGuest) -> None:
    server.script["asks"] = result({"resultType": "input_required", "requestState": "busy"})
    loop, guest = asyncio.get_running_loop(), new_guest(call=timedelta(seconds=60))
    began = loop.time()
    with pytest.raises(UpstreamFailed, match="without end"):
        await guest.run("asks")
    # Pauses that double up to five seconds.
    assert loop.time() - began == pytest.approx(6.35 + 5 * 5, abs=1)
    assert len(server.heard("tools/call")) == rounds.MAX_EMPTY + 1


async def test_a_call_may_take_as_many_rounds_as_there_may_be(server: ScriptedServer, guest: Guest) -> None:
    server.script["asks"] = Rounds(*[{"inputRequests": {"a": ELICIT}}] * rounds.MAX_ROUNDS)
    async with Questioned(guest, 1) as questioned:
        for turn in range(rounds.MAX_ROUNDS):
            (await questioned.asked(turn + 1))[turn].answer(ACCEPTED)
        assert (await questioned.answer()).error is None


async def test_a_server_that_asks_for_ever_is_given_up(server: ScriptedServer, guest: Guest) -> None:
    server.script["asks"] = result({"resultType": "input_required", "inputRequests": {"a": ELICIT}})
    ear = RecordingListener()
    calling = asyncio.create_task(guest.run("asks", ear=ear))
    for turn in range(1, rounds.MAX_ROUNDS + 1):
        await eventually(lambda turn=turn: len(ear.questions) == turn)
        ear.questions[-1].answer(ACCEPTED)
    async with bounded():
        with pytest.raises(UpstreamFailed, match="without end"):
            await calling


@covers("H-MOD-7")
async def test_a_header_refused_in_a_later_round_is_the_hosts_to_hear(server: ScriptedServer, guest: Guest) -> None:
    async def reply(turn: Turn) -> Any:
        if "inputResponses" in turn.message["params"]:
            return await error(-32020, "no", status=400)(turn)
        return await result({"resultType": "input_required", "inputRequests": {"a": ELICIT}})(turn)

    server.script["asks"] = reply
    async with Questioned(guest, 1) as questioned:
        questioned.ear.questions[0].answer(ACCEPTED)
        assert (await questioned.answer()).error.value["code"] == -32020
    assert len(server.heard("tools/call")) == 2


async def test_a_server_that_refuses_a_later_round_may_have_acted_on_an_earlier_one(
    server: ScriptedServer, guest: Guest
) -> None:
    replies = iter([result({"resultType": "input_required", "inputRequests": {"a": ELICIT}}), status(429)])

    async def reply(turn: Turn) -> Any:
        return await next(replies)(turn)

    server.script["asks"] = reply
    async with Questioned(guest, 1) as questioned:
        questioned.ear.questions[0].answer(ACCEPTED)
        with pytest.raises(UpstreamFailed) as failed:
            await questioned.answer()
    assert (failed.value.reason, failed.value.dispatched) == ("refused", True)


async def test_a_round_may_come_on_a_stream(server: ScriptedServer, guest: Guest) -> None:
    asked = {"resultType": "input_required", "inputRequests": {"a": ELICIT}}
    answers = iter([stream(asked, progress=1), stream({"content": []}, progress=1)])

    async def reply(turn: Turn) -> Any:
        return await next(answers)(turn)

    server.script["asks"] = reply
    async with Questioned(guest, 1) as questioned:
        questioned.ear.questions[0].answer(ACCEPTED)
        assert (await questioned.answer()).error is None
        assert len(questioned.ear.notifications) == 2
