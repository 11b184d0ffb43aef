"""A server in trouble: what is told, for how long it is waited for, and how it is found to be well again."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from helpers.loop_pace import pass_time
from helpers.manual_clock import EPOCH
from helpers.records import new_session
from helpers.records_in_time import record_of_now
from helpers.shared_store import KINDS, Kind, SharedServer
from helpers.waiting import bounded
from taskgate.errors import StoreUnavailable
from taskgate.stores.open import open_shared
from taskgate.stores.redis.options import RedisOptions
from taskgate.stores.shared import SharedBackend

SHORT = timedelta(milliseconds=300)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    """Both in turn."""
    return request.param


@pytest.fixture
async def server(tmp_path: Path, kind: Kind) -> AsyncIterator[SharedServer]:
    """A server that the test may do anything to."""
    async with SharedServer(tmp_path, kind) as started:
        yield started


@pytest.fixture
async def shared(server: SharedServer) -> AsyncIterator[SharedBackend]:
    """What is kept there, by one who does not wait for long."""
    opened = await open_shared(server.options(command_timeout=SHORT, connect_timeout=SHORT))
    yield opened
    await opened.store.close()


async def works(shared: SharedBackend) -> bool:
    """Whether something can be kept."""
    try:
        await shared.store.put(new_session())
    except StoreUnavailable as error:
        return _expect_nothing_told(error)
    return True


def _expect_nothing_told(error: StoreUnavailable) -> bool:
    """A host may see the text."""
    assert str(error) == "The task store is not available"
    return False


async def until_it_works(shared: SharedBackend) -> None:
    """Ask until there is an answer."""
    async with bounded():
        while not await works(shared):
            await asyncio.sleep(0)


async def test_only_the_first_wait_for_a_server_that_is_silent(
    server: SharedServer, shared: SharedBackend, caplog: pytest.LogCaptureFixture
) -> None:
    server.pause()
    begun = time.monotonic()
    assert not any(await asyncio.gather(*(works(shared) for _ in range(20))))
    assert time.monotonic() - begun < 3 * SHORT.total_seconds()
    begun = time.monotonic()
    assert not any([await works(shared) for _ in range(100)])
    assert time.monotonic() - begun < SHORT.total_seconds()
    server.resume()
    await until_it_works(shared)
    assert caplog.text.count("cannot be used: it does not answer") == 1
    assert caplog.text.count("can be used again") == 1


async def test_a_server_that_was_started_again_is_used_again(server: SharedServer, shared: SharedBackend) -> None:
    """Every connection is dead then, and no request is to pay for that which comes once it is back."""
    assert all(await asyncio.gather(*(works(shared) for _ in range(30))))
    await server.restart(kill=True)
    assert all(await asyncio.gather(*(works(shared) for _ in range(30))))


async def test_a_server_that_is_gone_is_told_of_once(
    server: SharedServer, shared: SharedBackend, caplog: pytest.LogCaptureFixture
) -> None:
    server.kill()
    for _ in range(50):
        assert not await works(shared)
    assert caplog.text.count("cannot be used") == 1
    server.start()
    await until_it_works(shared)


async def test_a_server_that_still_reads_its_file_is_waited_for(tmp_path: Path, kind: Kind) -> None:
    """Keys that are found slowly: it answers, but has nothing yet."""
    slow = {"key-load-delay": "40000", "loading-process-events-interval-bytes": "1024"}
    async with SharedServer(tmp_path, kind, durable=True) as server:
        shared = await open_shared(server.options())
        sessions = [new_session() for _ in range(25)]
        for session in sessions:
            await shared.store.put(session)
        server.kill()
        server.configure(slow)
        starting = asyncio.create_task(asyncio.to_thread(server.start))
        refused = 0
        async with bounded():
            while not starting.done():
                try:
                    assert await shared.store.find(sessions[-1].owner, sessions[-1].id, now=EPOCH) == sessions[-1]
                except StoreUnavailable:
                    refused += 1
                await asyncio.sleep(0)
            await starting
        assert refused
        await until_it_works(shared)
        assert await shared.store.find(sessions[-1].owner, sessions[-1].id, now=EPOCH) == sessions[-1]
        await shared.store.close()


async def test_a_connection_that_was_cut_is_no_outage(server: SharedServer, shared: SharedBackend) -> None:
    for _ in range(3):
        assert await works(shared)
        server.ask("CLIENT", "KILL", "TYPE", "normal")
        await works(shared)
        assert await works(shared)


async def test_scripts_that_the_server_was_told_to_forget_run_all_the_same(
    server: SharedServer, shared: SharedBackend
) -> None:
    for _ in range(3):
        assert await works(shared)
        server.ask("SCRIPT", "FLUSH")
    session = new_session()
    await asyncio.gather(*(shared.store.touch(frozenset({session.id}), until=EPOCH) for _ in range(10)))
    await shared.store.put(session)
    server.ask("SCRIPT", "FLUSH")
    with pytest.raises(StoreUnavailable, match="already"):
        await shared.store.put(session)


async def test_a_full_memory_refuses_writes_and_gives_what_there_is(
    server: SharedServer, shared: SharedBackend, caplog: pytest.LogCaptureFixture
) -> None:
    session = new_session()
    await shared.store.put(session)
    server.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
    server.ask("CONFIG", "SET", "maxmemory", 1)
    for _ in range(5):
        assert not await works(shared)
        record = record_of_now()
        with pytest.raises(StoreUnavailable, match="not available"):
            await shared.store.insert(record, caps=())
        assert await shared.store.find(session.owner, session.id, now=EPOCH) == session
        assert await shared.store.load(record.owner, record.id, now=EPOCH) is None
    assert caplog.text.count("refuses a command") == 1
    assert "accepts a command again that it refused" not in caplog.text
    server.ask("CONFIG", "SET", "maxmemory", 0)
    assert await works(shared)
    await pass_time(5)
    record = record_of_now()
    assert await shared.store.insert(record, caps=()) == record.id
    assert caplog.text.count("accepts a command again that it refused") == 1


async def test_a_replica_is_not_written_to_and_not_believed(
    server: SharedServer, shared: SharedBackend, caplog: pytest.LogCaptureFixture
) -> None:
    assert await works(shared)
    server.ask("REPLICAOF", "127.0.0.1", "1")
    for _ in range(30):
        assert not await works(shared)
        # Time enough for it to be looked at, and not to be found well.
        await asyncio.sleep(0.005)
    with pytest.raises(StoreUnavailable):
        await shared.store.census()
    server.ask("REPLICAOF", "NO", "ONE")
    await until_it_works(shared)
    assert caplog.text.count("cannot be used") == 1


async def test_too_few_replicas_for_the_server_s_own_taste_are_an_outage_of_writes(
    server: SharedServer, shared: SharedBackend
) -> None:
    server.ask("CONFIG", "SET", "min-replicas-to-write", 1)
    assert not await works(shared)
    assert await shared.store.census() is not None
    server.ask("CONFIG", "SET", "min-replicas-to-write", 0)
    assert await works(shared)


async def test_a_password_that_was_changed_is_waited_for(server: SharedServer, shared: SharedBackend) -> None:
    server.ask("CONFIG", "SET", "requirepass", "changed")
    server.password = "changed"
    server.ask("CLIENT", "KILL", "TYPE", "normal")
    await works(shared)
    assert not await works(shared)
    server.ask("CONFIG", "SET", "requirepass", "")
    server.password = None
    await until_it_works(shared)


async def test_who_gives_up_leaves_no_answer_for_somebody_else(server: SharedServer, shared: SharedBackend) -> None:
    sessions = [new_session() for _ in range(20)]
    for session in sessions:
        await shared.store.put(session)
    for _ in range(20):
        asking = [asyncio.create_task(shared.store.find(session.owner, session.id, now=EPOCH)) for session in sessions]
        for _ in range(3):
            await asyncio.sleep(0)
        for task in asking[::2]:
            task.cancel()
        await asyncio.wait(asking)
        assert [await task for task in asking[1::2]] == sessions[1::2]


async def test_no_more_connections_are_made_than_are_allowed(tmp_path: Path, server: SharedServer) -> None:
    """Three besides: the news, the words, and whoever asks here."""
    shared = await open_shared(server.options(max_connections=4))
    assert all(await asyncio.gather(*(works(shared) for _ in range(200))))
    assert server.info("clients")["connected_clients"] <= 4 + 3
    await shared.store.close()


async def test_who_waits_too_long_for_a_connection_is_refused(server: SharedServer) -> None:
    shared = await open_shared(server.options(max_connections=1, pool_timeout=timedelta(milliseconds=20)))
    server.pause()
    first = asyncio.create_task(shared.store.census())
    # What is asked before it leaves goes with it.
    for _ in range(3):
        await asyncio.sleep(0)
    with pytest.raises(StoreUnavailable, match="overloaded"):
        await shared.store.census()
    server.resume()
    await first
    assert await works(shared)
    await shared.store.close()


async def test_whoever_waited_first_gets_the_connection_first(server: SharedServer) -> None:
    shared = await open_shared(server.options(max_connections=1))
    order: list[int] = []

    async def ask(number: int) -> None:
        await shared.store.census()
        order.append(number)

    asking = [asyncio.create_task(ask(number)) for number in range(20)]
    await asyncio.sleep(0)
    asking[5].cancel()
    await asyncio.wait(asking)
    assert order == [number for number in range(20) if number != 5]
    await shared.store.close()


async def test_another_thread_s_connection_tells_the_operator_nothing(
    server: SharedServer, shared: SharedBackend, caplog: pytest.LogCaptureFixture
) -> None:
    """The process tells it once."""
    async with shared.open_leases() as leases:
        server.kill()
        with pytest.raises(StoreUnavailable):
            await leases.part("one")
        server.start()
        async with bounded():
            while True:
                try:
                    await leases.part("one")
                    break
                except StoreUnavailable:
                    await asyncio.sleep(0)
    told = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert not [each for each in told if each.startswith("The task store")]


async def test_every_key_has_an_end_whatever_time_callers_have(
    server: SharedServer, shared: SharedBackend, shared_options: RedisOptions
) -> None:
    """A caller whose clock is years away makes no key that stays for ever, nor one that is gone at once."""
    for years in (-30, 30):
        session = replace(new_session(), expires_at=EPOCH + timedelta(days=365 * years))
        await shared.store.put(session)
        await shared.store.touch(frozenset({session.id}), until=session.expires_at)
    assert server.without_expiry("") == []
    assert len(server.keys("")) == 3
