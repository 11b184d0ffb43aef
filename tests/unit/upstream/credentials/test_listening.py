"""A token that is refused while a session listens to a server of the modern era."""

from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from helpers.exchange_server import ExchangeServer
from helpers.server import ScriptedServer, Turn, status
from helpers.waiting import eventually
from taskgate.domain.versions import Revision
from unit.upstream.conftest import settings_for
from unit.upstream.offices import Office, exchange, relay, somebody

LISTEN = "subscriptions/listen"


@pytest.fixture
async def modern() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer("modern") as server:
        yield server


@pytest.fixture
async def house(modern: ScriptedServer, endpoint: ExchangeServer) -> AsyncIterator[Office]:
    shows = {"credentials": exchange(endpoint), "revision": Revision.R2026_07_28}
    house = Office(settings_for(modern.url, **shows))
    yield house
    await house.close()


async def test_a_stream_whose_token_is_refused_is_listened_to_with_another(
    modern: ScriptedServer, house: Office
) -> None:
    shown: list[str] = []

    async def once_refused(turn: Turn) -> web.StreamResponse:
        shown.append(turn.request.headers["Authorization"])
        return await (status(401)(turn) if len(shown) == 1 else modern.listens.serve(turn))

    modern.methods[LISTEN] = once_refused
    await house.session(somebody()).open()
    await modern.listens.opened()
    assert shown == ["Bearer issued-1.for_alice", "Bearer issued-2.for_alice"]


async def test_a_listen_that_is_always_refused_is_asked_for_twice_and_no_more(
    modern: ScriptedServer, house: Office
) -> None:
    modern.methods[LISTEN] = status(401)
    session = house.session(somebody())
    await session.open()
    await eventually(lambda: len(modern.heard(LISTEN)) == 2)
    await relay(session)
    assert len(modern.heard(LISTEN)) == 2
