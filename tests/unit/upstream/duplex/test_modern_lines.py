"""Requests of the modern era over lines: one for each context, no session, nothing left running (U-STDIO-5)."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from helpers.server import note, progress_note
from helpers.server.in_process import ScriptedChannels
from helpers.waiting import bounded, eventually
from requirements import covers
from taskgate.errors import UpstreamFailed, UpstreamReason
from unit.upstream.duplex.conftest import seconds
from unit.upstream.houses import Guest, House

SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


def tagged(method: str, id: Any, **params: Any) -> dict[str, Any]:
    """A notification on the stream of that request."""
    return note(method, _meta={SUBSCRIPTION: id}, **params)


@pytest.fixture
def quiet(modern: ScriptedChannels) -> ScriptedChannels:
    """The server, which tells of no changes."""
    modern.capabilities = {"tools": {}}
    return modern


async def test_a_call_is_answered_over_the_line_of_its_context(modern_house: House, quiet: ScriptedChannels) -> None:
    guest, other = modern_house.modern("alice"), modern_house.modern("bob")
    for each in (guest, guest, other):
        assert (await each.call()).error is None
    assert {(wish.context, wish.declared) for wish in quiet.wishes} == {("alice", None), ("bob", None)}
    assert all(line.holders == 0 for line in quiet.lines)
    assert "initialize" not in [method for line in quiet.lines for method in line.methods()]


async def test_who_it_is_is_asked_first_on_a_line_of_its_own_and_later_on_any(
    modern_house: House, quiet: ScriptedChannels
) -> None:
    await modern_house.modern("alice").call()
    await modern_house.modern("bob").call()
    asked = [wish.probes for wish in quiet.wishes if b"server/discover" in (wish.outgoing.body or b"")]
    assert asked == [True, False]
    assert not any(line.was_dropped for line in quiet.lines)


async def test_a_server_that_ends_of_being_asked_who_it_is_says_so(
    modern_house: House, modern: ScriptedChannels
) -> None:
    modern.silent.add("server/discover")
    calling = modern_house.modern().calling()
    line, _ = await modern.asked("server/discover")
    line.exit("The server's process exited with status 1")
    async with bounded():
        with pytest.raises(UpstreamFailed, match="The server's process exited with status 1") as failed:
            await calling
    assert not failed.value.dispatched
    assert line.was_dropped


async def test_progress_reaches_its_call_alone(modern_house: House, quiet: ScriptedChannels) -> None:
    guest = modern_house.modern()
    quiet.silent.add("tools/call")
    calls = [guest.calling(progress=True), modern_house.modern().calling("other", progress=True)]
    line, first = await quiet.asked("tools/call")
    _, second = await quiet.asked("tools/call", 2)
    line.say(progress_note(first["id"], 1), progress_note(second["id"], 2), progress_note(77, 3))
    await eventually(lambda: guest.heard.call)
    for asked in (first, second):
        line.answer(asked, {"resultType": "complete", "content": []})
    await asyncio.gather(*calls)
    assert [told.params["progress"].value for told in guest.heard.call] == [1]


async def test_a_log_line_is_of_the_only_request_under_way(modern_house: House, quiet: ScriptedChannels) -> None:
    guest = modern_house.modern()
    await guest.call()
    quiet.silent.add("tools/call")
    calls = [guest.calling()]
    line, first = await quiet.asked("tools/call", 2)
    line.say(note("notifications/message", level="info", data="of it"))
    await eventually(lambda: guest.heard.call)
    calls.append(guest.calling())
    _, second = await quiet.asked("tools/call", 3)
    line.say(note("notifications/message", level="info", data="of either"))
    for asked in (first, second):
        line.answer(asked, {"resultType": "complete", "content": []})
    await asyncio.gather(*calls)
    assert len(guest.heard.call) == 1


async def test_a_log_line_is_of_no_request_while_one_that_was_given_up_may_run(
    modern_house: House, quiet: ScriptedChannels
) -> None:
    guest = modern_house.modern()
    quiet.silent.add("tools/call")
    calling = guest.calling()
    line, left = await quiet.asked("tools/call")
    calling.cancel()
    await quiet.asked("notifications/cancelled")
    calling = guest.calling()
    _, asked = await quiet.asked("tools/call", 2)
    line.say(note("notifications/message", level="info", data="of either"))
    line.answer(left, {"resultType": "complete", "content": []})
    line.say(note("notifications/message", level="info", data="of it"))
    await eventually(lambda: guest.heard.call)
    line.answer(asked, {"resultType": "complete", "content": []})
    await calling
    assert [told.params["data"].value for told in guest.heard.call] == ["of it"]


async def test_a_call_that_nobody_waits_for_is_cancelled_by_a_message(
    modern_house: House, quiet: ScriptedChannels
) -> None:
    guest = modern_house.modern()
    quiet.silent.add("tools/call")
    calling = guest.calling()
    line, asked = await quiet.asked("tools/call")
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    _, told = await quiet.asked("notifications/cancelled")
    assert told["params"]["requestId"] == asked["id"]
    await eventually(lambda: line.holders == 0)
    line.answer(asked, {"resultType": "complete", "content": []})
    quiet.silent.clear()
    assert (await guest.call()).error is None


async def test_a_call_that_was_answered_is_cancelled_by_nobody(modern_house: House, quiet: ScriptedChannels) -> None:
    await modern_house.modern().call()
    assert "notifications/cancelled" not in [method for line in quiet.lines for method in line.methods()]


async def test_what_could_not_be_sent_is_cancelled_by_nobody(modern_house: House, quiet: ScriptedChannels) -> None:
    guest = modern_house.modern()
    await guest.call()
    line = quiet.lines[-1]
    line.status = UpstreamFailed(UpstreamReason.CLOSED, "The line broke", dispatched=False)
    with pytest.raises(UpstreamFailed, match="The line broke"):
        await guest.call()
    line.status = 202
    assert (await guest.call()).error is None
    assert "notifications/cancelled" not in line.methods()


async def test_the_loss_of_the_line_fails_what_is_under_way_and_the_next_call_has_another(
    modern_house: House, quiet: ScriptedChannels
) -> None:
    guest = modern_house.modern()
    quiet.silent.add("tools/call")
    calling = guest.calling()
    line, _ = await quiet.asked("tools/call")
    line.exit("The server's process was ended by signal 11")
    async with bounded():
        with pytest.raises(UpstreamFailed, match="The server's process was ended by signal 11") as failed:
            await calling
        quiet.silent.clear()
        assert (await guest.call()).error is None
    assert failed.value.dispatched
    assert "notifications/cancelled" not in line.methods()


async def test_a_request_has_its_time_for_a_line_too(quiet: ScriptedChannels, new_house: Callable[..., House]) -> None:
    guest = new_house(quiet, first_byte=seconds(0.05)).modern()
    quiet.taking = asyncio.Event()
    async with bounded():
        with pytest.raises(UpstreamFailed) as failed:
            await guest.ask("prompts/list")
    assert (failed.value.reason, failed.value.dispatched) == ("timeout", False)


# --- streams that listen


async def opened(house: House, program: ScriptedChannels, context: str = "alice") -> Guest:
    """A session that listens."""
    guest = house.modern(context)
    await guest.call()
    await eventually(lambda: "listen opened" in guest.heard.streams)
    return guest


@covers("U-STDIO-5")
async def test_streams_are_told_apart_by_what_is_said_of_them(modern_house: House, modern: ScriptedChannels) -> None:
    guests = [await opened(modern_house, modern) for _ in range(2)]
    line, first = await modern.asked("subscriptions/listen")
    _, second = await modern.asked("subscriptions/listen", 2)
    line.say(tagged("notifications/tools/list_changed", second["id"]))
    await eventually(lambda: guests[1].heard.session)
    line.say(tagged("notifications/tools/list_changed", str(first["id"])))
    await eventually(lambda: guests[0].heard.session)
    assert [len(guest.heard.session) for guest in guests] == [1, 1]


async def test_what_does_not_say_where_it_belongs_is_for_the_only_stream_there_is(
    modern_house: House, modern: ScriptedChannels
) -> None:
    guest = await opened(modern_house, modern)
    line, _ = await modern.asked("subscriptions/listen")
    line.say(note("notifications/tools/list_changed"))
    await eventually(lambda: guest.heard.session)
    await opened(modern_house, modern)
    line.say(note("notifications/tools/list_changed"))
    assert len(guest.heard.session) == 1


async def test_a_stream_that_nobody_hears_any_more_is_cancelled(modern_house: House, modern: ScriptedChannels) -> None:
    guest = await opened(modern_house, modern)
    line, asked = await modern.asked("subscriptions/listen")
    assert line.ears is not None
    assert (line.holders, line.ears.in_flight) == (1, 0)
    await guest.session.close()
    _, told = await modern.asked("notifications/cancelled")
    assert told["params"]["requestId"] == asked["id"]
    assert line.holders == 0


async def test_a_stream_that_the_server_ends_is_asked_for_again(modern_house: House, modern: ScriptedChannels) -> None:
    guest = await opened(modern_house, modern)
    line, asked = await modern.asked("subscriptions/listen")
    line.say(note("notifications/cancelled", requestId=asked["id"]))
    await modern.asked("subscriptions/listen", 2)
    assert "notifications/cancelled" not in line.methods()
    await eventually(lambda: guest.heard.streams.count("listen opened") == 2)


async def test_listening_starts_no_line_after_the_loss_of_one(modern_house: House, modern: ScriptedChannels) -> None:
    guest = await opened(modern_house, modern)
    line, _ = await modern.asked("subscriptions/listen")
    line.exit()
    count = len(modern.lines)
    await eventually(lambda: [wish for wish in modern.wishes[-1:] if wish.outgoing.only_listens])
    assert len(modern.lines) == count
    assert (await guest.call()).error is None
    await modern.asked("subscriptions/listen", 2)
    assert len(modern.lines) == count + 1


@covers("U-STDIO-5")
async def test_a_server_that_asks_gets_no_answer(modern_house: House, quiet: ScriptedChannels) -> None:
    guest = modern_house.modern()
    await guest.call()
    line = quiet.lines[-1]
    line.say({"jsonrpc": "2.0", "id": "q", "method": "roots/list"})
    assert (await guest.ask("tools/list", "{}")).error is None
    assert not [each for each in line.heard if each.get("id") == "q"]
