"""Commands of one turn share a round trip, and fail or are cancelled one by one."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from helpers.shared_store import SharedServer
from helpers.waiting import bounded, eventually
from taskgate.errors import StoreUnavailable
from taskgate.stores.redis.client import RedisClient
from taskgate.stores.redis.connector import RedisConnector

pytestmark = pytest.mark.program
AT_ONCE = 16
SHORT = timedelta(milliseconds=300)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SharedServer]:
    """A server that the test may do anything to."""
    with SharedServer(tmp_path) as started:
        yield started


@pytest.fixture
async def connection(server: SharedServer) -> AsyncIterator[RedisClient]:
    """One by one who does not wait for long, and who has asked before."""
    opened = connect(server)
    await opened.do("SET", "word", "fox")
    yield opened
    await opened.close()


def connect(server: SharedServer, *, limit: int = 8, wait: timedelta = timedelta(seconds=5)) -> RedisClient:
    return RedisClient(
        RedisConnector(server.options(command_timeout=SHORT, connect_timeout=SHORT)), limit=limit, wait=wait
    )


def connections(server: SharedServer) -> int:
    """How many it has, but for those of the test itself, which say what library they are of."""
    return len([line for line in server.ask("CLIENT", "LIST").splitlines() if b"lib-name=redis-py" not in line])


async def grow(connection: RedisClient, count: int) -> list[asyncio.Task[int]]:
    """So many ask at once, in this turn of the loop."""
    asking = [asyncio.create_task(connection.do("INCR", "count")) for _ in range(count)]
    await asyncio.sleep(0)
    return asking


@pytest.mark.parametrize(("count", "needed"), [(1, 1), (AT_ONCE, 1), (AT_ONCE + 1, 2), (10 * AT_ONCE, 8)])
async def test_as_many_as_fit_share_a_connection_and_their_order_is_kept(
    server: SharedServer, connection: RedisClient, count: int, needed: int
) -> None:
    async with bounded():
        answers = await asyncio.gather(*await grow(connection, count))
    assert connections(server) == needed
    bundles = [answers[first : first + AT_ONCE] for first in range(0, count, AT_ONCE)]
    assert sorted(answers) == list(range(1, count + 1))
    assert all(bundle == sorted(bundle) for bundle in bundles)


async def test_what_is_large_goes_without_others_behind_it(server: SharedServer, connection: RedisClient) -> None:
    async with bounded():
        await asyncio.gather(connection.do("SET", "large", "x" * 70_000), connection.do("GET", "word"))
    assert connections(server) == 2


async def test_one_that_is_refused_is_refused_alone(server: SharedServer, connection: RedisClient) -> None:
    async with bounded():
        answers = await asyncio.gather(
            *(connection.do(*command) for command in (("GET", "word"), ("INCR", "word"), ("GET", "word"))),
            return_exceptions=True,
        )
    assert answers[::2] == [b"fox", b"fox"]
    assert isinstance(answers[1], StoreUnavailable)
    assert connections(server) == 1


async def test_who_gives_up_before_it_leaves_has_asked_nothing(server: SharedServer, connection: RedisClient) -> None:
    asking = await grow(connection, 5)
    for task in asking[1:4]:
        task.cancel()
    async with bounded():
        await asyncio.wait(asking)
    assert [asking[0].result(), asking[4].result()] == [1, 2]
    assert server.ask("GET", "count") == b"2"


async def test_who_gives_up_while_it_waits_for_a_connection_has_asked_nothing(server: SharedServer) -> None:
    connection = connect(server, limit=1)
    await connection.do("PING")
    server.pause()
    first = await grow(connection, 1)
    await asyncio.sleep(0)
    waiting = await grow(connection, 2)
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.sleep(0)
    server.resume()
    async with bounded():
        assert await first[0] == 1
        assert await waiting[1] == 2
    await connection.close()


async def test_who_gives_up_later_leaves_the_answers_of_the_others(
    server: SharedServer, connection: RedisClient
) -> None:
    server.pause()
    asking = await grow(connection, 5)
    for _ in range(3):
        await asyncio.sleep(0)
    for task in asking[1:4]:
        task.cancel()
    server.resume()
    async with bounded():
        await asyncio.wait(asking)
        assert [asking[0].result(), asking[4].result()] == [1, 5]
        assert await connection.do("GET", "word") == b"fox"
    assert connections(server) == 1


async def test_all_that_went_over_a_connection_that_breaks_are_told_and_nothing_is_done_twice(
    server: SharedServer, connection: RedisClient
) -> None:
    server.pause()
    asking = await grow(connection, AT_ONCE + 3)
    for _ in range(3):
        await asyncio.sleep(0)
    async with bounded():
        await asyncio.wait(asking)
    assert all(isinstance(task.exception(), StoreUnavailable) for task in asking)
    assert not connection.health.is_up
    server.resume()
    async with bounded():
        await eventually(lambda: connection.health.is_up)
        assert await connection.do("GET", "word") == b"fox"
    # What was sent before it was given up is done.
    assert int(server.ask("GET", "count") or 0) <= AT_ONCE + 3


async def test_who_still_waits_when_it_is_closed_is_told(server: SharedServer) -> None:
    connection = connect(server)
    await connection.do("PING")
    server.pause()
    asking = await grow(connection, 3)
    for _ in range(3):
        await asyncio.sleep(0)
    async with bounded():
        await connection.close()
        await asyncio.wait(asking)
    assert all(isinstance(task.exception(), StoreUnavailable) for task in asking)
    with pytest.raises(StoreUnavailable, match="closed"):
        await connection.do("PING")
    server.resume()
