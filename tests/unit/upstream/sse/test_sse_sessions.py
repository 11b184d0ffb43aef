"""Sessions with a server of HTTP+SSE (2024-11-05), as their users know them."""

import asyncio

import pytest

from helpers.server import note, progress_note, server_request
from helpers.server.sse import SseServer
from helpers.waiting import bounded, eventually
from taskgate.errors import UpstreamFailed
from unit.upstream.conftest import EVERYTHING
from unit.upstream.houses import Guest, House


async def test_a_call_is_answered_over_one_stream_and_posts(events: SseServer, guest: Guest) -> None:
    async with bounded():
        for _ in range(2):
            assert (await guest.call()).error is None
    assert len(events.gets) == 1
    assert events.gets[0]["accept"] == "text/event-stream"
    assert "content-type" not in events.gets[0]
    assert events.last().methods() == ["initialize", "notifications/initialized", "tools/call", "tools/call"]
    assert events.paths[1:] == ["/messages?session_id=s0"] * 4
    for headers in events.posts:
        assert headers["content-type"] == "application/json"
        assert not headers.keys() & {"mcp-session-id", "mcp-protocol-version"}
    assert len(set(events.peers)) < len(events.peers)


@pytest.mark.parametrize("status", [200, 202, 204])
async def test_any_success_of_a_post_will_do(events: SseServer, guest: Guest, status: int) -> None:
    events.post = status
    async with bounded():
        assert (await guest.call()).error is None


async def test_sessions_have_a_stream_each(events: SseServer, house: House) -> None:
    callers = [house.guest(), house.guest()]
    async with bounded():
        await asyncio.gather(*(caller.call() for caller in callers))
    assert len(events.gets) == 2


async def test_the_end_of_a_session_ends_its_stream(events: SseServer, guest: Guest) -> None:
    async with bounded():
        await guest.call()
        await guest.session.close()
        await events.last().left.wait()


async def test_what_a_server_says_beside_answers_is_heard(events: SseServer, house: House) -> None:
    caller = house.guest(host=EVERYTHING)
    events.silent.add("tools/call")
    calling = asyncio.create_task(caller.call(progress=True))
    async with bounded():
        line, asked = await events.asked("tools/call")
        line.say(progress_note(asked["id"], 1), server_request("q"), note("notifications/tools/list_changed"))
        await eventually(lambda: caller.heard.of_calls.questions and caller.heard.session)
        caller.heard.of_calls.questions[0].answer('{"result":{"action":"decline"}}')
        await eventually(lambda: any(each.get("id") == "q" for each in line.heard))
        line.answer(asked, {"content": []})
        assert (await calling).error is None
    assert [each.params["progress"].value for each in caller.heard.call] == [1]


async def test_the_loss_of_the_stream_fails_the_call_and_the_next_has_another(events: SseServer, guest: Guest) -> None:
    events.silent.add("tool:hangs")
    calling = asyncio.create_task(guest.call("hangs"))
    async with bounded():
        await events.asked("tools/call")
        events.last().exit()
        with pytest.raises(UpstreamFailed, match="The server's event stream ended") as failed:
            await calling
        assert (failed.value.reason, failed.value.dispatched) == ("closed", True)
        assert (await guest.call()).error is None
    assert len(events.gets) == 2
    assert events.last().methods()[0] == "initialize"


async def test_a_stream_that_ends_between_calls_fails_none(events: SseServer, guest: Guest) -> None:
    async with bounded():
        await guest.call()
        events.last().exit()
        await eventually(lambda: guest.heard.lost)
        assert (await guest.call()).error is None
    assert len(events.gets) == 2


async def test_a_post_may_be_taken_after_it_was_answered(events: SseServer, guest: Guest) -> None:
    events.takes_late = True
    async with bounded():
        assert (await guest.call(progress=True)).error is None
        events.take_now()


async def test_progress_is_heard_while_the_post_is_not_taken_yet(events: SseServer, guest: Guest) -> None:
    async with bounded():
        await guest.call()
        events.takes_late = True
        events.silent.add("tools/call")
        calling = asyncio.create_task(guest.call(progress=True))
        line, asked = await events.asked("tools/call", 2)
        line.say(progress_note(asked["id"], 1))
        await eventually(lambda: guest.heard.call)
        line.answer(asked, {"content": []})
        assert (await calling).error is None
        events.take_now()


