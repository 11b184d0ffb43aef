"""Lines that several sessions share: one handshake, and to whom is said what belongs to no request (U-STDIO-4)."""

import asyncio

import pytest

from helpers.server import note, server_request
from helpers.server.in_process import ScriptedChannel, ScriptedChannels
from helpers.waiting import bounded, eventually
from taskgate.errors import UpstreamFailed
from unit.upstream.conftest import EVERYTHING
from unit.upstream.houses import Guest, House


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


async def test_a_second_session_is_welcomed_in_the_words_of_the_first(house: House, program: ScriptedChannels) -> None:
    first, second = await both(house)
    assert await first.session.open() == await second.session.open()
    (line,) = program.lines
    assert line.methods() == ["initialize", "notifications/initialized", "tools/call", "tools/call"]
    assert line.holders == 2


async def test_sessions_that_begin_at_once_greet_the_server_once(house: House, program: ScriptedChannels) -> None:
    program.silent.add("initialize")
    opening = [asyncio.create_task(house.guest().session.open()) for _ in range(3)]
    line, asked = await program.asked("initialize")
    await eventually(lambda: line.holders == 3)
    line.answer(asked, program.handshake())
    async with bounded():
        servers = await asyncio.gather(*opening)
    assert line.methods() == ["initialize", "notifications/initialized"]
    assert servers[0] == servers[1] == servers[2]


async def test_a_refusal_of_the_handshake_is_everybodys_and_the_next_session_asks_again(
    house: House, program: ScriptedChannels
) -> None:
    program.silent.add("initialize")
    opening = [asyncio.create_task(house.guest().session.open()) for _ in range(2)]
    line, asked = await program.asked("initialize")
    await eventually(lambda: line.holders == 2)
    line.say({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32000, "message": "not now"}})
    async with bounded():
        for failed in await asyncio.gather(*opening, return_exceptions=True):
            assert isinstance(failed, UpstreamFailed)
            assert str(failed) == "The server refused to open a session"
    await eventually(lambda: line.holders == 0)
    program.silent.clear()
    await house.guest().call()
    assert line.methods().count("initialize") == 2


async def test_a_line_whose_server_welcomes_with_nonsense_is_dropped(house: House, program: ScriptedChannels) -> None:
    program.silent.add("initialize")
    opening = asyncio.create_task(house.guest().session.open())
    line, asked = await program.asked("initialize")
    later = asyncio.create_task(house.guest().session.open())
    await eventually(lambda: line.holders == 2)
    line.answer(asked, {"capabilities": {}})
    async with bounded():
        for failed in await asyncio.gather(opening, later, return_exceptions=True):
            assert str(failed) == "The server broke the protocol: it chose an unknown protocol revision"
    assert line.was_dropped
    program.silent.clear()
    assert (await house.guest().call()).error is None


async def test_who_leaves_during_the_handshake_takes_nobody_along(house: House, program: ScriptedChannels) -> None:
    program.silent.add("initialize")
    leaving = asyncio.create_task(house.guest().session.open())
    line, asked = await program.asked("initialize")
    staying = house.guest().calling()
    await eventually(lambda: line.holders == 2)
    await house.guests[0].session.close()
    await eventually(lambda: line.holders == 1)
    line.answer(asked, program.handshake())
    async with bounded():
        assert (await staying).error is None
        with pytest.raises(UpstreamFailed):
            await leaving
    assert not line.was_dropped


async def test_a_welcome_that_nobody_waited_for_is_remembered(house: House, program: ScriptedChannels) -> None:
    program.silent.add("initialize")
    opening = asyncio.create_task(house.guest().session.open())
    line, asked = await program.asked("initialize")
    await house.guests[0].session.close()
    with pytest.raises(UpstreamFailed):
        await opening
    line.answer(asked, program.handshake())
    async with bounded():
        assert (await house.guest().call()).error is None
    assert line.methods() == ["initialize", "notifications/initialized", "tools/call"]


async def test_the_loss_of_the_line_is_everybodys(house: House, program: ScriptedChannels) -> None:
    guests = await both(house)
    program.silent.add("tools/call")
    calls = [guest.calling() for guest in guests]
    await program.asked("tools/call", 4)
    program.lines[0].exit("The server's process exited with status 3")
    async with bounded():
        for failed in await asyncio.gather(*calls, return_exceptions=True):
            assert str(failed) == "The server's process exited with status 3"
        program.silent.clear()
        for guest in guests:
            assert (await guest.call()).error is None
    assert len(program.lines) == 2


# --- what is said to everybody


async def test_everybody_hears_that_the_tools_changed(house: House, program: ScriptedChannels) -> None:
    guests = await both(house)
    program.lines[0].say(note("notifications/tools/list_changed"))
    await eventually(lambda: all(guest.heard.session for guest in guests))


async def test_a_log_line_is_for_the_only_session_at_work_and_else_for_everybody(
    house: House, program: ScriptedChannels
) -> None:
    first, second = await both(house)
    (line,) = program.lines
    line.say(note("notifications/message", level="info", data=1))
    await eventually(lambda: first.heard.session and second.heard.session)
    program.silent.add("tools/call")
    calling = second.calling()
    _, asked = await program.asked("tools/call", 3)
    line.say(note("notifications/message", level="info", data=2), note("notifications/tools/list_changed"))
    await eventually(lambda: len(first.heard.session) == 2 and len(second.heard.session) == 3)
    line.answer(asked, {})
    await calling
    assert [told.method for told in first.heard.session] == [
        "notifications/message",
        "notifications/tools/list_changed",
    ]


# --- who leaves


async def test_a_session_that_ends_leaves_nothing_running_and_no_question_open(
    house: House, program: ScriptedChannels
) -> None:
    first, _ = await both(house)
    program.silent.add("tools/call")
    calling = first.calling()
    line, asked = await program.asked("tools/call", 3)
    line.say(server_request("q"))
    await eventually(lambda: first.heard.of_calls.questions)
    await first.session.close()
    with pytest.raises(UpstreamFailed):
        await calling
    await eventually(lambda: answers(line, "q"))
    cancelled = [each["params"]["requestId"] for each in line.heard if each.get("method") == "notifications/cancelled"]
    assert set(cancelled) == {asked["id"]}
    assert line.holders == 1


async def test_what_one_session_wants_no_more_another_still_hears(house: House, program: ScriptedChannels) -> None:
    first, second = await both(house)
    wanted = '{"uri":"file:///a"}'
    for guest in (first, second):
        await guest.ask("resources/subscribe", wanted)
    await first.ask("resources/unsubscribe", wanted)
    (line,) = program.lines
    assert "resources/unsubscribe" not in line.methods()
    await second.ask("resources/unsubscribe", wanted)
    assert line.methods().count("resources/unsubscribe") == 1
