"""Streams that end before their time are taken up again where they ended, as long as somebody waits."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import web

from helpers.server import Chapters, ScriptedServer, Turn, breaks_off, event, note, open_stream, progress_note, stream
from helpers.waiting import bounded, eventually
from requirements import covers
from taskgate.errors import UpstreamFailed
from taskgate.upstream.legacy import event_streams
from unit.upstream.conftest import Caller


def answer(turn: Turn) -> Any:
    return turn.answer({"content": ["right"]})


def progress(turn: Turn) -> Any:
    return progress_note(turn.token, 1)


async def failure_of(caller: Caller, tool: str) -> UpstreamFailed:
    async with bounded():
        with pytest.raises(UpstreamFailed) as failed:
            await caller.call(tool)
    return failed.value


@covers("H-LEG-13")
async def test_a_stream_that_its_server_closed_is_gone_on_with_until_the_answer(
    server: ScriptedServer, caller: Caller
) -> None:
    server.script["long"] = long = Chapters([], [progress], [], [answer])
    async with bounded():
        response = await caller.call("long", progress=True)
    assert response.result.value == {"content": ["right"]}
    assert long.asked == ["0-start", "1-0", "2-start"]
    assert len(caller.heard.call) == 1
    first = long.gets[0].headers
    assert first["Accept"] == "text/event-stream"
    assert first["Mcp-Session-Id"] == "session-1"
    assert first["MCP-Protocol-Version"] == "2025-11-25"
    assert len(server.heard("tools/call")) == 1
    assert caller.heard.streams.count("response opened") == caller.heard.streams.count("response ended") == 4


async def test_a_stream_that_broke_is_gone_on_with(server: ScriptedServer, caller: Caller) -> None:
    server.script["broken"] = breaks_off(b"id: 7\ndata:\n\n", b"id: 8\ndata: {")
    asked: list[str] = []

    async def resume(request: web.Request) -> web.StreamResponse:
        asked.append(request.headers["Last-Event-ID"])
        response = await open_stream(request)
        call = server.heard("tools/call")[0]["id"]
        await response.write(event({"jsonrpc": "2.0", "id": call, "result": {"content": []}}))
        await response.write_eof()
        return response

    server.resume = resume
    async with bounded():
        assert (await caller.call("broken")).error is None
    assert asked == ["7"]


async def test_a_stream_that_brought_no_event_is_gone_on_with_from_the_one_before(
    server: ScriptedServer, caller: Caller
) -> None:
    server.script["long"] = long = Chapters([], [answer])
    go_on, asked = long.resume, []

    async def says_nothing_at_first(request: web.Request) -> web.StreamResponse:
        asked.append(request.headers["Last-Event-ID"])
        if len(asked) > 1:
            return await go_on(request)
        response = await open_stream(request)
        await response.write_eof()
        return response

    long.resume = says_nothing_at_first
    async with bounded():
        assert (await caller.call("long")).error is None
    assert asked == ["0-start", "0-start"]


async def test_what_is_asked_on_a_resumed_stream_is_the_calls(server: ScriptedServer, asked: Caller) -> None:
    question = {"jsonrpc": "2.0", "id": "q", "method": "roots/list"}
    server.script["asks"] = long = Chapters([question], [answer], retry=1)
    hold = asyncio.get_running_loop().create_future()
    go_on = long.resume

    async def waits(request: web.Request) -> web.StreamResponse:
        await hold
        return await go_on(request)

    long.resume = waits
    calling = asyncio.create_task(asked.call("asks"))
    await eventually(lambda: asked.heard.of_calls.questions)
    [question_] = asked.heard.of_calls.questions
    question_.answer('{"result":{"roots":[]}}')
    await server.reply_to("q")
    hold.set_result(None)
    async with bounded():
        await calling


@pytest.mark.parametrize("events", [[], [note("notifications/message", level="info", data=1)], [b"id:\ndata:\n\n"]])
async def test_a_stream_without_an_id_cannot_be_gone_on_with(
    server: ScriptedServer, caller: Caller, events: list[Any]
) -> None:
    server.script["ends"] = stream(None, before=events)
    failure = await failure_of(caller, "ends")
    assert (failure.reason, failure.dispatched) == ("closed", True)
    assert [get for get in server.verbs("GET") if "last-event-id" in get.headers] == []


@pytest.mark.parametrize("code", [400, 404, 405, 401, 501, 204])
async def test_a_server_that_does_not_go_on_has_lost_the_call(
    server: ScriptedServer, caller: Caller, code: int
) -> None:
    server.script["lost"] = lost = Chapters([], code, [answer])
    failure = await failure_of(caller, "lost")
    assert (failure.reason, failure.dispatched) == ("closed", True)
    assert len(lost.asked) == 1
    assert (await caller.call()).error is None
    assert len(server.heard("initialize")) == 1


async def test_a_server_that_is_away_for_a_moment_is_asked_again(server: ScriptedServer, caller: Caller) -> None:
    few = [503] * (event_streams.MAX_FAILURES - 1)
    server.script["away"] = away = Chapters([], *few, [], *few, [answer])
    async with bounded():
        assert (await caller.call("away")).error is None
    assert len(away.asked) == 2 * event_streams.MAX_FAILURES


async def test_a_server_that_stays_away_has_lost_the_call(server: ScriptedServer, caller: Caller) -> None:
    server.script["away"] = away = Chapters([], *[503] * event_streams.MAX_FAILURES, [answer])
    failure = await failure_of(caller, "away")
    assert (failure.reason, failure.dispatched) == ("closed", True)
    assert len(away.asked) == event_streams.MAX_FAILURES


async def test_connections_that_break_are_attempts_that_failed(server: ScriptedServer, caller: Caller) -> None:
    server.script["away"] = Chapters([])
    tries = 0

    async def breaks(request: web.Request) -> web.StreamResponse:
        nonlocal tries
        tries += 1
        request.transport.close()
        return web.Response()

    async def begins(turn: Turn) -> web.StreamResponse:
        response = await Chapters([])(turn)
        server.resume = breaks
        return response

    server.script["away"] = begins
    failure = await failure_of(caller, "away")
    assert (failure.reason, failure.dispatched) == ("closed", True)
    assert tries == event_streams.MAX_FAILURES


async def test_a_server_that_begins_late_is_waited_for(
    server: ScriptedServer, new_caller_of: Callable[..., Caller]
) -> None:
    caller = new_caller_of(server.url, first_byte=timedelta(milliseconds=300))
    server.script["late"] = late = Chapters([], [answer])
    begins, tries = late.resume, 0

    async def hesitates(request: web.Request) -> web.StreamResponse:
        nonlocal tries
        tries += 1
        if tries <= event_streams.MAX_FAILURES:
            await asyncio.get_running_loop().create_future()
        return await begins(request)

    late.resume = hesitates
    async with bounded():
        assert (await caller.call("late")).error is None
    assert tries == event_streams.MAX_FAILURES + 1


async def test_a_redirected_stream_is_lost_at_once(server: ScriptedServer, caller: Caller) -> None:
    tries = 0

    async def elsewhere(_: web.Request) -> web.StreamResponse:
        nonlocal tries
        tries += 1
        return web.Response(status=307, headers={"Location": "http://elsewhere.invalid/"})

    async def begins(turn: Turn) -> web.StreamResponse:
        response = await Chapters([])(turn)
        server.resume = elsewhere
        return response

    server.script["moved"] = begins
    assert (await failure_of(caller, "moved")).reason == "closed"
    assert tries == 1


async def test_a_call_ends_with_its_time_while_its_stream_is_taken_up_again(
    server: ScriptedServer, caller: Caller
) -> None:
    server.script["endless"] = Chapters(*[[]] * 10_000)
    await caller.session.open()
    async with bounded():
        with pytest.raises(UpstreamFailed) as failed:
            await caller.run("endless", within=0.15)
    assert (failed.value.reason, failed.value.dispatched) == ("timeout", True)
    await eventually(lambda: len(server.cancelled) == 1)


@pytest.mark.parametrize("end", ["cancel", "close"])
async def test_nobody_waits_for_a_pause(server: ScriptedServer, caller: Caller, end: str) -> None:
    server.script["later"] = Chapters([progress], [answer], retry=200_000)
    calling = asyncio.create_task(caller.run("later"))
    await eventually(lambda: "response ended" in caller.heard.streams and caller.heard.call)
    async with bounded():
        if end == "cancel":
            calling.cancel()
        else:
            await caller.session.close()
        await asyncio.wait((calling,))
    assert calling.cancelled() if end == "cancel" else isinstance(calling.exception(), UpstreamFailed)
    await caller.session.close()
    assert len(server.cancelled) == (end == "cancel")


async def test_an_answer_on_the_sessions_stream_ends_a_pause(server: ScriptedServer, caller: Caller) -> None:
    server.script["later"] = Chapters([progress], retry=200_000)
    await caller.session.open()
    await server.streaming()
    calling = asyncio.create_task(caller.call("later", progress=True))
    await eventually(lambda: caller.heard.call)
    call = server.heard("tools/call")[0]["id"]
    await server.push({"jsonrpc": "2.0", "id": call, "result": {"content": ["there"]}})
    async with bounded():
        assert (await calling).result.value == {"content": ["there"]}


class Over:
    """An answer that is over, with what it said of its pause; see Incoming."""

    def __init__(self, retry: Any) -> None:
        self.retry = retry


@covers("H-LEG-13")
@pytest.mark.parametrize(("milliseconds", "seconds"), [(None, None), (0, 0.02), (50, 0.05), (250, 0.25), (10**12, 300)])
def test_a_pause_is_as_the_server_wishes_within_bounds(milliseconds: int | None, seconds: float | None) -> None:
    retry = None if milliseconds is None else timedelta(milliseconds=milliseconds)
    assert event_streams.wished(Over(retry)) == seconds  # type: ignore[arg-type]
