"""What a task of a server waits for: heard as questions, brought as they are answered."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest

from helpers.server import ScriptedServer, error, status
from helpers.server.modern_tasks import ModernTasks, TaskTool
from helpers.waiting import bounded, eventually
from requirements import covers
from taskgate.upstream.modern.questions import TRIES
from unit.upstream.houses import Guest
from unit.upstream.modern.asking import ACCEPTED, DECLINED, ELICIT, ROOTS, SAMPLE, SAMPLED
from unit.upstream.modern.conftest import NewGuest, somebody
from unit.upstream.modern.natives import DONE, Following, natives, slow

__all__ = ["natives", "slow"]

ROOTED = '{"result":{"roots":[]}}'
ANSWER = {"action": "accept", "content": {"a": 1}}


@covers("M-NEG-8")
async def test_what_a_task_waits_for_is_asked_under_the_servers_key_and_brought(
    server: ScriptedServer, guest: Guest, slow: TaskTool
) -> None:
    async with Following(guest, slow) as following:
        following.task.ask(**{"native-1:q 1": ELICIT})
        (question,) = await following.asked()
        assert (question.key, question.question.method) == ("native-1:q 1", "elicitation/create")
        question.answer(ACCEPTED)
        assert await following.task.brought() == {"native-1:q 1": ANSWER}
        following.task.complete(DONE)
        assert (await following.response()).error is None
    assert len(following.ear.questions) == 1
    assert len(following.task.updates) == 1
    assert server.faults == []


@covers("M-UPD-3")
async def test_each_answer_is_brought_as_it_comes(guest: Guest, slow: TaskTool) -> None:
    async with Following(guest, slow) as following:
        following.task.ask(a=ELICIT, b=ROOTS, c=SAMPLE)
        a, b, c = await following.asked(3)
        b.answer(ROOTED)
        assert await following.task.brought() == {"b": {"roots": []}}
        assert a.is_open
        assert c.is_open
        c.answer(SAMPLED)
        a.answer(ACCEPTED)
        brought = await following.task.brought(2)
        await eventually(lambda: not following.task.inputs)
        assert {"a", "c"} == {key for update in following.task.updates for key in update} - {"b"}
        assert brought.keys() <= {"a", "c"}
        following.task.complete(DONE)
        await following.response()


async def test_answers_do_not_wait_for_the_next_look(guest: Guest, natives: ModernTasks) -> None:
    slow = natives.tool("slow", interval=60_000)
    async with Following(guest, slow) as following:
        following.task.ask(a=ELICIT)
        (question,) = await following.asked()
        question.answer(ACCEPTED)
        await following.task.brought()
        assert following.task.looks == 1


async def test_a_task_may_ask_again_and_again(guest: Guest, slow: TaskTool) -> None:
    async with Following(guest, slow) as following:
        for turn in range(3):
            following.task.ask(**{f"q{turn}": ELICIT})
            (await following.asked(turn + 1))[turn].answer(ACCEPTED)
            await following.task.brought(turn + 1)
        following.task.complete(DONE)
        await following.response()
    assert [list(update) for update in following.task.updates] == [["q0"], ["q1"], ["q2"]]


async def test_a_question_that_a_task_does_not_wait_for_any_more_is_withdrawn(guest: Guest, slow: TaskTool) -> None:
    async with Following(guest, slow) as following:
        following.task.ask(a=ELICIT, b=ELICIT)
        a, b = await following.asked(2)
        gone = asyncio.Event()
        a.when_withdrawn(gone.set)
        following.task.withdraw("a")
        async with bounded():
            await gone.wait()
        assert not a.is_open
        assert b.is_open
        a.answer(ACCEPTED)
        b.answer(ACCEPTED)
        assert await following.task.brought() == {"b": ANSWER}


@pytest.mark.parametrize("over", ["complete", "lost", "let go"])
async def test_questions_are_withdrawn_when_their_call_is_over(
    guest: Guest, slow: TaskTool, natives: ModernTasks, over: str
) -> None:
    async with Following(guest, slow) as following:
        following.task.ask(a=ELICIT)
        (question,) = await following.asked()
        gone = asyncio.Event()
        question.when_withdrawn(gone.set)
        if over == "complete":
            following.task.complete(DONE)
        elif over == "lost":
            natives.forget()
        else:
            following.call.cancel()
        async with bounded():
            await gone.wait()


# --- answers that do not get there


@covers("M-UPD-2")
async def test_an_answer_that_a_task_still_waits_for_is_brought_again(guest: Guest, slow: TaskTool) -> None:
    async with Following(guest, slow) as following:
        following.task.keeps_answers = False
        following.task.ask(a=ELICIT)
        (await following.asked())[0].answer(ACCEPTED)
        assert await following.task.brought(2) == {"a": ANSWER}
        following.task.complete(DONE)
        await following.response()
    assert len(following.ear.questions) == 1


@pytest.mark.parametrize("trouble", [status(503), error(-32603, "not now")])
async def test_an_answer_that_does_not_arrive_is_brought_again(
    server: ScriptedServer, guest: Guest, slow: TaskTool, trouble: Any
) -> None:
    async with Following(guest, slow) as following:
        following.task.ask(a=ELICIT)
        (question,) = await following.asked()
        update, server.methods["tasks/update"] = server.methods["tasks/update"], trouble
        question.answer(ACCEPTED)
        await eventually(lambda: server.heard("tasks/update"))
        server.methods["tasks/update"] = update
        assert await following.task.brought() == {"a": ANSWER}


@pytest.mark.parametrize(("code", "tries"), [(-32602, 1), (-32603, TRIES)])
async def test_an_answer_that_a_task_does_not_take_ends_the_call_with_what_the_server_says_of_it(
    server: ScriptedServer, guest: Guest, slow: TaskTool, code: int, tries: int
) -> None:
    async with Following(guest, slow) as following:
        following.task.ask(a=ELICIT)
        server.methods["tasks/update"] = error(code, "not like that")
        (await following.asked())[0].answer(ACCEPTED)
        assert json.loads((await following.response()).text)["error"]["message"] == "not like that"
        await following.task.cancelled()
    assert len(server.heard("tasks/update")) == tries


async def test_an_answer_that_was_refused_after_it_was_taken_ends_nothing(
    server: ScriptedServer, guest: Guest, slow: TaskTool
) -> None:
    async with Following(guest, slow) as following:
        following.task.ask(a=ELICIT)
        (question,) = await following.asked()
        server.methods["tasks/update"] = error(-32602, "there is no such question")
        following.task.work()
        question.answer(ACCEPTED)
        await following.task.looked(2)
        following.task.complete(DONE)
        assert (await following.response()).error is None


async def test_an_answer_that_cannot_be_read_breaks_the_protocol(
    server: ScriptedServer, guest: Guest, slow: TaskTool
) -> None:
    async with Following(guest, slow) as following:
        following.task.ask(a=ELICIT)
        server.methods["tasks/update"] = status(200, b"x", content_type="application/json")
        (await following.asked())[0].answer(ACCEPTED)
        assert (await following.failure()).reason == "malformed"
        await following.task.cancelled()


@pytest.mark.parametrize("refuses", [False, True])
async def test_a_question_without_an_answer_that_could_be_told_ends_the_call_and_the_task(
    guest: Guest, slow: TaskTool, refuses: bool
) -> None:
    async with Following(guest, slow) as following:
        following.task.ask(a=SAMPLE, b=ELICIT)
        asked, other = await following.asked(2)
        if refuses:
            asked.refuse()
        else:
            asked.answer(DECLINED)
        error = json.loads((await following.response()).text)["error"]
        assert (error["code"], error["data"]["reason"]) == (-32603, "unanswered")
        assert not other.is_open
        await following.task.cancelled()
    assert following.task.updates == []


@covers("L-INPUT-6")
async def test_what_a_host_did_not_declare_it_is_not_asked(new_guest: NewGuest, slow: TaskTool) -> None:
    async with Following(new_guest(None), slow) as following:
        following.task.ask(a=ELICIT)
        assert await following.task.brought() == {"a": {"action": "cancel"}}
        following.task.ask(b=ROOTS)
        assert (await following.response()).error is not None
    assert following.ear.questions == []


# --- time, and who speaks


@covers("V-INIT-9")
async def test_the_time_of_a_host_is_not_the_servers(new_guest: NewGuest, slow: TaskTool) -> None:
    guest = new_guest(call=timedelta(seconds=0.2), ceiling=timedelta(seconds=20))
    loop = asyncio.get_running_loop()
    async with Following(guest, slow) as following:
        following.task.ask(a=ELICIT)
        (question,) = await following.asked()
        began = loop.time()
        while loop.time() < began + 0.4:
            await following.task.looked()
        question.answer(ACCEPTED)
        await following.task.brought()
        following.task.complete(DONE)
        assert (await following.response()).error is None


async def test_an_answer_is_brought_for_whoever_gave_it(guest: Guest, slow: TaskTool) -> None:
    speakers: list[Any] = []
    send = guest.transport.send

    async def noted(outgoing: Any) -> Any:
        speakers.append((outgoing.headers["Mcp-Method"], outgoing.principal))
        return await send(outgoing)

    guest.transport.send = noted  # type: ignore[method-assign]
    caller, other = somebody("caller"), somebody("other")
    async with Following(guest, slow, principal=caller) as following:
        following.task.ask(a=ELICIT)
        (await following.asked())[0].answer(ACCEPTED, other)
        await following.task.brought()
        await following.task.looked()
    assert ("tools/call", caller) in speakers
    assert ("tasks/get", caller) in speakers
    assert ("tasks/update", other) in speakers
    assert speakers[-1][1] == other


async def test_a_look_whose_token_is_no_good_is_made_for_whom_the_session_speaks(
    server: ScriptedServer, guest: Guest, slow: TaskTool
) -> None:
    speakers: list[Any] = []
    send = guest.transport.send

    async def noted(outgoing: Any) -> Any:
        if outgoing.headers["Mcp-Method"] == "tasks/get":
            speakers.append(outgoing.principal)
        return await send(outgoing)

    guest.transport.send = noted  # type: ignore[method-assign]
    caller = somebody("caller")
    async with Following(guest, slow, principal=caller) as following:
        show, server.methods["tasks/get"] = server.methods["tasks/get"], status(401)
        await eventually(lambda: len(speakers) >= 2)
        server.methods["tasks/get"] = show
        following.task.complete(DONE)
        await following.response()
    assert speakers[0] == caller
    assert set(speakers[1:]) == {None}
