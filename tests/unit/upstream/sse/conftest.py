"""A scripted server of HTTP+SSE, and sessions at it."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from helpers.server.sse import SseServer
from taskgate.upstream.duplex.transport import ChannelTransport
from taskgate.upstream.settings import TransportKind
from taskgate.upstream.sse.channel import SseChannelProvider
from unit.upstream.conftest import settings_for
from unit.upstream.houses import Guest, House


@pytest.fixture
async def events() -> AsyncIterator[SseServer]:
    """A server that keeps its promises until it is told otherwise."""
    async with SseServer() as server:
        yield server


@pytest.fixture
async def new_house() -> AsyncIterator[Callable[..., House]]:
    """Makes houses in front of an address, with settings as the test wants them."""
    houses: list[House] = []

    def make(url: str, **changes: Any) -> House:
        settings = settings_for(url, transport=TransportKind.SSE, **changes)
        houses.append(House(ChannelTransport(SseChannelProvider(settings), is_modern=False), settings))
        return houses[-1]

    yield make
    for house in houses:
        await house.close()


@pytest.fixture
def house(events: SseServer, new_house: Callable[..., House]) -> House:
    """Everybody who speaks to the server."""
    return new_house(events.url)


@pytest.fixture
def guest(house: House) -> Guest:
    """One session at the server."""
    return house.guest()
