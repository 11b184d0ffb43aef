"""A request that waits at another process, as whoever serves it here sees it."""

import pytest

from taskgate.auth.context import ANONYMOUS
from taskgate.gateway.modern.remote_retries import RemoteExchange
from taskgate.streams.bytes_in_flight import BytesInFlight
from taskgate.streams.exchange import UNKNOWN


async def admit_all(*_: object) -> None:
    """Admit a large body."""


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
async def exchange(told: list[str]) -> RemoteExchange:
    return RemoteExchange(told.append, accepts_stream=True)


async def test_what_is_said_on_its_stream_goes_to_its_host(exchange: RemoteExchange, told: list[str]) -> None:
    assert not exchange.is_streaming
    feed = exchange.stream()
    assert exchange.is_streaming
    assert exchange.stream() is feed
    assert feed.send("one")
    assert feed.send_now("two")
    feed.send_answer("three")
    assert told == ["one", "two", "three"]
    assert feed.backpressure() is None


async def test_once_the_host_has_left_nobody_hears_anything(exchange: RemoteExchange, told: list[str]) -> None:
    feed, forgotten = exchange.stream(), list[str]()
    exchange.on_disconnect(lambda: forgotten.append("before"))
    assert not feed.is_closed
    exchange.disconnect()
    exchange.disconnect()
    exchange.on_disconnect(lambda: forgotten.append("after"))
    assert forgotten == ["before", "after"]
    assert feed.is_closed
    assert feed.is_ended
    assert not feed.send("one")
    feed.send_answer("two")
    assert told == []


async def test_it_is_of_nobody_in_particular_and_cannot_be_read_nor_taken_up_again(
    exchange: RemoteExchange,
) -> None:
    assert exchange.address == UNKNOWN
    assert exchange.head.accepts_stream
    assert not exchange.resume(exchange.stream(), [])
    with pytest.raises(AssertionError):
        await exchange.body(BytesInFlight(), ANONYMOUS, admit_all)


async def test_a_host_that_takes_no_stream_is_known_for_that(told: list[str]) -> None:
    assert not RemoteExchange(told.append, accepts_stream=False).head.accepts_stream
