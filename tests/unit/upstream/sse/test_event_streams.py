"""What becomes of calls where a server's event stream is not what it should be, or nobody may have one."""

import asyncio
from collections.abc import Callable

import pytest

from helpers.server import result
from helpers.server.sse import SseServer
from helpers.waiting import bounded, eventually
from requirements import covers
from taskgate.errors import UpstreamFailed
from taskgate.upstream.notification_limits import SAID_A_SECOND
from unit.upstream.duplex.conftest import seconds
from unit.upstream.houses import Guest, House
from unit.upstream.raw_server import RawServer

NewHouse = Callable[..., House]


async def failure_of(guest: Guest) -> tuple[str, bool, str]:
    """How a call fails: reason, whether it may have run, text."""
    async with bounded():
        with pytest.raises(UpstreamFailed) as failed:
            await guest.call()
    return failed.value.reason, failed.value.dispatched, str(failed.value)


async def works(guest: Guest) -> bool:
    """Whether a call is answered now."""
    async with bounded():
        return (await guest.call()).error is None


# --- where messages go


ENDPOINTS = {
    "a path": "/messages?session_id={session}",
    "beside the stream": "messages?session_id={session}",
    "the query alone": "?session_id={session}",
    "an absolute URL": "{origin}/messages?session_id={session}",
    "without its scheme": "//{authority}/messages?session_id={session}",
    "with a fragment": "/messages?session_id={session}#here",
    "between blanks": "   /messages?session_id={session}  ",
}


@pytest.mark.parametrize("endpoint", ENDPOINTS.values(), ids=ENDPOINTS)
async def test_messages_go_where_the_server_says_within_its_origin(
    events: SseServer, guest: Guest, endpoint: str
) -> None:
    authority = events.origin.removeprefix("http://")
    events.endpoint = endpoint.replace("{origin}", events.origin).replace("{authority}", authority)
    assert await works(guest)


ELSEWHERE = {
    "another port": "http://127.0.0.1:{port}/messages?session_id=s0",
    "another scheme": "https://{authority}/messages?session_id=s0",
    "another host": "http://localhost:{port}/messages?session_id=s0",
    "another host without its scheme": "//127.0.0.1:{port}/messages",
    "the origin with a user": "http://user:secret@{authority}/messages?session_id=s0",
    "no URL of the web": "file:///etc/passwd",
    "no URL at all": "http://[half",
}


@pytest.mark.parametrize("endpoint", ELSEWHERE.values(), ids=ELSEWHERE)
async def test_an_endpoint_elsewhere_is_refused_and_never_contacted(
    events: SseServer, guest: Guest, endpoint: str
) -> None:
    async with RawServer() as other:
        named = endpoint.replace("{port}", str(other.port)).replace(
            "{authority}", events.origin.removeprefix("http://")
        )
        events.endpoint = named.replace("{", "{{").replace("}", "}}")
        text = "The server's message endpoint is on another origin, which is not allowed"
        assert await failure_of(guest) == ("redirect", False, text)
        assert not other.accepted
    assert not events.posts
    await events.last().left.wait()
    events.endpoint = "/messages?session_id={session}"
    assert await works(guest)


@pytest.mark.parametrize("endpoint", ["", "/" + "x" * 5000])
async def test_an_endpoint_that_is_none_is_a_breach(events: SseServer, guest: Guest, endpoint: str) -> None:
    events.endpoint = endpoint
    text = "The server broke the protocol: its message endpoint is invalid"
    assert await failure_of(guest) == ("malformed", False, text)


async def test_a_second_endpoint_moves_nothing(events: SseServer, guest: Guest) -> None:
    assert await works(guest)
    events.last().say(b"event: endpoint\ndata: /elsewhere\n\n")
    assert await works(guest)
    assert "/elsewhere" not in events.paths


async def test_a_stream_that_never_says_where_messages_go_is_given_up_in_time(
    events: SseServer, new_house: NewHouse
) -> None:
    events.endpoint = None
    guest = new_house(events.url, connect=seconds(0.5)).guest()
    text = "The server did not send its message endpoint in time"
    assert await failure_of(guest) == ("timeout", False, text)
    await events.last().left.wait()
    events.endpoint = "/messages?session_id={session}"
    assert await works(guest)


async def test_a_stream_that_ends_before_it_says_so_fails_the_call(events: SseServer, guest: Guest) -> None:
    events.endpoint, events.ends_early = None, True
    text = "The server's event stream ended before it sent its message endpoint"
    assert await failure_of(guest) == ("unreachable", False, text)
    events.endpoint, events.ends_early = "/messages?session_id={session}", False
    assert await works(guest)


async def test_a_stream_that_ends_right_after_it_said_so_fails_the_call(events: SseServer, guest: Guest) -> None:
    events.ends_early = True
    reason, dispatched, _ = await failure_of(guest)
    # Whether the message or the end of the stream is first is the server's luck.
    assert (reason, dispatched) in {("closed", False), ("refused", False)}
    events.ends_early = False
    assert await works(guest)


