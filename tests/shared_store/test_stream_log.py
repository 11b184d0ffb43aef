"""The events of hosts' streams, where every process finds them."""

import asyncio
from datetime import timedelta

from helpers.shared_store import SharedServer
from helpers.waiting import bounded
from taskgate.stores.redis.options import RedisOptions
from taskgate.stores.redis.streams import MOST_BYTES, MOST_EVENTS
from taskgate.stores.shared import SharedBackend

KEEP = timedelta(minutes=5)
LEASE = timedelta(seconds=15)
WHERE = ("session", "stream")


async def begun(shared: SharedBackend, *events: bytes) -> None:
    """A stream with these events."""
    await shared.streams.begin(*WHERE, holder="one", about=b"about \xff", keep=KEEP)
    await shared.streams.append(*WHERE, list(enumerate(events, 1)), over=False, keep=KEEP)


async def test_another_process_reads_what_came_after_an_event(one: SharedBackend, other: SharedBackend) -> None:
    await begun(one, b"a", b"b\x00", b"")
    passage = await other.streams.read(*WHERE, after=1)
    assert passage is not None
    assert passage.events == ((2, b"b\x00"), (3, b""))
    assert (passage.about, passage.newest, passage.over, passage.whole) == (b"about \xff", 3, False, True)
    assert (passage.holder, passage.lives) == ("one", False)


async def test_a_stream_that_is_not_known_is_none(one: SharedBackend) -> None:
    assert await one.streams.read(*WHERE, after=0) is None
    await begun(one, b"a")
    assert await one.streams.read("session", "another", after=0) is None
    assert await one.streams.read("another", "stream", after=0) is None


async def test_what_nobody_began_is_not_kept(
    one: SharedBackend, shared_server: SharedServer, shared_options: RedisOptions
) -> None:
    await one.streams.append(*WHERE, [(1, b"a")], over=True, keep=KEEP)
    assert await one.streams.read(*WHERE, after=0) is None
    assert shared_server.keys(shared_options.key_prefix) == []


async def test_a_stream_without_events_is_whole(one: SharedBackend) -> None:
    await begun(one)
    passage = await one.streams.read(*WHERE, after=0)
    assert passage is not None
    assert (passage.events, passage.newest, passage.whole) == ((), 0, True)


async def test_the_end_is_told_with_the_last_event_and_without_one(one: SharedBackend) -> None:
    await begun(one, b"a")
    await one.streams.append(*WHERE, [], over=True, keep=KEEP)
    passage = await one.streams.read(*WHERE, after=0)
    assert passage is not None
    assert (passage.over, passage.newest) == (True, 1)


async def test_an_event_that_comes_twice_is_kept_once(one: SharedBackend) -> None:
    """Whoever does not know whether the store has it sends it again."""
    await begun(one, b"a", b"b")
    await one.streams.append(*WHERE, [(2, b"b"), (3, b"c")], over=False, keep=KEEP)
    passage = await one.streams.read(*WHERE, after=0)
    assert passage is not None
    assert passage.events == ((1, b"a"), (2, b"b"), (3, b"c"))


async def test_a_gap_is_told_to_who_stands_before_it(one: SharedBackend) -> None:
    await begun(one, b"a")
    await one.streams.append(*WHERE, [(4, b"d")], over=False, keep=KEEP)
    before, after = await one.streams.read(*WHERE, after=1), await one.streams.read(*WHERE, after=3)
    assert before is not None
    assert after is not None
    assert (before.whole, after.whole) == (False, True)
    assert after.events == ((4, b"d"),)


async def test_the_oldest_events_give_way_to_the_count(one: SharedBackend) -> None:
    await begun(one, *(b"%d" % number for number in range(1, MOST_EVENTS + 11)))
    passage = await one.streams.read(*WHERE, after=0)
    assert passage is not None
    assert not passage.whole
    assert len(passage.events) == MOST_EVENTS
    assert passage.events[0] == (11, b"11")
    rest = await one.streams.read(*WHERE, after=10)
    assert rest is not None
    assert rest.whole


