"""The questions of a round: answered, refused, withdrawn; and whose time it is meanwhile."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from helpers.recording_listener import RecordingListener
from helpers.server import Hold, Rounds, ScriptedServer, Turn, result
from helpers.waiting import bounded, eventually
from requirements import covers
from taskgate.errors import UpstreamFailed
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import Notification
from taskgate.upstream.calls import ServerQuestion
from unit.upstream.houses import Guest
from unit.upstream.modern.asking import ACCEPTED, DECLINED, ELICIT, ROOTS, SAMPLE, Questioned
from unit.upstream.modern.conftest import NewGuest, somebody

# --- what is no answer ---------------------------------------------------------------------------------------------


async def test_a_refused_elicitation_is_told_as_cancelled(server: ScriptedServer, guest: Guest) -> None:
    server.script["asks"] = asks = Rounds({"inputRequests": {"a": ELICIT}})
    async with Questioned(guest, 1) as questioned:
        questioned.ear.questions[0].refuse()
        assert (await questioned.answer()).error is None
    assert asks.answers == [{"a": {"action": "cancel"}}]


@pytest.mark.parametrize("way", ["refused", "error", "no object"])
@covers("M-MRTR-6")
async def test_an_answer_without_a_form_ends_the_call_and_its_other_questions(
    server: ScriptedServer, guest: Guest, way: str
) -> None:
    server.script["asks"] = Rounds({"inputRequests": {"a": ELICIT, "b": SAMPLE}})
    async with Questioned(guest, 2) as questioned:
        withdrawn: list[str] = []
        questioned.ear.questions[0].when_withdrawn(lambda: withdrawn.append("a"))
        answers = {"error": DECLINED, "no object": '{"result":[]}'}
        if way == "refused":
            questioned.ear.questions[1].refuse()
        else:
            questioned.ear.questions[1].answer(answers[way])
        error = (await questioned.answer()).error.value
    assert error["code"] == -32603
    assert error["data"] == {"origin": "gateway", "reason": "unanswered", "dispatched": True}
    assert withdrawn == ["a"]
    assert not questioned.ear.questions[0].is_open
    assert len(server.heard("tools/call")) == 1
    assert guest.heard.answered[-1] == ("tools/call", "-32603")


@covers("M-MRTR-2")
async def test_a_host_is_not_asked_what_it_did_not_declare(server: ScriptedServer, guest: Guest) -> None:
    by_url = {"method": "elicitation/create", "params": {"mode": "url", "message": "Go", "url": "https://a.example"}}
    server.script["asks"] = asks = Rounds({"inputRequests": {"a": by_url, "b": ELICIT}})
    async with Questioned(guest, 1) as questioned:
        assert len(questioned.ear.questions) == 1
        questioned.ear.questions[0].answer(ACCEPTED)
        assert (await questioned.answer()).error is None
    assert asks.answers[0]["a"] == {"action": "cancel"}


async def test_a_call_whose_server_asks_in_vain_bothers_no_host(server: ScriptedServer, new_guest: NewGuest) -> None:
    server.script["asks"] = Rounds({"inputRequests": {"a": ROOTS, "b": ELICIT}})
    ear = RecordingListener()
    assert (await new_guest(host=None).run("asks", ear=ear)).error.value["code"] == -32603
    assert ear.questions == []


# --- the life of a question ----------------------------------------------------------------------------------------


async def test_the_first_answer_counts(server: ScriptedServer, guest: Guest) -> None:
    server.script["asks"] = asks = Rounds({"inputRequests": {"a": ELICIT, "b": ELICIT}})
    async with Questioned(guest, 2) as questioned:
        first, second = questioned.ear.questions
        assert first.is_open
        first.answer(ACCEPTED)
        assert not first.is_open
        first.answer('{"result":{"action":"decline"}}')
        first.refuse()
        second.answer(ACCEPTED)
        await questioned.answer()
    assert [each["action"] for each in asks.answers[0].values()] == ["accept", "accept"]


async def test_questions_are_withdrawn_when_the_call_is_cancelled(server: ScriptedServer, guest: Guest) -> None:
    server.script["asks"] = Rounds({"inputRequests": {"a": ELICIT}})
    withdrawn: list[str] = []
    async with Questioned(guest, 1) as questioned:
        questioned.ear.questions[0].when_withdrawn(lambda: withdrawn.append("before"))
    question = questioned.ear.questions[0]
    assert withdrawn == ["before"]
    question.when_withdrawn(lambda: withdrawn.append("after"))
    assert withdrawn == ["before", "after"]
    question.answer(ACCEPTED)
    assert len(server.heard("tools/call")) == 1


async def test_an_answered_question_is_not_withdrawn(server: ScriptedServer, guest: Guest) -> None:
    server.script["asks"] = Rounds({"inputRequests": {"a": ELICIT}})
    withdrawn: list[str] = []
    async with Questioned(guest, 1) as questioned:
        question = questioned.ear.questions[0]
        question.when_withdrawn(lambda: withdrawn.append("answered"))
        question.answer(ACCEPTED)
        await questioned.answer()
        question.when_withdrawn(lambda: withdrawn.append("late"))
    assert withdrawn == []


async def test_a_host_that_tells_how_far_it_is_tells_no_server(server: ScriptedServer, guest: Guest) -> None:
    server.script["asks"] = Rounds({"inputRequests": {"a": ELICIT}})
    async with Questioned(guest, 1) as questioned:
        note = parse(
            b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}',
            max_depth=9,
        )
        assert isinstance(note, Notification)
        questioned.ear.questions[0].tell(note)
        questioned.ear.questions[0].answer(ACCEPTED)
        await questioned.answer()
    assert len(server.heard("tools/call")) == 2


async def test_who_hears_a_question_may_refuse_it_at_once(server: ScriptedServer, guest: Guest) -> None:
    class Refuses(RecordingListener):
        def asked(self, question: ServerQuestion) -> None:
            super().asked(question)
            question.refuse()

    server.script["asks"] = Rounds({"inputRequests": {"a": SAMPLE, "b": ELICIT}})
    ear = Refuses()
    assert (await guest.run("asks", ear=ear)).error.value["code"] == -32603
    assert len(ear.questions) == 1


async def test_the_hosts_time_is_not_the_servers(server: ScriptedServer, new_guest: NewGuest) -> None:
    guest = new_guest(call=timedelta(seconds=0.1))
    server.script["asks"] = Rounds({"inputRequests": {"a": ELICIT}})
    async with Questioned(guest, 1) as questioned:
        done, _ = await asyncio.wait((questioned.call,), timeout=0.4)
        assert done == set()
        questioned.ear.questions[0].answer(ACCEPTED)
        assert (await questioned.answer()).error is None


async def test_the_time_is_the_servers_again_once_all_is_answered(server: ScriptedServer, new_guest: NewGuest) -> None:
    guest = new_guest(call=timedelta(seconds=0.1))
    hold = Hold()

    async def reply(turn: Turn) -> Any:
        asked = result({"resultType": "input_required", "inputRequests": {"a": ELICIT, "b": ELICIT}})
        return await (hold if "inputResponses" in turn.message["params"] else asked)(turn)

    server.script["asks"] = reply
    async with Questioned(guest, 2) as questioned:
        for question in questioned.ear.questions:
            question.answer(ACCEPTED)
        with pytest.raises(UpstreamFailed) as failed:
            await questioned.answer()
    assert failed.value.reason == "timeout"


async def test_the_time_of_a_task_ends_its_questions(server: ScriptedServer, guest: Guest) -> None:
    server.script["asks"] = Rounds({"inputRequests": {"a": ELICIT}})
    async with Questioned(guest, 1, within=0.1) as questioned:
        with pytest.raises(UpstreamFailed) as failed:
            await questioned.answer()
        assert (failed.value.reason, failed.value.dispatched) == ("timeout", True)
        assert not questioned.ear.questions[0].is_open


async def test_the_next_round_is_for_who_answered(server: ScriptedServer, guest: Guest, monkeypatch) -> None:
    sent: list[Any] = []
    plain = guest.transport.send

    async def send(outgoing: Any) -> Any:
        sent.append(outgoing.principal)
        return await plain(outgoing)

    monkeypatch.setattr(guest.transport, "send", send)
    server.script["asks"] = Rounds({"inputRequests": {"a": ELICIT, "b": ELICIT}}, {"inputRequests": {"c": ELICIT}})
    calling = asyncio.create_task(guest.call("asks", principal=somebody("early")))
    await eventually(lambda: guest.heard.of_calls.questions)
    guest.heard.of_calls.questions[0].answer(ACCEPTED, somebody("late"))
    guest.heard.of_calls.questions[1].answer(ACCEPTED)
    await eventually(lambda: len(guest.heard.of_calls.questions) == 3)
    guest.heard.of_calls.questions[2].answer(ACCEPTED)
    async with bounded():
        await calling
    assert [each and each.context for each in sent[-3:]] == ["early", "late", "late"]
