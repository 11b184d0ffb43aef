"""Sessions with a server of the legacy era over lines, as their users know them."""

import asyncio
from typing import Any

import pytest

from helpers.server import Turn, note, progress_note, server_request
from helpers.server.in_process import ScriptedChannel, ScriptedChannels
from helpers.waiting import bounded, eventually
from taskgate.errors import UpstreamFailed
from unit.upstream.conftest import EVERYTHING
from unit.upstream.duplex.conftest import seconds
from unit.upstream.houses import House

ACCEPTED = '{"result":{"action":"accept","content":{}}}'


async def test_a_call_is_answered_over_a_line_after_one_handshake(house: House, program: ScriptedChannels) -> None:
    guest = house.guest()
    for _ in range(2):
        assert (await guest.call()).error is None
    (line,) = program.lines
    assert line.methods() == ["initialize", "notifications/initialized", "tools/call", "tools/call"]
    assert [wish.context for wish in program.wishes] == ["alice"]
    assert b'"capabilities":{}' in (program.wishes[0].declared or b"")


async def test_progress_reaches_its_call_and_no_other(house: House, program: ScriptedChannels) -> None:
    program.silent.add("tools/call")
    guest, other = house.guest(), house.guest()
    calls = [guest.calling(progress=True), other.calling("other", progress=True)]
    line, first = await program.asked("tools/call")
    _, second = await program.asked("tools/call", 2)
    line.say(
        progress_note(first["id"], 1),
        progress_note(second["id"], 7),
        progress_note(first["id"], 2),
        progress_note(999, 5),
    )
    await eventually(lambda: len(guest.heard.call) == 2)
    line.answer(second, {"content": []})
    line.answer(first, {"content": []})
    async with bounded():
        await asyncio.gather(*calls)
    assert [told.params["progress"].value for told in guest.heard.call] == [1, 2]
    assert [told.params["progress"].value for told in other.heard.call] == [7]


async def test_a_question_is_for_the_only_call_under_way_and_its_answer_goes_back(
    house: House, program: ScriptedChannels
) -> None:
    program.silent.add("tools/call")
    guest = house.guest(host=EVERYTHING)
    calling = guest.calling()
    line, asked = await program.asked("tools/call")
    line.say(server_request("q1", message="Sure?", requestedSchema={"type": "object", "properties": {}}))
    await eventually(lambda: guest.heard.of_calls.questions)
    guest.heard.of_calls.questions[0].answer(ACCEPTED)
    await eventually(lambda: [each for each in line.heard if each.get("id") == "q1"])
    line.answer(asked, {"content": []})
    async with bounded():
        assert (await calling).error is None
    assert line.heard[-1] == {"jsonrpc": "2.0", "id": "q1", "result": {"action": "accept", "content": {}}}


async def test_a_call_that_nobody_waits_for_is_cancelled_at_the_server(house: House, program: ScriptedChannels) -> None:
    program.silent.add("tools/call")
    guest = house.guest()
    calling = guest.calling()
    _, asked = await program.asked("tools/call")
    calling.cancel()
    _, told = await program.asked("notifications/cancelled")
    assert told["params"]["requestId"] == asked["id"]
    with pytest.raises(asyncio.CancelledError):
        await calling


async def test_tools_are_read_again_after_the_server_said_that_they_changed(
    house: House, program: ScriptedChannels
) -> None:
    guest = house.guest()
    assert set(await guest.session.tools()) == {"echo"}
    program.tools = [{"name": "other", "inputSchema": {"type": "object"}}]
    program.lines[0].say(note("notifications/tools/list_changed"))
    await eventually(lambda: guest.heard.session)
    assert set(await guest.session.tools()) == {"other"}


async def test_the_loss_of_the_line_fails_the_call_in_words_of_its_own_and_the_next_has_another(
    house: House, program: ScriptedChannels
) -> None:
    program.silent.add("tool:dies")
    guest = house.guest()
    calling = guest.calling("dies")
    line, _ = await program.asked("tools/call")
    line.exit("The server's process exited with status 3")
    async with bounded():
        with pytest.raises(UpstreamFailed) as failed:
            await calling
        assert (await guest.call()).error is None
    assert (failed.value.reason, failed.value.dispatched) == ("closed", True)
    assert str(failed.value) == "The server's process exited with status 3"
    assert len(program.lines) == 2
    assert guest.heard.lost == 1


async def test_the_loss_is_told_in_the_same_words_where_progress_came_before(
    house: House, program: ScriptedChannels
) -> None:
    program.silent.add("tool:dies")
    guest = house.guest()
    calling = guest.calling("dies", progress=True)
    line, asked = await program.asked("tools/call")
    line.say(progress_note(asked["id"], 1))
    await eventually(lambda: guest.heard.call)
    line.exit("The server's process was ended by signal 9")
    async with bounded():
        with pytest.raises(UpstreamFailed, match="The server's process was ended by signal 9"):
            await calling


