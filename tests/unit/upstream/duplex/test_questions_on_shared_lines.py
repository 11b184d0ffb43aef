"""Whom a program asks that several sessions share, and what it may tell where they are of several callers."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from helpers.server import note, server_request
from helpers.server.in_process import ScriptedChannel, ScriptedChannels
from helpers.waiting import eventually
from taskgate.errors import UpstreamFailed
from taskgate.upstream.duplex.outstanding import STILL
from unit.upstream.conftest import EVERYTHING
from unit.upstream.houses import Guest, House

ACCEPTED = '{"result":{"action":"accept","content":{}}}'


async def both(house: House, first: str = "alice", second: str = "alice") -> tuple[Guest, Guest]:
    """Two sessions that stand, and are heard."""
    guests = house.guest(first, EVERYTHING), house.guest(second, EVERYTHING)
    for guest in guests:
        await guest.call()
        await eventually(lambda guest=guest: "get opened" in guest.heard.streams)
    return guests


def answers(line: ScriptedChannel, id: str) -> list[object]:
    """The answers to what was asked under that id."""
    return [each for each in line.heard if each.get("id") == id and "method" not in each]


# --- what is asked


async def test_a_question_is_for_the_session_whose_request_is_the_only_one(
    house: House, program: ScriptedChannels
) -> None:
    first, second = await both(house)
    program.silent.add("tools/call")
    for guest, other, id_ in ((first, second, "a"), (second, first, "b")):
        calling = guest.calling()
        line, asked = await program.asked("tools/call", 3 if guest is first else 4)
        line.say(server_request(id_))
        await eventually(lambda guest=guest: guest.heard.of_calls.questions)
        guest.heard.of_calls.questions[-1].answer(ACCEPTED)
        await eventually(lambda id_=id_: answers(program.lines[0], id_))
        line.answer(asked, {})
        await calling
        assert not other.heard.of_session.questions
    assert len(first.heard.of_calls.questions) == len(second.heard.of_calls.questions) == 1


async def test_a_question_that_may_be_of_several_sessions_of_a_caller_is_asked_in_the_newest_at_work(
    house: House, program: ScriptedChannels
) -> None:
    first, second, third = guests = [*await both(house), house.guest(host=EVERYTHING)]
    await third.call()
    (line,) = program.lines
    line.say(server_request("of none"))
    await eventually(lambda: third.heard.of_session.questions)
    program.silent.add("tools/call")
    calls = [first.calling(), second.calling()]
    for turn in (4, 5):
        await program.asked("tools/call", turn)
    line.say(server_request("of either"), server_request("another", "sampling/createMessage"))
    await eventually(lambda: len(second.heard.of_calls.questions) == 2)
    second.heard.of_calls.questions[0].answer(ACCEPTED)
    await eventually(lambda: answers(line, "of either"))
    assert "accept" in str(answers(line, "of either"))
    for asked in [each for each in line.heard if each.get("method") == "tools/call"]:
        line.answer(asked, {})
    await asyncio.gather(*calls)
    assert sum(len(guest.heard.of_calls.questions + guest.heard.of_session.questions) for guest in guests) == 3


async def given_up(program: ScriptedChannels, guest: Guest, turn: int) -> tuple[ScriptedChannel, dict[str, Any]]:
    """Have a call given up that the server goes on with."""
    program.silent.add("tools/call")
    calling = guest.calling()
    line, asked = await program.asked("tools/call", turn)
    calling.cancel()
    await eventually(lambda: "notifications/cancelled" in line.methods())
    return line, asked


async def test_a_call_that_was_given_up_keeps_its_own_caller_from_being_asked_nothing(
    house: House, program: ScriptedChannels
) -> None:
    first, second = await both(house)
    line, _ = await given_up(program, first, 3)
    calling = second.calling()
    _, asked = await program.asked("tools/call", 4)
    line.say(server_request("q"))
    await eventually(lambda: second.heard.of_calls.questions)
    line.answer(asked, {})
    await calling
    assert not first.heard.of_session.questions


async def test_a_call_that_was_given_up_counts_among_those_of_its_caller_for_a_while_only(
    house: House, program: ScriptedChannels
) -> None:
    first, second = await both(house)
    line, _ = await given_up(program, first, 3)
    line.say(server_request("q"))
    await eventually(lambda: first.heard.of_session.questions)
    await asyncio.sleep(STILL)
    line.say(server_request("r"))
    await eventually(lambda: second.heard.of_session.questions)


async def test_the_only_session_is_asked_what_may_be_of_one_of_its_caller_that_is_over(
    house: House, program: ScriptedChannels
) -> None:
    first, second = await both(house)
    program.silent.add("tools/call")
    left = first.calling()
    line, _ = await program.asked("tools/call", 3)
    await first.session.close()
    with pytest.raises(UpstreamFailed):
        await left
    calling = second.calling()
    _, asked = await program.asked("tools/call", 4)
    line.say(server_request("q"))
    await eventually(lambda: second.heard.of_calls.questions)
    line.answer(asked, {})
    await calling


async def test_a_question_about_a_task_of_the_server_is_for_who_waits_for_its_outcome(
    house: House, program: ScriptedChannels
) -> None:
    first, second = await both(house)
    program.silent |= {"tools/call", "tasks/result"}
    calls = [first.ask_later("tasks/result", '{"taskId":"t"}'), second.calling()]
    line, waiting = await program.asked("tasks/result")
    _, asked = await program.asked("tools/call", 3)
    line.say(server_request("q", _meta={"io.modelcontextprotocol/related-task": {"taskId": "t"}}))
    await eventually(lambda: first.heard.of_calls.questions)
    line.answer(waiting, {"content": []})
    line.answer(asked, {})
    await asyncio.gather(*calls)
    assert not second.heard.of_calls.questions


async def test_a_ping_of_the_server_is_answered_once(house: House, program: ScriptedChannels) -> None:
    await both(house)
    (line,) = program.lines
    line.say(server_request("p", "ping"))
    await eventually(lambda: answers(line, "p"))
    assert answers(line, "p") == [{"jsonrpc": "2.0", "id": "p", "result": {}}]


async def test_a_withdrawn_question_is_withdrawn_where_it_was_asked(house: House, program: ScriptedChannels) -> None:
    first, _ = await both(house)
    program.silent.add("tools/call")
    calling = first.calling()
    line, asked = await program.asked("tools/call", 3)
    line.say(server_request("q"))
    await eventually(lambda: first.heard.of_calls.questions)
    line.say(note("notifications/cancelled", requestId="q"))
    await eventually(lambda: not first.heard.of_calls.questions[0].is_open)
    line.answer(asked, {})
    await calling


# --- lines for several callers


@pytest.fixture
def pool(new_house: Callable[..., House], program: ScriptedChannels) -> House:
    """Everybody who speaks to a server that keeps nothing of anybody, on one line."""
    program.pool = True
    return new_house(program)


async def test_a_line_for_several_callers_asks_nobody_what_may_be_for_another(
    pool: House, program: ScriptedChannels
) -> None:
    alice, bob = await both(pool, "alice", "bob")
    program.silent.add("tools/call")
    calls = [alice.calling(), bob.calling()]
    line, _ = await program.asked("tools/call", 3)
    await program.asked("tools/call", 4)
    line.say(server_request("q"))
    await eventually(lambda: answers(line, "q"))
    assert "error" in answers(line, "q")[0]  # type: ignore[operator]
    line.say(server_request("p", "ping"))
    await eventually(lambda: answers(line, "p"))
    assert answers(line, "p") == [{"jsonrpc": "2.0", "id": "p", "result": {}}]
    line.say(note("notifications/message", level="info", data="of one of them"))
    line.say(note("notifications/tools/list_changed"))
    await eventually(lambda: alice.heard.session and bob.heard.session)
    for asked in [each for each in line.heard if each.get("method") == "tools/call"]:
        line.answer(asked, {})
    await asyncio.gather(*calls)
    for guest in (alice, bob):
        assert [told.method for told in guest.heard.session] == ["notifications/tools/list_changed"]
        assert not guest.heard.of_calls.questions + guest.heard.of_session.questions


async def test_a_line_asks_and_tells_nobody_what_may_be_for_a_caller_who_gave_up(
    pool: House, program: ScriptedChannels
) -> None:
    alice, bob = await both(pool, "alice", "bob")
    line, left = await given_up(program, bob, 3)
    await bob.session.close()
    # However long ago that was.
    await asyncio.sleep(STILL)
    calling = alice.calling()
    _, asked = await program.asked("tools/call", 4)
    said = [note("notifications/message", level="info", data="bob's"), note("notifications/tools/list_changed")]
    line.say(server_request("q"), *said, note("notifications/elicitation/complete", elicitationId="bob's"))
    await eventually(lambda: answers(line, "q"))
    await eventually(lambda: alice.heard.session)
    assert "error" in answers(line, "q")[0]  # type: ignore[operator]
    line.answer(left, {})
    line.say(server_request("r"))
    await eventually(lambda: alice.heard.of_calls.questions)
    line.answer(asked, {})
    await calling
    assert len(alice.heard.of_calls.questions) == 1
    assert [told.method for told in alice.heard.session] == ["notifications/tools/list_changed"]


async def test_one_call_among_several_callers_is_not_asked_what_names_none(
    pool: House, program: ScriptedChannels
) -> None:
    alice, bob = await both(pool, "alice", "bob")
    program.silent.add("tools/call")
    calling = alice.calling()
    line, asked = await program.asked("tools/call", 3)
    line.say(server_request("q"))
    await eventually(lambda: answers(line, "q"))
    line.answer(asked, {})
    await calling
    assert not alice.heard.of_calls.questions + bob.heard.of_session.questions


async def test_a_line_for_several_callers_tells_of_a_resource_whoever_wants_to_hear_of_it(
    pool: House, program: ScriptedChannels
) -> None:
    alice, bob = await both(pool, "alice", "bob")
    await bob.ask("resources/subscribe", '{"uri":"file:///b"}')
    (line,) = program.lines
    line.say(note("notifications/resources/updated", uri="file:///b"))
    line.say(note("notifications/tools/list_changed"))
    await eventually(lambda: len(bob.heard.session) == 2 and alice.heard.session)
    assert [told.method for told in alice.heard.session] == ["notifications/tools/list_changed"]


async def test_callers_have_lines_of_their_own_unless_the_operator_says_otherwise(
    house: House, program: ScriptedChannels
) -> None:
    await both(house, "alice", "bob")
    assert [wish.context for wish in program.wishes] == ["alice", "bob"]
    assert len(program.lines) == 2
