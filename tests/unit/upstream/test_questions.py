"""What a server asks of a host: who hears it, and what the server is told."""

import asyncio
import json
from typing import Any

import pytest

from helpers.recording_listener import RecordingListener
from helpers.server import Hold, ScriptedServer, Turn, asks, event, note, open_stream, stream
from helpers.waiting import bounded, eventually
from requirements import covers
from taskgate.protocol.extensions import ExtensionPolicy
from taskgate.protocol.legacy.upstream import LegacyUpstream
from taskgate.protocol.server_messages import Question, ReceivedQuestion
from taskgate.upstream.calls import Principal
from taskgate.upstream.legacy.questions import MAX_OPEN, Questions
from unit.upstream.asking import ACCEPTED, CANCELLED, Asking, question, told
from unit.upstream.conftest import Caller

# --- who hears it


async def test_a_question_on_a_calls_stream_is_the_calls_and_its_answer_reaches_the_server(
    server: ScriptedServer, asked: Caller
) -> None:
    server.script["asks"] = asks(question("a", message="Name?"), question(7))
    ear = RecordingListener()
    calling = asyncio.create_task(asked.call("asks", ear=ear))
    await eventually(lambda: len(ear.questions) == 2)
    assert ear.questions[0].question.method == "elicitation/create"
    assert ear.questions[0].question.params is not None
    assert ear.questions[0].question.params.head == '{"message": "Name?"}'
    for each in ear.questions:
        assert each.is_open
        each.answer('{"result":{"action":"accept","content":{"n":1}}}')
        assert not each.is_open
    async with bounded():
        answers = (await calling).result.value["structuredContent"]["answers"]
    accepted = {"action": "accept", "content": {"n": 1}}
    assert answers == [{"jsonrpc": "2.0", "id": id_, "result": accepted} for id_ in ("a", 7)]
    assert asked.heard.of_session.questions == []


async def test_a_question_of_two_calls_at_once_is_heard_by_the_one_on_whose_stream_it_came(
    server: ScriptedServer, asked: Caller
) -> None:
    server.script["slow"] = hold = Hold()
    other = asyncio.create_task(asked.call("slow"))
    async with bounded():
        await hold.begun.wait()
    async with Asking(server, asked) as asking:
        assert asking.ear.questions[0].is_open
        assert asked.heard.of_calls.questions == []
    hold.release({"content": []})
    await other


@covers("U-HTTP-3")
@pytest.mark.parametrize("calls", [0, 1, 2])
async def test_a_question_on_the_get_stream_is_for_the_only_call_or_else_the_session(
    server: ScriptedServer, asked: Caller, calls: int
) -> None:
    server.script["slow"] = hold = Hold()
    await asked.session.open()
    await server.streaming()
    calling = [asyncio.create_task(asked.call("slow")) for _ in range(calls)]
    await eventually(lambda: len(hold.turns) == calls)
    await server.push(question())
    heard, silent = asked.heard.of_session, asked.heard.of_calls
    if calls == 1:
        heard, silent = silent, heard
    await eventually(lambda: heard.questions)
    assert silent.questions == []
    heard.questions[0].answer(ACCEPTED)
    assert (await server.reply_to("q"))["result"] == {"action": "accept"}
    hold.release({"content": []})
    await asyncio.gather(*calling)


@pytest.mark.parametrize("calls", [0, 1, 2])
async def test_what_its_host_did_not_declare_is_told_to_whoever_would_have_been_asked(
    server: ScriptedServer, caller: Caller, calls: int
) -> None:
    server.script["slow"] = hold = Hold()
    await caller.session.open()
    await server.streaming()
    calling = [asyncio.create_task(caller.call("slow")) for _ in range(calls)]
    await eventually(lambda: len(hold.turns) == calls)
    await server.push(question(), {"jsonrpc": "2.0", "id": "p", "method": "ping"})
    await server.reply_to("p")
    told_of, silent = caller.heard.of_session, caller.heard.of_calls
    if calls == 1:
        told_of, silent = silent, told_of
    assert (told_of.refusals, silent.refusals) == ([{"elicitation": {}}], [])
    assert (await server.reply_to("q"))["error"]["code"] == -32601
    hold.release({"content": []})
    await asyncio.gather(*calling)


