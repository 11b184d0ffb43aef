"""Another server takes over, named by sentinels or in a cluster: it is found, without a restart, and all goes on."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from helpers.manual_clock import EPOCH
from helpers.records import new_session
from helpers.records_in_time import record_of_now
from helpers.shared_store import KINDS, Clustered, Kind, Watched
from helpers.waiting import bounded
from taskgate.errors import StoreUnavailable
from taskgate.stores.base import OwnerWatch
from taskgate.stores.open import open_shared
from taskgate.stores.redis.options import KeyNames
from taskgate.stores.shared import SharedBackend

SHORT = timedelta(milliseconds=500)
LONG = timedelta(minutes=5)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    """Both in turn."""
    return request.param


async def until_it_works(shared: SharedBackend) -> None:
    """Ask until something can be kept."""
    async with bounded():
        while True:
            try:
                await shared.store.put(new_session())
                return
            except StoreUnavailable:
                await asyncio.sleep(0.01)


async def hear(shared: SharedBackend, word: bytes) -> None:
    """Listen until a word is heard."""
    async with bounded():
        while True:
            try:
                if word in await shared.bus.receive(timeout=SHORT):
                    return
            except StoreUnavailable:
                pass


async def hear_of_a_new_task(one: SharedBackend, other: SharedBackend) -> None:
    """News of what one does reach who waits at the other."""
    record = record_of_now()
    watch = OwnerWatch(owner=record.owner, since=None)
    async with bounded():
        waiting = asyncio.create_task(other.store.changed(watch, timeout=LONG))
        while not waiting.done():
            await one.store.insert(record, caps=())
            record = record_of_now()
            await asyncio.sleep(0.05)
    news = waiting.result()
    assert news.changes or not news.complete


async def expect_to_go_on(one: SharedBackend, other: SharedBackend) -> None:
    """Both find the new server, and each other there; it is `one` who writes."""
    await until_it_works(one)
    speaking = asyncio.create_task(_speak(one, b"after"))
    await hear(other, b"after")
    speaking.cancel()
    await asyncio.wait((speaking,))
    await hear_of_a_new_task(one, other)
    await one.streams.begin("session", "stream", holder="one", about=b"", keep=LONG)
    await one.streams.append("session", "stream", [(1, b"")], over=True, keep=LONG)
    assert await other.streams.read("session", "stream", after=0) is not None


async def _speak(shared: SharedBackend, word: bytes) -> None:
    while True:
        await shared.bus.send(word)
        await asyncio.sleep(0.05)


async def test_who_was_there_all_along_finds_who_takes_over_by_sentinel(tmp_path: Path, kind: Kind) -> None:
    async with Watched(tmp_path, kind, password="told-to-sentinels-too") as watched:
        options = watched.options(command_timeout=SHORT, connect_timeout=SHORT)
        one, other = await open_shared(replace(options, wait_replicas=1)), await open_shared(options)
        session = new_session()
        await one.store.put(session)
        await expect_to_go_on(other, one)
        watched.primary.kill()
        await watched.promoted()
        # The new one has no replica that could be waited for.
        await expect_to_go_on(other, one)
        assert await one.store.find(session.owner, session.id, now=EPOCH) == session
        for shared in (one, other):
            await shared.store.close()


async def test_a_primary_that_is_silent_is_left(tmp_path: Path, kind: Kind) -> None:
    async with Watched(tmp_path, kind) as watched:
        options = watched.options(command_timeout=SHORT, connect_timeout=SHORT)
        one, other = await open_shared(options), await open_shared(options)
        watched.primary.pause()
        await expect_to_go_on(one, other)
        watched.primary.resume()
        # It takes itself for the primary until it is told.
        await expect_to_go_on(one, other)
        for shared in (one, other):
            await shared.store.close()


async def test_a_failover_that_somebody_ordered_interrupts_for_a_moment(tmp_path: Path, kind: Kind) -> None:
    async with Watched(tmp_path, kind) as watched:
        shared = await open_shared(watched.options(command_timeout=SHORT, connect_timeout=SHORT))
        # Not before the sentinel has seen that the replica is one to choose.
        watched.sentinel.until(lambda: watched.sentinel.ask("SENTINEL", "FAILOVER", watched.SERVICE))
        await watched.promoted()
        await until_it_works(shared)
        await shared.store.close()


async def test_sentinels_that_know_no_primary_are_waited_for(tmp_path: Path, kind: Kind) -> None:
    async with Watched(tmp_path, kind) as watched:
        shared = await open_shared(watched.options(service="another", connect_timeout=SHORT))
        with pytest.raises(StoreUnavailable):
            await shared.store.census()
        await shared.store.close()


async def test_who_was_there_all_along_finds_who_takes_over_in_a_cluster(tmp_path: Path, kind: Kind) -> None:
    async with Clustered(tmp_path, kind) as cluster:
        options = cluster.options(command_timeout=SHORT, connect_timeout=SHORT)
        primary, _ = cluster.holder(KeyNames(options.key_prefix).of("any"))
        one, other = await open_shared(options), await open_shared(options)
        await expect_to_go_on(one, other)
        primary.kill()
        await expect_to_go_on(one, other)
        for shared in (one, other):
            await shared.store.close()


async def test_a_node_that_hands_its_slots_over_says_who_has_them(
    tmp_path: Path, kind: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    """An ordered failover costs nobody a request, but for those that were under way."""
    async with Clustered(tmp_path, kind) as cluster:
        options = cluster.options()
        _, replica = cluster.holder(KeyNames(options.key_prefix).of("any"))
        shared = await open_shared(options)
        replica.ask("CLUSTER", "FAILOVER")
        await asyncio.to_thread(replica.until, lambda: replica.info("replication")["role"] == "master")
        await shared.store.put(new_session())
        await shared.store.close()
    assert "cannot be used" not in caplog.text


async def test_any_node_of_a_cluster_leads_to_the_right_one(tmp_path: Path, kind: Kind) -> None:
    async with Clustered(tmp_path, kind) as cluster:
        for node in (*cluster.primaries, *cluster.replicas):
            shared = await open_shared(cluster.options(port=node.port, wait_replicas=1))
            await shared.store.put(new_session())
            await shared.store.close()
