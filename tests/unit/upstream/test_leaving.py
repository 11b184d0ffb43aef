"""Whether a call has left: what is told of one that ends while its token is had or its connection is made."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from helpers.exchange_server import ExchangeServer
from helpers.recording_listener import RecordingListener
from helpers.server import Hold, ScriptedServer
from helpers.upstream_calls import task_call
from helpers.waiting import bounded, eventually
from taskgate.errors import UpstreamFailed
from taskgate.upstream.base import UpstreamSession
from taskgate.upstream.wire.connection import Connection
from taskgate.upstream.wire.transport import Pool
from unit.upstream.offices import CALL, Office, exchange, relay, somebody

SHORT = timedelta(milliseconds=200)
LONG = timedelta(seconds=20)


class Way:
    """A session at a server whose next call waits for `gate` before anything leaves; `begun` tells that it does."""

    def __init__(self, session: UpstreamSession, begun: asyncio.Event, gate: asyncio.Event) -> None:
        self.session, self.begun, self.gate = session, begun, gate

    def run(self, within: timedelta = LONG) -> "asyncio.Task[Any]":
        return asyncio.create_task(self.session.call(task_call("echo", CALL, within), RecordingListener()))


async def wait_for_a_token(office: Callable[..., Office], endpoint: ExchangeServer, _: pytest.MonkeyPatch) -> Way:
    """Its token is over, and the endpoint takes its time."""
    house = office(exchange(endpoint))
    session = house.session(somebody())
    await relay(session)
    house.clock.advance(timedelta(days=1))
    endpoint.begun.clear()
    endpoint.gate = asyncio.Event()
    return Way(session, endpoint.begun, endpoint.gate)


async def wait_for_a_connection(office: Callable[..., Office], _: ExchangeServer, patch: pytest.MonkeyPatch) -> Way:
    """No connection is kept, and a new one takes its time."""
    house = office()
    session = house.session(somebody())
    await relay(session)
    begun, gate = asyncio.Event(), asyncio.Event()
    dial = Pool.dial

    async def slow(pool: Pool, until: float | None) -> Connection:
        begun.set()
        await gate.wait()
        return await dial(pool, until)

    patch.setattr(Pool, "take", lambda _: None)
    patch.setattr(Pool, "dial", slow)
    return Way(session, begun, gate)


@pytest.fixture(params=[wait_for_a_token, wait_for_a_connection], ids=["a token", "a connection"])
async def way(
    request: pytest.FixtureRequest,
    office: Callable[..., Office],
    endpoint: ExchangeServer,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Way]:
    make: Callable[..., Awaitable[Way]] = request.param
    way = await make(office, endpoint, monkeypatch)
    yield way
    way.gate.set()


async def nothing_of_it_was_heard(way: Way, server: ScriptedServer) -> None:
    """Neither the call nor that it is over, once everything else was said."""
    way.gate.set()
    async with bounded():
        await way.run()
        await way.session.close()
    assert len(server.heard("tools/call")) == 2
    assert server.cancelled == []


async def test_a_call_that_is_cancelled_before_it_leaves_is_not_heard_of(server: ScriptedServer, way: Way) -> None:
    calling = way.run()
    async with bounded():
        await way.begun.wait()
        calling.cancel()
        await asyncio.wait((calling,))
    assert calling.cancelled()
    await nothing_of_it_was_heard(way, server)


async def test_a_call_whose_time_is_up_before_it_leaves_cannot_have_run(server: ScriptedServer, way: Way) -> None:
    async with bounded():
        with pytest.raises(UpstreamFailed) as failed:
            await way.run(SHORT)
    assert way.begun.is_set()
    assert (failed.value.reason, failed.value.dispatched) == ("timeout", False)
    await nothing_of_it_was_heard(way, server)


async def test_a_call_whose_session_is_closed_before_it_leaves_cannot_have_run(
    server: ScriptedServer, way: Way
) -> None:
    calling = way.run()
    async with bounded():
        await way.begun.wait()
        closing = asyncio.create_task(way.session.close())
        with pytest.raises(UpstreamFailed) as failed:
            await calling
        way.gate.set()
        await closing
    assert (failed.value.reason, failed.value.dispatched) == ("closed", False)
    assert (len(server.heard("tools/call")), server.cancelled) == (1, [])


@pytest.mark.parametrize("end", ["cancelled", "closed"])
async def test_a_call_that_left_late_counts_as_one_that_may_have_run(
    server: ScriptedServer, way: Way, end: str
) -> None:
    server.script["echo"] = hold = Hold()
    calling = way.run()
    async with bounded():
        await way.begun.wait()
        way.gate.set()
        await hold.begun.wait()
        if end == "cancelled":
            calling.cancel()
            await eventually(lambda: server.cancelled == [hold.turns[0].id])
            await asyncio.wait((calling,))
            return
        await way.session.close()
        with pytest.raises(UpstreamFailed) as failed:
            await calling
    assert (failed.value.reason, failed.value.dispatched) == ("closed", True)
