"""A server that refuses a call until somebody has been to a URL: the host is asked, and the call sent again."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from helpers.loop_pace import LoopClock
from helpers.recording_listener import RecordingListener
from helpers.server import Reply, ScriptedServer, error, in_turn, result, status
from helpers.waiting import bounded, eventually
from taskgate.domain.versions import Peer, Revision
from taskgate.errors import UpstreamFailed
from taskgate.upstream.calls import ServerQuestion, UpstreamCall
from taskgate.upstream.legacy.url_elicitation import MAX_ROUNDS
from unit.upstream.conftest import EVERYTHING, Caller, new_caller

MODERN = Peer(revision=Revision.R2026_07_28, capabilities={"elicitation": {"url": {}}}, info={})
ACCEPTED, DECLINED = '{"result":{"action":"accept"}}', '{"result":{"action":"decline"}}'


def request_context(number: int = 1) -> dict[str, str]:
    return {"mode": "url", "elicitationId": f"e-{number}", "url": f"https://x.example.com/{number}", "message": "Pay"}


def wants(*request_contexts: Any) -> Reply:
    """Refuse until somebody was there."""
    return error(-32042, "no", {"elicitations": list(request_contexts)}, status=200)


@dataclass
class Answering(RecordingListener):
    """Answers at once, with one answer after the other; None refuses."""

    answers: list[str | None] = field(default_factory=list)

    def asked(self, question: ServerQuestion) -> None:
        super().asked(question)
        answer = self.answers.pop(0)
        if answer is None:
            question.refuse()
        else:
            question.answer(answer)


@pytest.fixture
async def modern(server: ScriptedServer) -> AsyncIterator[Caller]:
    """Somebody whose host does not know of such refusals."""
    caller = new_caller(server.url, MODERN, clock=LoopClock())
    yield caller
    await caller.close()


async def test_a_call_is_sent_again_when_its_host_went_there(server: ScriptedServer, modern: Caller) -> None:
    # -32042.
    server.script["pay"] = in_turn(
        wants(request_context(1), request_context(2)), result({"content": [], "structuredContent": {"n": 1}})
    )
    ear = RecordingListener()
    calling = asyncio.create_task(modern.call("pay", ear=ear))
    await eventually(lambda: len(ear.questions) == 2)
    assert [question.question.method for question in ear.questions] == ["elicitation/create"] * 2
    asked = [question.question.params for question in ear.questions]
    assert [json.loads(params.head) for params in asked if params] == [request_context(1), request_context(2)]
    ear.questions[1].answer(ACCEPTED)
    assert [question.is_open for question in ear.questions] == [True, False]
    assert len(server.heard("tools/call")) == 1
    ear.questions[0].answer(ACCEPTED)
    async with bounded():
        assert (await calling).result.value["structuredContent"] == {"n": 1}
    first, second = server.heard("tools/call")
    assert first["id"] != second["id"]
    assert first["params"] == second["params"]
    assert modern.heard.answered[-2:] == [("tools/call", "-32042"), ("tools/call", None)]


async def test_a_task_is_sent_again_too_and_tells_its_progress_under_the_new_id(
    server: ScriptedServer, modern: Caller
) -> None:
    server.script["pay"] = in_turn(wants(request_context()), result({"content": []}))
    async with bounded():
        await modern.run("pay", ear=Answering(answers=[ACCEPTED]))
    assert [call["params"]["_meta"]["progressToken"] == call["id"] for call in server.heard("tools/call")] == [True] * 2


async def test_other_requests_are_sent_again_too(server: ScriptedServer, modern: Caller) -> None:
    server.methods["resources/read"] = in_turn(wants(request_context()), result({"contents": []}))
    async with bounded():
        response = await modern.session.call(UpstreamCall("resources/read", None), Answering(answers=[ACCEPTED]))
    assert response.error is None


@pytest.mark.parametrize("answer", [DECLINED, '{"result":{"action":"cancel"}}', '{"error":{"code":-1}}', None])
async def test_one_visit_that_is_not_agreed_to_makes_the_refusal_the_answer(
    server: ScriptedServer, modern: Caller, answer: str | None
) -> None:
    server.script["pay"] = wants(request_context(1), request_context(2), request_context(3))
    ear = Answering(answers=[ACCEPTED, answer])
    async with bounded():
        response = await modern.call("pay", ear=ear)
    assert response.error is not None
    assert response.error.value["code"] == -32042
    assert len(server.heard("tools/call")) == 1
    assert len(ear.questions) == 2, "nobody is asked for more then"


async def test_what_is_still_open_when_one_is_declined_is_withdrawn(server: ScriptedServer, modern: Caller) -> None:
    server.script["pay"] = wants(request_context(1), request_context(2))
    ear, withdrawn = RecordingListener(), []
    calling = asyncio.create_task(modern.call("pay", ear=ear))
    await eventually(lambda: len(ear.questions) == 2)
    for number, question in enumerate(ear.questions):
        question.when_withdrawn(lambda number=number: withdrawn.append(number))
    ear.questions[0].answer(DECLINED)
    async with bounded():
        await calling
    assert withdrawn == [1]
    ear.questions[1].answer(ACCEPTED)
    ear.questions[1].refuse()
    ear.questions[1].when_withdrawn(lambda: withdrawn.append(2))
    ear.questions[0].when_withdrawn(lambda: withdrawn.append(3))
    assert withdrawn == [1, 2], "at once where it was withdrawn before, and never where it was answered"
    assert len(server.heard("tools/call")) == 1


async def test_a_server_that_wants_one_visit_after_the_other_is_followed_so_far_and_no_farther(
    server: ScriptedServer, modern: Caller
) -> None:
    server.script["pay"] = wants(request_context())
    ear = Answering(answers=[ACCEPTED] * 10)
    async with bounded():
        response = await modern.call("pay", ear=ear)
    assert response.error is not None
    assert len(ear.questions) == MAX_ROUNDS
    assert len(server.heard("tools/call")) == MAX_ROUNDS + 1


@pytest.mark.parametrize("host", [None, EVERYTHING, Peer(revision=MODERN.revision, capabilities={}, info={})])
async def test_a_host_that_knows_the_refusal_or_takes_no_visits_gets_it(
    server: ScriptedServer, host: Peer | None
) -> None:
    server.script["pay"] = wants(request_context())
    caller = new_caller(server.url, host)
    response = await caller.call("pay")
    assert response.error is not None
    assert response.error.value["data"] == {"elicitations": [request_context()]}
    assert caller.heard.of_calls.questions == []
    await caller.close()


async def test_a_refusal_of_another_shape_is_the_answer(server: ScriptedServer, modern: Caller) -> None:
    server.script["pay"] = wants(request_context(), {"mode": "form"})
    assert (await modern.call("pay")).error is not None
    assert modern.heard.of_calls.questions == []


async def test_a_call_that_fails_when_it_is_sent_again_fails(server: ScriptedServer, modern: Caller) -> None:
    server.script["pay"] = in_turn(wants(request_context()), status(500))
    with pytest.raises(UpstreamFailed) as failed:
        await modern.call("pay", ear=Answering(answers=[ACCEPTED]))
    assert (failed.value.reason, failed.value.dispatched) == ("refused", True)


async def test_who_stops_waiting_for_the_call_withdraws_the_question(server: ScriptedServer, modern: Caller) -> None:
    server.script["pay"] = wants(request_context())
    ear = RecordingListener()
    calling = asyncio.create_task(modern.call("pay", ear=ear))
    await eventually(lambda: ear.questions)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert not ear.questions[0].is_open
    assert server.cancelled == []


async def test_a_call_waits_for_its_host_no_longer_than_it_may_run(server: ScriptedServer, modern: Caller) -> None:
    server.script["pay"] = wants(request_context())
    ear = RecordingListener()
    async with bounded():
        with pytest.raises(UpstreamFailed) as failed:
            await modern.run("pay", within=0.1, ear=ear)
    assert (failed.value.reason, failed.value.dispatched) == ("timeout", False)
    assert not ear.questions[0].is_open


async def test_the_second_try_has_what_is_left_of_the_calls_time(
    server: ScriptedServer, modern: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.script["pay"] = in_turn(wants(request_context()), result({"content": []}))
    ceilings: list[float] = []
    natives = modern.session.era_session._server_tasks  # type: ignore[attr-defined]
    reach = natives._reach

    async def recording(call: Any, *listener: Any, **more: Any) -> Any:
        ceilings.append(call.bounds.ceiling)
        await asyncio.sleep(2)
        return await reach.ask(call, *listener, **more)

    monkeypatch.setattr(natives, "_reach", reach._replace(ask=recording))
    async with bounded():
        await modern.run("pay", within=9, ear=Answering(answers=[ACCEPTED]))
    first, second = ceilings
    assert first == timedelta(seconds=9).total_seconds()
    assert second == pytest.approx(first - 2, abs=0.5)


async def test_closing_the_session_gives_the_question_up(server: ScriptedServer, modern: Caller) -> None:
    server.script["pay"] = wants(request_context())
    ear = RecordingListener()
    calling = asyncio.create_task(modern.call("pay", ear=ear))
    await eventually(lambda: ear.questions)
    await modern.session.close()
    async with bounded():
        assert (await calling).error is not None
    assert not ear.questions[0].is_open


async def test_nobody_tells_a_server_how_far_a_visit_is(server: ScriptedServer, modern: Caller) -> None:
    server.script["pay"] = wants(request_context())
    ear = RecordingListener()
    calling = asyncio.create_task(modern.call("pay", ear=ear))
    await eventually(lambda: ear.questions)
    sent = len(server.requests)
    ear.questions[0].tell(modern.heard.session)  # type: ignore[arg-type]
    ear.questions[0].refuse()
    await calling
    assert len(server.requests) == sent
