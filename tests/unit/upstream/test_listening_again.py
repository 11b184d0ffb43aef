"""The stream of a session goes on from its last event, when its server wants to be asked again."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise

from aiohttp import web

from helpers.server import ScriptedServer, event, note, open_stream
from helpers.waiting import bounded, eventually
from requirements import covers
from taskgate.upstream.base import Outgoing
from taskgate.upstream.client import HttpTransport
from unit.upstream.conftest import Caller


class Own:
    """A GET stream that tells one part for each time it is opened, and stays open in the last; statuses refuse."""

    def __init__(self, server: ScriptedServer, *parts: bytes | int) -> None:
        self._parts = list(parts)
        self._came = asyncio.Event()
        self.asked: list[str | None] = []
        self.times: list[float] = []
        server.get = server.resume = self

    async def opened(self, count: int) -> None:
        """Wait until it was asked for so many times."""
        async with bounded():
            while len(self.asked) < count:
                self._came.clear()
                await self._came.wait()

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.headers.get("Last-Event-ID"))
        self.times.append(asyncio.get_running_loop().time())
        self._came.set()
        part = self._parts.pop(0)
        if isinstance(part, int):
            return web.Response(status=part)
        response = await open_stream(request)
        await response.write(part)
        if not self._parts:
            await asyncio.get_running_loop().create_future()
        await response.write_eof()
        return response


SAID = event(note("notifications/message", level="info", data="said"))


@covers("H-LEG-13")
async def test_the_sessions_stream_goes_on_from_its_last_event(server: ScriptedServer, caller: Caller) -> None:
    own = Own(server, b"id: a\n" + SAID, SAID, b"id: b\n" + SAID, SAID)
    await caller.session.open()
    await own.opened(4)
    await eventually(lambda: len(caller.heard.session) == 4)
    assert own.asked == [None, "a", "a", "b"]


async def test_a_server_that_forgot_the_event_is_asked_for_a_new_stream(server: ScriptedServer, caller: Caller) -> None:
    own = Own(server, b"id: a\n" + SAID, 503, 404, SAID)
    await caller.session.open()
    await own.opened(4)
    await eventually(lambda: len(caller.heard.session) == 2)
    assert own.asked == [None, "a", "a", None]


async def test_a_server_that_has_no_stream_any_more_is_left_alone(server: ScriptedServer, caller: Caller) -> None:
    own = Own(server, b"id: a\n" + SAID, 405, 405, SAID)
    await caller.session.open()
    await asyncio.sleep(600)
    assert own.asked == [None, "a", None]


async def test_the_sessions_stream_comes_back_when_its_server_wished(server: ScriptedServer, caller: Caller) -> None:
    own = Own(server, b"retry: 10000\nid: a\n" + SAID, b"retry: 10000\n" + SAID, SAID)
    await caller.session.open()
    await own.opened(3)
    await eventually(lambda: len(caller.heard.session) == 3)
    assert own.asked == [None, "a", "a"]
    # Not all at the same time, and none sooner.
    assert all(10 <= later - sooner < 16 for sooner, later in pairwise(own.times))


async def test_an_answer_tells_the_id_of_its_last_event_and_the_pause_that_was_asked_for(
    transport_to: Callable[..., HttpTransport],
) -> None:
    async with ScriptedServer(sessions=False) as server:
        Own(server, b"retry: 2500\nid: a\n" + SAID + b"id: b\ndata: {", b"")
        incoming = await transport_to(server.url).send(Outgoing(verb="GET", headers={}))
        assert (incoming.last_event, incoming.retry) == (None, None)
        async with bounded():
            assert len([message async for message in incoming.messages()]) == 1
        assert (incoming.last_event, incoming.retry) == ("a", timedelta(seconds=2.5))
        incoming.release()