async def test_the_oldest_events_give_way_to_the_bytes_but_the_newest_stays(one: SharedBackend) -> None:
    half = b"x" * (MOST_BYTES // 2)
    await begun(one, half, half, b"y")
    passage = await one.streams.read(*WHERE, after=0)
    assert passage is not None
    assert [number for number, _ in passage.events] == [2, 3]
    await one.streams.append(*WHERE, [(4, half * 3)], over=False, keep=KEEP)
    passage = await one.streams.read(*WHERE, after=3)
    assert passage is not None
    assert passage.whole
    assert [number for number, _ in passage.events] == [4]


async def test_a_stream_that_begins_anew_has_nothing_of_the_earlier_one(
    one: SharedBackend, other: SharedBackend
) -> None:
    await begun(one, b"a", b"b")
    await other.streams.begin(*WHERE, holder="other", about=b"", keep=KEEP)
    passage = await one.streams.read(*WHERE, after=0)
    assert passage is not None
    assert (passage.events, passage.newest, passage.holder, passage.about) == ((), 0, "other", b"")


async def test_it_is_told_whether_the_writer_lives(one: SharedBackend) -> None:
    await begun(one)
    await one.leases.beat("one", {}, lease=LEASE)
    living = await one.streams.read(*WHERE, after=0)
    await one.leases.part("one")
    parted = await one.streams.read(*WHERE, after=0)
    assert living is not None
    assert parted is not None
    assert (living.lives, parted.lives) == (True, False)


async def test_a_stream_is_forgotten_when_it_is_dropped_and_in_the_end_by_itself(one: SharedBackend) -> None:
    await begun(one, b"a")
    await one.streams.forget(*WHERE)
    assert await one.streams.read(*WHERE, after=0) is None
    await begun(one, b"a")
    await one.streams.append(*WHERE, [(2, b"b")], over=True, keep=timedelta(milliseconds=1))
    async with bounded():
        while await one.streams.read(*WHERE, after=0) is not None:
            await asyncio.sleep(0)


async def test_who_waits_is_told_of_every_growth(one: SharedBackend, other: SharedBackend) -> None:
    """Counted: a reader that waits between its reads misses nothing, and is not kept waiting."""
    await begun(one)
    read: list[int] = []

    async def follow() -> None:
        while True:
            passage = await other.streams.read(*WHERE, after=len(read))
            assert passage is not None
            read.extend(number for number, _ in passage.events)
            if passage.over:
                return
            await other.streams.wait_for_events(*WHERE, timeout=timedelta(hours=1))

    async with bounded():
        following = asyncio.create_task(follow())
        for number in range(1, 101):
            await one.streams.append(*WHERE, [(number, b"x")], over=number == 100, keep=KEEP)
        await following
    assert read == list(range(1, 101))


async def test_who_waits_in_vain_is_let_go(one: SharedBackend) -> None:
    await begun(one)
    async with bounded():
        for _ in range(3):
            await one.streams.wait_for_events(*WHERE, timeout=timedelta(milliseconds=10))


async def test_who_waits_is_let_go_when_the_connection_is_lost_or_the_store_closes(
    one: SharedBackend, shared_server: SharedServer
) -> None:
    await begun(one)
    await one.streams.wait_for_events(*WHERE, timeout=timedelta(hours=1))
    waiting = asyncio.create_task(one.streams.wait_for_events(*WHERE, timeout=timedelta(hours=1)))
    await asyncio.sleep(0)
    shared_server.ask("CLIENT", "KILL", "TYPE", "pubsub")
    async with bounded():
        await waiting
        await one.streams.wait_for_events(*WHERE, timeout=timedelta(hours=1))
        waiting = asyncio.create_task(one.streams.wait_for_events(*WHERE, timeout=timedelta(hours=1)))
        await asyncio.sleep(0)
        await one.store.close()
        await waiting