async def test_a_call_of_a_session_that_its_server_forgot_is_made_in_another_one(
    events: SseServer, guest: Guest
) -> None:
    async with bounded():
        await guest.call()
        events.post = 404
        with pytest.raises(UpstreamFailed) as failed:
            await guest.call()
        events.post = 202
        # The other one was refused as well.
        assert (failed.value.reason, failed.value.dispatched) == ("refused", False)
        assert len(events.gets) == 2
        assert (await guest.call()).error is None


@pytest.mark.parametrize("status", [400, 404, 410, 422])
async def test_all_calls_of_a_session_that_its_server_forgot_go_on_in_another_one(
    events: SseServer, guest: Guest, status: int
) -> None:
    """The stream of the forgotten session may stay open, and the server need not refuse all calls at once."""
    async with bounded():
        await guest.call()
        events.forgotten["s0"] = status
        answers = await asyncio.gather(*(guest.call() for _ in range(5)))
        # Nobody waits for anything on it.
        await events.lines[0].left.wait()
    assert [answer.error for answer in answers] == [None] * 5
    assert len(events.gets) == 2


async def test_a_refused_call_goes_on_though_its_stream_ends_before_a_ping_is_answered(
    events: SseServer, guest: Guest
) -> None:
    """An old process refuses what comes, and then ends."""
    async with bounded():
        await guest.call()
        events.refused_tools["echo"] = 404
        events.silent.add("ping")
        calling = asyncio.create_task(guest.call())
        await events.asked("ping")
        events.refused_tools.clear()
        events.last().exit()
        assert (await calling).error is None
    assert len(events.gets) == 2


async def test_a_call_that_was_accepted_is_answered_on_the_stream_of_a_session_that_is_unknown_now(
    events: SseServer, guest: Guest
) -> None:
    """So it is behind a balancer that sends POSTs to any replica: the one with the stream still knows it."""
    events.silent.add("tool:slow")
    async with bounded():
        calling = asyncio.create_task(guest.call("slow"))
        line, asked = await events.asked("tools/call")
        events.forgotten["s0"] = 404
        assert (await guest.call()).error is None
        assert not line.left.is_set()
        line.answer(asked, {"content": []})
        assert (await calling).error is None
        await line.left.wait()


async def test_a_call_ends_whose_server_does_not_take_the_answer_to_its_question(
    events: SseServer, house: House
) -> None:
    """It would wait for that until its time is over."""
    caller = house.guest(host=EVERYTHING)
    events.silent.add("tools/call")
    async with bounded():
        calling = asyncio.create_task(caller.call())
        line, _ = await events.asked("tools/call")
        line.say(server_request("q"))
        await eventually(lambda: caller.heard.of_calls.questions)
        events.forgotten["s0"] = 404
        caller.heard.of_calls.questions[0].answer('{"result":{"action":"decline"}}')
        with pytest.raises(UpstreamFailed) as failed:
            await calling
    assert (failed.value.reason, failed.value.dispatched) == ("closed", True)


@pytest.mark.parametrize("status", [400, 404])
async def test_a_message_that_its_server_does_not_take_fails_alone(
    events: SseServer, guest: Guest, status: int
) -> None:
    events.silent.add("tool:slow")
    events.refused_tools["strange"] = status
    async with bounded():
        calling = asyncio.create_task(guest.call("slow"))
        line, asked = await events.asked("tools/call")
        with pytest.raises(UpstreamFailed, match=f"HTTP status {status}") as failed:
            await guest.call("strange")
        assert (failed.value.reason, failed.value.dispatched) == ("refused", False)
        line.answer(asked, {"content": []})
        assert (await calling).error is None
    assert len(events.gets) == 1


async def test_a_post_that_is_refused_fails_its_call_alone(events: SseServer, guest: Guest) -> None:
    async with bounded():
        await guest.call()
        events.post = 503
        with pytest.raises(UpstreamFailed) as failed:
            await guest.call()
        events.post = 202
        assert (failed.value.reason, failed.value.dispatched) == ("refused", True)
        assert (await guest.call()).error is None
    assert len(events.gets) == 1
