"""A scripted server behind lines, and sessions of either era with it, for whom the test says."""

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest

from helpers.server.in_process import ScriptedChannels
from taskgate.upstream.duplex.transport import ChannelTransport
from unit.upstream.conftest import settings_for
from unit.upstream.houses import House


@pytest.fixture
async def new_house() -> AsyncIterator[Callable[..., House]]:
    """Makes houses in front of programs; they are closed in the end."""
    houses: list[tuple[House, ScriptedChannels]] = []

    def make(program: ScriptedChannels, **changes: Any) -> House:
        houses.append((House(ChannelTransport(program), settings_for("", **changes)), program))
        return houses[-1][0]

    yield make
    for house, program in houses:
        await house.close()
        assert all(line.holders == 0 for line in program.lines), "every line was given back"


@pytest.fixture
def program() -> ScriptedChannels:
    """A server of the legacy era."""
    return ScriptedChannels()


@pytest.fixture
def house(program: ScriptedChannels, new_house: Callable[..., House]) -> House:
    """Everybody who speaks to it."""
    return new_house(program)


@pytest.fixture
def modern() -> ScriptedChannels:
    """A server of the modern era."""
    return ScriptedChannels("modern")


@pytest.fixture
def modern_house(modern: ScriptedChannels, new_house: Callable[..., House]) -> House:
    """Everybody who speaks to that."""
    return new_house(modern)


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


@pytest.fixture
async def transport(program: ScriptedChannels) -> AsyncIterator[ChannelTransport]:
    """A transport over its lines."""
    transport = ChannelTransport(program)
    yield transport
    await transport.close()