async def test_no_event_stream_is_a_breach(events: SseServer, guest: Guest) -> None:
    events.content_type = "application/json"
    text = "The server broke the protocol: it did not answer with an event stream"
    assert await failure_of(guest) == ("malformed", False, text)


@pytest.mark.parametrize("status", [404, 405, 500, 503])
async def test_a_stream_that_is_refused_fails_the_call_with_the_status(
    events: SseServer, guest: Guest, status: int
) -> None:
    events.get = status
    text = f"The server refused the request with HTTP status {status}"
    assert await failure_of(guest) == ("refused", False, text)
    events.get = None
    assert await works(guest)


async def test_nobody_there_fails_the_call_after_the_tries_that_it_may_have(new_house: NewHouse) -> None:
    async with RawServer() as gone:
        url = gone.url()
    assert await failure_of(new_house(url).guest()) == ("unreachable", False, "The server could not be reached")


# --- what is said on it


async def test_an_event_too_large_to_keep_fails_what_is_under_way_and_the_next_call_works(
    events: SseServer, new_house: NewHouse
) -> None:
    guest = new_house(events.url, max_result=1024).guest()
    assert await works(guest)
    events.silent.add("tool:large")
    calling = guest.calling("large")
    async with bounded():
        line, asked = await events.asked("tools/call", 2)
        line.answer(asked, {"content": [{"type": "text", "text": "x" * 2048}]})
        with pytest.raises(UpstreamFailed) as failed:
            await calling
    assert (failed.value.reason, failed.value.dispatched) == ("too_large", True)
    assert await works(guest)
    assert len(events.gets) == 2


async def test_what_is_no_message_is_passed_over_and_told_once(
    events: SseServer, guest: Guest, caplog: pytest.LogCaptureFixture
) -> None:
    assert await works(guest)
    events.last().say(b"data: hello\n\n", b"data: {}\n\n", b"data: \xff\xfe\n\n", b"event: ping\ndata: 1\n\n")
    assert await works(guest)
    assert len([record for record in caplog.records if "not a message" in record.message]) == 1


@covers("T43")
async def test_a_server_that_says_too_much_beside_its_answers_loses_its_stream(
    events: SseServer, new_house: NewHouse
) -> None:
    guest = new_house(events.url, max_result=SAID_A_SECOND).guest()
    assert await works(guest)
    events.silent.add("tool:flood")
    calling = guest.calling("flood")
    async with bounded():
        line, _ = await events.asked("tools/call", 2)
        note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x" * 2000}}
        line.say(*[note] * (3 * SAID_A_SECOND // 2000))
        with pytest.raises(UpstreamFailed, match="sent too much data") as failed:
            await calling
    assert (failed.value.reason, failed.value.dispatched) == ("too_large", True)
    assert await works(guest)
    assert len(events.gets) == 2


async def test_answers_are_not_counted_as_said_beside_them(events: SseServer, new_house: NewHouse) -> None:
    guest = new_house(events.url, max_result=SAID_A_SECOND).guest()
    large = {"content": [{"type": "text", "text": "x" * (SAID_A_SECOND // 4)}]}
    events.methods["tools/call"] = result(large)
    async with bounded():
        answers = await asyncio.gather(*(guest.call() for _ in range(20)))
    assert {answer.error for answer in answers} == {None}
    assert len(events.gets) == 1


async def test_an_answer_that_is_no_json_fails_its_call_alone(events: SseServer, guest: Guest) -> None:
    assert await works(guest)
    events.silent.add("tool:broken")
    calling = guest.calling("broken")
    async with bounded():
        line, asked = await events.asked("tools/call", 2)
        line.say(b'data: {"jsonrpc":"2.0","id":%d,"result":{"content":"\xff"}}\n\n' % asked["id"])
        with pytest.raises(UpstreamFailed) as failed:
            await calling
    assert failed.value.reason == "malformed"
    assert await works(guest)
    assert len(events.gets) == 1


async def test_a_server_that_never_answers_the_handshake_is_given_up_in_time(
    events: SseServer, new_house: NewHouse
) -> None:
    guest = new_house(events.url, first_byte=seconds(1)).guest()
    events.silent.add("initialize")
    reason, dispatched, _ = await failure_of(guest)
    assert (reason, dispatched) == ("timeout", False)
    await events.last().left.wait()
    events.silent.clear()
    assert await works(guest)


# --- the end


async def test_the_end_of_everything_ends_every_stream_and_whoever_waits(
    events: SseServer, new_house: NewHouse
) -> None:
    house = new_house(events.url)
    guest = house.guest()
    events.silent.add("tools/call")
    calling = guest.calling()
    async with bounded():
        await events.asked("tools/call")
        await house.transport.close()
        with pytest.raises(UpstreamFailed):
            await calling
        await events.last().left.wait()


async def test_whoever_stops_waiting_for_a_stream_leaves_none(events: SseServer, guest: Guest) -> None:
    events.endpoint = None
    calling = guest.calling()
    async with bounded():
        await eventually(lambda: events.gets and events.paths)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        await guest.session.close()
        await eventually(events.last().left.is_set)