async def test_a_session_whose_line_was_lost_while_nothing_was_under_way_fails_no_call(
    house: House, program: ScriptedChannels
) -> None:
    guest = house.guest()
    await guest.call()
    await eventually(lambda: "get opened" in guest.heard.streams)
    program.lines[0].exit()
    await eventually(lambda: guest.heard.lost)
    async with bounded():
        assert (await guest.call()).error is None


async def test_a_call_that_meets_the_end_of_a_line_before_anything_of_it_was_written_is_made_on_another(
    house: House, program: ScriptedChannels
) -> None:
    guest = house.guest()
    await guest.call()
    program.lines[0].exit()
    async with bounded():
        assert (await guest.call()).error is None
    assert [line.methods().count("tools/call") for line in program.lines] == [1, 1]
    assert guest.heard.lost == 1


async def test_a_call_is_made_again_once_and_says_then_how_the_line_ended(
    house: House, program: ScriptedChannels, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = program.handle

    async def handle(line: ScriptedChannel, message: dict[str, Any]) -> None:
        if message.get("method") == "notifications/initialized":
            line.exit("The server's process exited with status 4")
        await usual(line, message)

    monkeypatch.setattr(program, "handle", handle)
    async with bounded():
        with pytest.raises(UpstreamFailed, match="The server's process exited with status 4") as failed:
            await house.guest().call()
    assert not failed.value.dispatched
    assert [line.methods().count("tools/call") for line in program.lines] == [0, 0]


@pytest.mark.parametrize("times", [1, 2])
async def test_tools_are_read_once_more_where_the_line_ends_meanwhile(
    house: House, program: ScriptedChannels, times: int
) -> None:

    async def answer(turn: Turn) -> None:
        if len(program.lines) > times:
            await program.usual(turn)
        else:
            program.lines[-1].exit("The server's process exited with status 4")

    program.methods["tools/list"] = answer
    guest = house.guest()
    await guest.call()
    async with bounded():
        if times == 1:
            assert set(await guest.session.tools()) == {"echo"}
        else:
            with pytest.raises(UpstreamFailed, match="The server's process exited with status 4"):
                await guest.session.tools()
    assert len(program.lines) == 2


async def test_a_server_that_never_answers_the_handshake_fails_the_call_and_its_line_is_dropped(new_house) -> None:
    program = ScriptedChannels()
    program.silent.add("initialize")
    guest = new_house(program, first_byte=seconds(0.3)).guest()
    async with bounded():
        with pytest.raises(UpstreamFailed) as failed:
            await guest.call()
    assert (failed.value.reason, failed.value.dispatched) == ("timeout", False)
    await eventually(lambda: program.lines[0].is_lost)
    program.silent.clear()
    async with bounded():
        assert (await guest.call()).error is None
    assert len(program.lines) == 2


async def test_a_server_that_exits_during_the_handshake_says_so_and_nothing_has_left(
    house: House, program: ScriptedChannels
) -> None:
    program.silent.add("initialize")
    guest = house.guest()
    calling = guest.calling()
    line, _ = await program.asked("initialize")
    line.exit("The server's process exited with status 1")
    async with bounded():
        with pytest.raises(UpstreamFailed, match="The server's process exited with status 1") as failed:
            await calling
    assert not failed.value.dispatched


async def test_the_end_of_a_session_gives_its_line_back(house: House, program: ScriptedChannels) -> None:
    guest, other = house.guest(), house.guest()
    await guest.call()
    await other.call()
    (line,) = program.lines
    assert line.holders == 2
    await guest.session.close()
    assert line.holders == 1
    assert not line.is_lost


async def test_an_answer_too_large_to_keep_fails_what_is_under_way(house: House, program: ScriptedChannels) -> None:
    program.silent.add("tools/call")
    guest = house.guest()
    calling = guest.calling()
    line, _ = await program.asked("tools/call")
    line.exit("The server's answer is too large", reason="too_large")
    async with bounded():
        with pytest.raises(UpstreamFailed) as failed:
            await calling
    assert (failed.value.reason, failed.value.dispatched) == ("too_large", True)


async def test_an_answer_that_is_no_json_fails_its_call_at_once(house: House, program: ScriptedChannels) -> None:
    program.silent.add("tool:broken")
    guest = house.guest()
    calling = guest.calling("broken")
    line, asked = await program.asked("tools/call")
    line.say(b'{"jsonrpc":"2.0","id":%d,"result":{"content":"\xff\xfe"}}' % asked["id"])
    async with bounded():
        with pytest.raises(UpstreamFailed) as failed:
            await calling
        assert (await guest.call()).error is None
    assert failed.value.reason == "malformed"
    assert len(program.lines) == 1