async def test_a_question_of_no_call_is_of_the_newest_where_the_session_cannot_be_asked(
    server: ScriptedServer, asked: Caller
) -> None:
    holds = [Hold(), Hold()]
    server.script["first"], server.script["second"] = holds
    ears = [RecordingListener(), RecordingListener()]
    asked.heard.of_session.can_be_asked = False
    await asked.session.open()
    await server.streaming()
    calling = []
    for name, hold, ear in zip(("first", "second"), holds, ears, strict=True):
        calling.append(asyncio.create_task(asked.call(name, ear=ear)))
        async with bounded():
            await hold.begun.wait()
    await server.push(question("q"))
    await eventually(lambda: ears[1].questions)
    # It may have been for the other: the end of this one is no answer of a user.
    holds[1].release({"content": []})
    await calling[1]
    await eventually(lambda: ears[0].questions)
    assert (ears[1].questions[0].is_open, server.replies) == (False, [])
    ears[0].questions[0].answer('{"result":{"action":"accept","content":{}}}')
    assert (await server.reply_to("q"))["result"]["action"] == "accept"
    holds[0].release({"content": []})
    await calling[0]


async def test_reading_the_catalogue_is_no_call_that_a_question_could_be_for(
    server: ScriptedServer, asked: Caller
) -> None:
    server.script["slow"] = hold = Hold()
    server.methods["tools/list"] = listing = Hold()
    await asked.session.open()
    await server.streaming()
    reading = asyncio.create_task(asked.session.tools())
    async with bounded():
        await listing.begun.wait()
    await server.push(question("early"))
    await eventually(lambda: asked.heard.of_session.questions)
    calling = asyncio.create_task(asked.call("slow"))
    async with bounded():
        await hold.begun.wait()
    await server.push(question("late"))
    await eventually(lambda: asked.heard.of_calls.questions)
    listing.release({"tools": []})
    hold.release({"content": []})
    await asyncio.gather(reading, calling)


@pytest.mark.parametrize("place", ["call", "get"])
async def test_a_notification_belongs_to_the_stream_it_came_on(
    server: ScriptedServer, caller: Caller, place: str
) -> None:
    said = note("notifications/message", level="info", data="hello")
    if place == "call":
        server.script["tells"] = stream({"content": []}, before=[said])
        await caller.call("tells")
        assert [each.method for each in caller.heard.call] == ["notifications/message"]
        assert caller.heard.session == []
        return
    server.script["slow"] = hold = Hold()
    calling = asyncio.create_task(caller.call("slow"))
    async with bounded():
        await hold.begun.wait()
    await server.push(said)
    await eventually(lambda: caller.heard.session)
    hold.release({"content": []})
    await calling
    assert caller.heard.call == []


@pytest.mark.parametrize("place", ["call", "get"])
async def test_a_changed_catalogue_is_read_again_whoever_hears_of_it(
    server: ScriptedServer, caller: Caller, place: str
) -> None:
    await caller.session.tools()
    changed = note("notifications/tools/list_changed")
    server.tools = [{"name": "new"}]
    if place == "call":
        server.script["changes"] = stream({"content": []}, before=[changed])
        await caller.call("changes")
        assert len(caller.heard.call) == 1
    else:
        await server.streaming()
        await server.push(changed)
        await eventually(lambda: caller.heard.session)
    assert set(await caller.session.tools()) == {"new"}


async def test_a_question_after_the_answer_is_never_heard(server: ScriptedServer, asked: Caller) -> None:
    async def late(turn: Turn) -> Any:
        response = await open_stream(turn.request)
        await response.write(event(turn.answer({"content": []})) + event(question()))
        await response.write_eof()
        return response

    server.script["late"] = late
    async with bounded():
        await asked.call("late")
        await asked.call()
    assert asked.heard.of_calls.questions == asked.heard.of_session.questions == []


# --- what the server is told


async def test_only_the_first_answer_reaches_the_server(server: ScriptedServer, asked: Caller) -> None:
    async with Asking(server, asked) as asking:
        [one] = asking.ear.questions
        one.answer(ACCEPTED)
        one.answer('{"result":{"action":"decline"}}')
        one.refuse()
        await server.reply_to("q")
    await asked.session.close()
    assert [each["result"] for each in server.replies] == [{"action": "accept"}]


