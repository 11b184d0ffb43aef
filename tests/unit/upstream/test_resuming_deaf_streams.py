"""A stream that was taken up and is silent is asked for anew: there are servers that say nothing there but what they
have kept."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from aiohttp import web

from helpers.recording_listener import RecordingListener
from helpers.server import LastingCall, LastingTool, ScriptedServer, open_stream, progress_note
from helpers.waiting import bounded, eventually
from taskgate.errors import UpstreamFailed
from taskgate.upstream.base import Outgoing
from taskgate.upstream.calls import Resumed
from taskgate.upstream.legacy import event_streams
from unit.upstream.adopting import DONE, LONG, Before, after, before, going_on
from unit.upstream.conftest import Caller, new_caller

__all__ = ["after", "before"]


class DeafTool(LastingTool):
    """A tool whose streams, once they were taken up, say what was kept and then nothing but that they live."""

    def __init__(self) -> None:
        super().__init__()
        self.gets: list[web.Request] = []
        self.taken_up = asyncio.Event()
        self.keeps_alive = True
        self.refusals: list[int] = []

    async def resume(self, request: web.Request) -> web.StreamResponse:
        last = request.headers["Last-Event-ID"]
        self.asked.append(last)
        if self.refusals:
            return web.Response(status=self.refusals.pop())
        self.gets.append(request)
        self.taken_up.set()
        number, _, place = last.partition(".")
        response = await open_stream(request)
        for kept, told in enumerate(self.calls[int(number)].events[int(place) + 1 :], start=int(place) + 1):
            await response.write(f"id: {number}.{kept}\n".encode() + told)
        while not is_over(request):
            if self.keeps_alive:
                await response.write(b": alive\n\n")
            await asyncio.sleep(5)
        return response


def is_over(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()


@pytest.fixture
def tool(server: ScriptedServer) -> DeafTool:
    server.script["long"] = tool = DeafTool()
    return tool


@pytest.fixture
def caller(server: ScriptedServer, new_caller_of: Callable[..., Caller]) -> Caller:
    """Somebody whose calls last longer than silences."""
    return new_caller_of(server.url, call=timedelta(seconds=LONG))


async def asked(tool: DeafTool, count: int) -> None:
    """Wait until so many streams were taken up."""
    async with bounded(LONG):
        while len(tool.gets) < count:
            tool.taken_up.clear()
            await tool.taken_up.wait()


async def test_what_a_server_keeps_and_does_not_say_is_heard_by_the_process_that_goes_on(
    server: ScriptedServer, tool: DeafTool, before: Before, after: Caller
) -> None:
    ear = RecordingListener()
    outcome = going_on(after, Resumed(before.resume_point, {}), ear)
    await asked(tool, 1)
    before.call.say(progress_note(before.call.token, 1))
    await asked(tool, 2)
    await eventually(lambda: ear.notifications)
    await asked(tool, 4)
    before.call.answer(DONE)
    async with bounded():
        assert (await outcome).result.value == DONE
    # Nothing twice, and from where it was heard to.
    assert len(ear.notifications) == 1
    assert {*tool.asked} == {"0.0", "0.1"}
    assert tool.asked == sorted(tool.asked)
    assert (len(server.heard("initialize")), len(server.heard("tools/call"))) == (1, 1)
    # Whoever is answered has the stream no longer, either.
    await eventually(lambda: all(map(is_over, tool.gets)))


async def test_only_one_connection_has_the_stream(tool: DeafTool, before: Before, after: Caller) -> None:
    outcome = going_on(after, Resumed(before.resume_point, {}))
    for count in (1, 2, 3):
        await asked(tool, count)
        await eventually(lambda: sum(not is_over(get) for get in tool.gets) <= 1)
    before.call.answer(DONE)
    async with bounded(LONG):
        await outcome


async def test_so_is_what_is_not_said_on_a_stream_that_broke_here(tool: DeafTool, caller: Caller) -> None:
    calling = asyncio.create_task(caller.run("long"))
    call = await tool.called()
    await call.listened_to()
    await eventually(lambda: caller.heard.of_calls.resume_points)
    call.cut()
    await asked(tool, 1)
    call.answer(DONE)
    async with bounded():
        await calling
    assert len(tool.gets) > 1
    assert len(tool.calls) == 1


async def test_a_stream_that_never_broke_is_left_alone(tool: DeafTool, caller: Caller) -> None:
    calling = asyncio.create_task(caller.run("long", within=2 * event_streams.SILENCE_GROWN))
    async with bounded(LONG):
        with pytest.raises(UpstreamFailed):
            await calling
    assert tool.asked == []


async def test_refusals_of_the_moment_are_met_with_the_patience_for_what_might_have_been_good(
    tool: DeafTool, caller: Caller
) -> None:
    calling = asyncio.create_task(caller.run("long"))
    call = await tool.called()
    await eventually(lambda: caller.heard.of_calls.resume_points)
    call.cut()
    await asked(tool, 1)
    tool.refusals = [503] * event_streams.MAX_FAILURES
    call.answer(DONE)
    async with bounded(LONG):
        await calling
    assert tool.refusals == []


async def test_silence_that_is_to_end_a_call_still_does(server: ScriptedServer, tool: DeafTool) -> None:
    tool.keeps_alive = False
    idle = 1.5 * event_streams.SILENCE_GROWN
    caller = new_caller(server.url, idle=timedelta(seconds=idle), call=timedelta(seconds=2 * LONG))
    calling = asyncio.create_task(caller.run("long", within=2 * LONG))
    call: LastingCall = await tool.called()
    await eventually(lambda: caller.heard.of_calls.resume_points)
    call.cut()
    async with bounded(LONG):
        with pytest.raises(UpstreamFailed) as failed:
            await calling
    assert failed.value.reason == "timeout"
    await caller.close()


async def test_a_message_that_takes_long_to_come_is_no_silence(
    server: ScriptedServer, tool: DeafTool, before: Before, after: Caller
) -> None:
    """It would begin anew each time, and never end."""

    async def slow(request: web.Request) -> web.StreamResponse:
        tool.gets.append(request)
        response = await open_stream(request)
        await response.write(b"id: 0.1\ndata: ")
        for letter in json.dumps(before.call.turn.answer(DONE)).encode():
            await response.write(bytes((letter,)))
            await asyncio.sleep(1)
        await response.write(b"\n\n")
        return response

    server.resume = slow
    async with bounded(LONG):
        assert (await going_on(after, Resumed(before.resume_point, {}))).result.value == DONE


# --- how often


class Part:
    """An answer that has these messages, and then is silent; see Incoming."""

    status, streams, retry, last_event, unfinished = 200, True, timedelta(seconds=200), "7", 0

    def __init__(self, *messages: bytes) -> None:
        self._messages = messages

    async def messages(self) -> AsyncIterator[bytes]:
        for message in self._messages:
            yield message
        await asyncio.get_running_loop().create_future()

    def release(self) -> None:
        pass


class Parts:
    """A server that answers with one after the other, and notes when; see Transport."""

    def __init__(self, *parts: Part) -> None:
        self._parts = iter(parts)
        self.times: list[float] = []

    async def send(self, _: Outgoing) -> Any:
        self.times.append(asyncio.get_running_loop().time())
        return next(self._parts)


@pytest.mark.parametrize(
    ("idle", "grown"),
    [(None, [15, 30, 60, 60, 15, 30]), (20, [15, 30, 60, 60, 15, 30]), (100, [15, 30, 60, 115, 15, 30])],
)
async def test_a_silent_stream_is_asked_for_less_and_less_often_until_something_is_heard(
    idle: int | None, grown: list[float]
) -> None:
    async def read(messages: AsyncIterator[bytes]) -> bytes | None:
        return [message async for message in messages].count(b"answer") or None

    began = asyncio.get_running_loop().time()
    parts = Parts(Part(), Part(), Part(), Part(b"progress"), Part(), Part(), Part(b"answer"))
    listening = Outgoing(verb="GET", headers={}, idle=None if idle is None else timedelta(seconds=idle))
    async with bounded(2 * LONG):
        assert await event_streams.go_on(parts, listening, event_streams.behind("7"), read)  # type: ignore[arg-type]
    assert parts.times[0] - began < 1
    # What the server wished for between streams that it ends is nothing that it wished for here.
    waits = [silence + event_streams.NOTICE for silence in grown]
    took = [later - sooner for sooner, later in pairwise(parts.times)]
    assert all(wait <= each < wait + 1 for wait, each in zip(waits, took, strict=True))


class Halves(Part):
    """An answer with half a message, of which more comes twice, and then nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._sizes = iter((10, 20, 20))

    def messages(self) -> Any:
        return self

    async def __anext__(self) -> bytes:
        self.unfinished = next(self._sizes)
        raise TimeoutError


async def test_half_a_message_of_which_no_more_comes_is_silence() -> None:
    heard = event_streams.UntilSilent(Halves(), 15.0)
    assert [message async for message in heard] == []
    assert (heard.fell_silent, heard.was_heard) == (True, False)
