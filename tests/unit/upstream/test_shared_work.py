"""What serves many is done for nobody: a request that happens to begin it has nothing to do with what comes of it."""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import cast

import pytest
from yarl import URL

from helpers.server import ScriptedServer
from helpers.waiting import bounded, eventually
from taskgate.clock import SystemClock
from taskgate.system.single_flight import SingleFlight
from taskgate.upstream.base import Transport
from taskgate.upstream.legacy.event_streams import ServerStream
from taskgate.upstream.settings import UpstreamObserver, UpstreamTls
from taskgate.upstream.wire.connection import Connection
from taskgate.upstream.wire.transport import Pool
from unit.upstream.checking import soon
from unit.upstream.conftest import Caller
from unit.upstream.exchanges import NewTransport, outgoing
from unit.upstream.raw_server import RawServer

REQUEST: ContextVar[str] = ContextVar("request", default="nobody's")
"""Stands for whatever goes along with a request."""


async def test_one_run_that_many_wait_for() -> None:
    async def make() -> str:
        return REQUEST.get()

    REQUEST.set("Alice's")
    flight = SingleFlight(make)
    assert await flight.get() == "nobody's"
    await flight.close()


async def test_the_stream_of_a_session() -> None:
    heard: list[str] = []

    class Silent:
        async def send(self, _: object) -> None:
            heard.append(REQUEST.get())
            await asyncio.get_running_loop().create_future()

    REQUEST.set("Alice's")

    def nothing(*_: object) -> None:
        """Nobody wants to know."""

    observer = UpstreamObserver(answered=nothing, session_lost=nothing, stream_opened=nothing, stream_ended=nothing)
    stream = ServerStream(
        cast("Transport", Silent()), {}, hear=nothing, lost=nothing, observer=observer, clock=SystemClock()
    )
    await eventually(lambda: heard)
    await stream.close()
    assert heard == ["nobody's"]


async def test_the_checks_of_a_server(server: ScriptedServer, new_caller_of: Callable[..., Caller]) -> None:
    whose: list[str] = []

    class Noting(list[tuple[bool, bool | None]]):
        def append(self, found: tuple[bool, bool | None]) -> None:
            whose.append(REQUEST.get())
            super().append(found)

    caller = new_caller_of(server.url, health=soon())
    caller.heard.health = Noting()
    REQUEST.set("Alice's")
    caller.upstream.open()
    await eventually(lambda: whose)
    assert set(whose) == {"nobody's"}


async def test_what_is_read_of_a_connection(transport_to: NewTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after a body was so large that nothing was read for a while."""
    whose, read, received = list[str](), list[Connection](), Connection.data_received

    def data_received(connection: Connection, data: bytes) -> None:
        whose.append(REQUEST.get())
        read.append(connection)
        received(connection, data)

    monkeypatch.setattr(Connection, "data_received", data_received)
    REQUEST.set("Alice's")
    async with RawServer() as server:
        transport = transport_to(server.url(), max_result=2**24)
        asking = asyncio.ensure_future(transport.send(outgoing()))
        line = await server.next()
        await line.request()
        body = b'"' + 2**22 * b"x" + b'"'
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        saying = asyncio.ensure_future(line.say(head, body))
        async with bounded():
            incoming = await asking
            await eventually(lambda: not read[0].transport.is_reading())
            assert [len(message) async for message in incoming.messages()] == [len(body)]
            await saying
            incoming.release()
    assert len(whose) > 2
    assert set(whose) == {"nobody's"}


async def test_the_rounds_over_connections_that_are_kept() -> None:
    dropped: list[str] = []

    class Idle:
        def drop(self) -> None:
            dropped.append(REQUEST.get())

    REQUEST.set("Alice's")
    pool = Pool(
        URL("http://127.0.0.1:1"), connect=1.0, reuse_within=0.001, max_header=8192, silence=None, tls=UpstreamTls()
    )
    pool.keep(cast("Connection", Idle()))
    await eventually(lambda: dropped)
    await pool.close()
    assert set(dropped) == {"nobody's"}


async def test_what_came_about_in_another_way_is_there_for_everybody_until_it_is_forgotten() -> None:
    made: list[str] = []

    async def make() -> str:
        made.append("made")
        return "made"

    flight = SingleFlight(make)
    flight.put("found")
    assert (flight.value, await flight.get(), flight.is_empty, made) == ("found", "found", False, [])
    flight.forget()
    assert (flight.value, flight.is_empty, await flight.get()) == (None, True, "made")
    await flight.close()


async def test_what_was_made_is_there_in_the_moment_in_which_it_is_made() -> None:
    """Who closes before anybody was told of it has to find it, or nobody ends it."""
    news = asyncio.get_running_loop().create_future()
    begun = asyncio.Event()

    async def make() -> str:
        begun.set()
        made: str = await news
        return made

    work = SingleFlight(make)
    waiting = asyncio.create_task(work.get())
    await begun.wait()
    news.set_result("made")
    # The turn in which the work goes on, and is done.
    await asyncio.sleep(0)
    assert work.value == "made"
    await work.close()
    assert await waiting == "made"