async def test_a_question_that_is_refused_is_answered_as_if_nobody_had_been_there(
    server: ScriptedServer, asked: Caller
) -> None:
    async with Asking(server, asked) as asking:
        [one] = asking.ear.questions
        one.refuse()
        assert not one.is_open
        assert (await server.reply_to("q"))["result"] == CANCELLED


async def test_the_server_hears_how_far_the_host_is_under_its_own_token(server: ScriptedServer, asked: Caller) -> None:
    untracked, tracked = question("a"), question("b", _meta={"progressToken": "theirs"})
    async with Asking(server, asked, untracked, tracked) as asking:
        for each in asking.ear.questions:
            each.tell(
                told('{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"x","progress":1}}')
            )
        await eventually(lambda: server.heard("notifications/progress"))
        for each in asking.ear.questions:
            each.answer(ACCEPTED)
            each.tell(
                told('{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"x","progress":2}}')
            )
        await server.reply_to("b")
    await asked.session.close()
    assert [each["params"] for each in server.heard("notifications/progress")] == [
        {"progressToken": "theirs", "progress": 1}
    ]


async def test_a_question_that_is_asked_again_is_heard_once_and_answered_once(
    server: ScriptedServer, asked: Caller
) -> None:
    async with Asking(server, asked) as asking:
        await server.push(question(), question("other"), question("last"))
        await eventually(lambda: len(asking.ear.questions) == 3)
        assert server.replies == []
        asking.ear.questions[0].answer(ACCEPTED)
        await eventually(lambda: len(server.replies) == 1)
        await server.push(question())
        await eventually(lambda: len(asking.ear.questions) == 4)


async def test_no_more_questions_than_a_bound_are_open_at_once(server: ScriptedServer, asked: Caller) -> None:
    async with Asking(server, asked, *(question(number) for number in range(MAX_OPEN))) as asking:
        await server.push(question("more"))
        assert (await server.reply_to("more"))["result"] == CANCELLED
        asking.ear.questions[5].answer(ACCEPTED)
        await server.push(question("again"))
        await eventually(lambda: len(asking.ear.questions) == MAX_OPEN + 1)


async def test_whatever_a_server_is_flooded_with_answers_are_not_dropped() -> None:
    said: list[tuple[str, bool]] = []
    replied: list[tuple[str, Principal | None]] = []
    questions = Questions(
        LegacyUpstream("1", ExtensionPolicy()),
        lambda message, *, droppable=False: said.append((message, droppable)),
        lambda message, principal: replied.append((message, principal)),
    )
    asked, alice = ReceivedQuestion("q", Question("roots/list", None), "token"), Principal(context="alice")
    one, *others = (questions.ask(asked._replace(id=id_), None, came_aside=True) for id_ in ("q", *range(MAX_OPEN)))
    assert one is not None
    assert others[-1] is None
    one.tell(told('{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"x","progress":1}}'))
    one.answer(ACCEPTED, alice)
    assert [droppable for _, droppable in said] == [True, True]
    assert [(json.loads(message)["result"], principal) for message, principal in replied] == [
        ({"action": "accept"}, alice)
    ]


async def test_an_answer_for_nobody_is_insisted_on_too() -> None:
    replied: list[Principal | None] = []
    questions = Questions(
        LegacyUpstream("1", ExtensionPolicy()),
        lambda message, *, droppable=False: None,
        lambda message, principal: replied.append(principal),
    )
    one = questions.ask(ReceivedQuestion("q", Question("roots/list", None), None), None, came_aside=True)
    assert one is not None
    one.refuse()
    one.refuse()
    assert replied == [None]


# --- what a host tells its server


async def test_what_the_server_was_told_to_expect_of_the_host_is_passed_on(
    server: ScriptedServer, asked: Caller, caller: Caller
) -> None:
    changed = told('{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}')
    asked.session.tell(changed)
    for each in (asked, caller):
        await each.session.open()
        each.session.tell(changed)
        each.session.tell(told('{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"t"}}'))
        await each.session.close()
        each.session.tell(changed)
    assert len(server.heard("notifications/roots/list_changed")) == 1
    assert [each["params"] for each in server.heard("notifications/tasks/status")] == [{"taskId": "t"}]
    declared = [each["params"]["capabilities"] for each in server.heard("initialize")]
    assert [sorted(each) for each in declared] == [["elicitation", "roots", "sampling", "tasks"], []]
