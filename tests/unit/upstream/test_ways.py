"""How messages get to a server, by its settings, and what is known of it without asking."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from helpers.waiting import bounded
from taskgate.upstream.client import TransportChoice, choose_transport
from taskgate.upstream.duplex.transport import ChannelTransport
from taskgate.upstream.settings import StdioSettings, TransportKind, UpstreamObserver, UpstreamSettings
from taskgate.upstream.stdio.supervisor_client import Supervisor
from taskgate.upstream.wire.transport import HttpTransport

SECOND = timedelta(seconds=1)


def settings(**changes: Any) -> UpstreamSettings:
    usual: dict[str, Any] = {"connect": SECOND, "first_byte": SECOND, "idle": None, "call": SECOND, "max_result": 1024}
    return UpstreamSettings(name="reports", **usual | changes)


@pytest.fixture
def observer() -> UpstreamObserver:
    def nothing(*_: Any) -> None:
        """Nobody listens."""

    return UpstreamObserver(answered=nothing, session_lost=nothing, stream_opened=nothing, stream_ended=nothing)


@pytest.fixture
def way_of(observer: UpstreamObserver) -> Callable[..., TransportChoice]:
    return lambda **changes: choose_transport(settings(**changes), observer, Supervisor())


@pytest.mark.parametrize(
    ("changes", "transport", "asks_whose"),
    [
        ({"url": "http://127.0.0.1:9/mcp"}, HttpTransport, False),
        ({"url": "http://127.0.0.1:9/sse", "transport": TransportKind.SSE}, ChannelTransport, False),
        ({"stdio": StdioSettings(command=("true",)), "transport": TransportKind.STDIO}, ChannelTransport, True),
    ],
    ids=["http", "sse", "stdio"],
)
async def test_each_kind_of_server_has_its_way_and_nothing_is_known_of_it_at_first(
    way_of: Callable[..., TransportChoice], changes: dict[str, Any], transport: type, asks_whose: bool
) -> None:
    way = way_of(**changes)
    assert (type(way.transport), way.asks_whose, way.up()) == (transport, asks_whose, None)
    async with bounded():
        await way.transport.close()
