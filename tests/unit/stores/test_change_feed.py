"""The change feed beyond the contract: remembered changes, woken waiters, forgotten waiters."""

import asyncio
from datetime import timedelta

import pytest

from helpers.records import HOLDER, OWNER, new_lease, new_record
from helpers.virtual_time import keep_busy
from helpers.waiting import bounded
from taskgate.domain.record import OwnerKey, TaskId
from taskgate.errors import StoreUnavailable
from taskgate.stores.base import ChangeBatch, HolderWatch, OwnerWatch, RecordChange, StoreWatch, TaskWatch, Watch
from taskgate.stores.change_feed import GONE, ChangeFeed

LONG = timedelta(hours=1)
NONE = timedelta()
MINE = OwnerWatch(owner=OWNER)


def at_zero(_: TaskId) -> int:
    return 0


async def changed(feed: ChangeFeed, watch: Watch, timeout: timedelta = LONG, revision: int = 0) -> ChangeBatch:
    async with bounded():
        return await feed.changed(watch, timeout=timeout, look=lambda _: revision)


async def begin(feed: ChangeFeed, watch: Watch, timeout: timedelta = LONG) -> "asyncio.Task[ChangeBatch]":
    waiting = asyncio.create_task(changed(feed, watch, timeout))
    await asyncio.sleep(0)
    assert not waiting.done()
    return waiting


@pytest.mark.parametrize(
    "watch",
    [TaskWatch(id="task", revision=0), MINE, HolderWatch(holder=HOLDER), StoreWatch()],
    ids=["task", "owner", "holder", "store"],
)
async def test_a_waiter_is_forgotten_however_its_wait_ends(watch: Watch) -> None:
    feed = ChangeFeed()
    record = new_record(id="task", revision=1, lease=new_lease())
    waiting = [await begin(feed, watch) for _ in range(3)]
    assert feed.waiters == 3
    waiting[0].cancel()
    await asyncio.gather(waiting[0], return_exceptions=True)
    assert feed.waiters == 2
    feed.add_committed(record)
    await asyncio.gather(*waiting[1:])
    assert feed.waiters == 0
    await changed(feed, watch, NONE)
    assert feed.waiters == 0


async def test_a_look_that_fails_leaves_no_waiter() -> None:
    feed = ChangeFeed()

    def look(_: TaskId) -> int:
        raise StoreUnavailable("down")

    with pytest.raises(StoreUnavailable, match="down"):
        await feed.changed(TaskWatch(id="task", revision=0), timeout=LONG, look=look)
    assert feed.waiters == 0


async def test_the_look_comes_after_the_waiter_is_known() -> None:
    feed, seen = ChangeFeed(), []

    def look(_: TaskId) -> int:
        seen.append(feed.waiters)
        return 1

    await feed.changed(TaskWatch(id="task", revision=0), timeout=LONG, look=look)
    assert seen == [1]


async def test_a_change_of_no_newer_revision_wakes_nobody_who_watches_the_task() -> None:
    feed = ChangeFeed()
    waiting = await begin(feed, TaskWatch(id="task", revision=0))
    feed.add_committed(new_record(id="task", revision=0))
    await asyncio.sleep(0)
    assert not waiting.done()
    feed.add_committed(new_record(id="task", revision=3))
    assert (await waiting).changes == (RecordChange("task", 3),)


async def test_news_from_a_place_that_is_not_remembered_any_more_are_early_empty_and_not_complete() -> None:
    feed = ChangeFeed(remembered=3)
    for number in range(5):
        feed.add_committed(new_record(id=str(number)))
    assert await changed(feed, OwnerWatch(owner=OWNER, since=1)) == ChangeBatch(place=5, complete=False)
    news = await changed(feed, OwnerWatch(owner=OWNER, since=2))
    assert news == ChangeBatch(changes=(RecordChange("2", 0), RecordChange("3", 0), RecordChange("4", 0)), place=5)


async def test_a_wait_through_more_changes_than_are_remembered_is_complete() -> None:
    feed = ChangeFeed(remembered=3)
    waiting = await begin(feed, MINE)
    for number in range(5):
        feed.add_committed(new_record(id=str(number), owner=OwnerKey("somebody", "else")))
    feed.add_committed(new_record(id="mine"))
    assert await waiting == ChangeBatch(changes=(RecordChange("mine", 0),), place=6)


async def test_more_changes_than_are_remembered_before_a_waiter_is_awake_are_not_complete() -> None:
    feed = ChangeFeed(remembered=3)
    waiting = await begin(feed, MINE)
    for number in range(4):
        feed.add_committed(new_record(id=str(number)))
    assert await waiting == ChangeBatch(place=4, complete=False)


@pytest.mark.parametrize(
    "watch",
    [
        TaskWatch(id="task", revision=0),
        MINE,
        OwnerWatch(owner=OWNER, since=1),
        HolderWatch(holder=HOLDER),
        HolderWatch(holder=HOLDER, since=1),
    ],
    ids=["task", "owner", "owner since", "holder", "holder since"],
)
async def test_a_change_between_the_end_of_the_time_and_the_waiters_next_step_is_not_lost(watch: Watch) -> None:
    feed, loop = ChangeFeed(), asyncio.get_running_loop()
    feed.add_committed(new_record(owner=OwnerKey("somebody", "else")))
    timeout = timedelta(milliseconds=5)
    waiting = await begin(feed, watch, timeout)
    # Later than the wait's own timer, and due in the same turn of the loop as that: the loop is busy until then.
    moment = loop.time() + timeout.total_seconds()
    loop.call_at(moment, feed.add_committed, new_record(id="task", revision=1, lease=new_lease()))
    keep_busy(2 * timeout.total_seconds())
    assert await waiting == ChangeBatch(changes=(RecordChange("task", 1),), place=2)


async def test_a_task_that_is_gone_is_told_even_where_its_owner_is_not_known() -> None:
    feed = ChangeFeed()
    watches = (TaskWatch(id="task", revision=0), HolderWatch(holder=HOLDER))
    waiting = [await begin(feed, watch) for watch in watches]
    feed.add_removed("task", owner=None, holder=HOLDER)
    assert await asyncio.gather(*waiting) == [ChangeBatch(changes=(RecordChange("task", GONE),), place=1)] * 2


async def test_news_are_the_newest_of_each_task_in_the_order_of_their_last_change() -> None:
    feed = ChangeFeed()
    for id, revision in (("a", 1), ("b", 1), ("a", 2), ("foreign", 9), ("c", 1)):
        owner = OwnerKey("somebody", "else") if id == "foreign" else OWNER
        feed.add_committed(new_record(id=id, revision=revision, owner=owner))
    feed.add_removed("b", owner=OWNER, holder=None)
    news = await changed(feed, OwnerWatch(owner=OWNER, since=0))
    assert news == ChangeBatch(changes=(RecordChange("a", 2), RecordChange("c", 1), RecordChange("b", GONE)), place=6)


async def test_two_changes_in_one_turn_are_told_together() -> None:
    feed = ChangeFeed()
    waiting = await begin(feed, MINE)
    feed.add_committed(new_record(id="a"))
    feed.add_committed(new_record(id="b"))
    assert await waiting == ChangeBatch(changes=(RecordChange("a", 0), RecordChange("b", 0)), place=2)


async def test_a_change_is_told_to_who_held_the_lease_before() -> None:
    feed = ChangeFeed()
    waiting = await begin(feed, HolderWatch(holder=HOLDER))
    feed.add_committed(new_record(id="a", revision=4), held_by=HOLDER)
    assert (await waiting).changes == (RecordChange("a", 4),)
    assert (await changed(feed, HolderWatch(holder="other", since=0), NONE)).changes == ()


@pytest.mark.parametrize("since", [None, 0])
async def test_what_is_no_news_to_its_holder_wakes_it_not_and_is_not_told(since: int | None) -> None:
    feed = ChangeFeed()
    watch = HolderWatch(holder=HOLDER, since=since, is_news=lambda id, revision: (id, revision) != ("own", 1))
    waiting = await begin(feed, watch)
    feed.add("own", 1, owner=OWNER, holder=HOLDER)
    await asyncio.sleep(0)
    assert not waiting.done()
    feed.add("own", 2, owner=OWNER, holder=HOLDER)
    feed.add("own", 1, owner=OWNER, holder=HOLDER)
    assert await waiting == ChangeBatch(changes=(RecordChange("own", 2),), place=3)


async def test_time_that_is_up_gives_the_place_of_now() -> None:
    feed = ChangeFeed()
    waiting = await begin(feed, MINE, timedelta(milliseconds=1))
    feed.add_committed(new_record(owner=OwnerKey("somebody", "else")))
    assert await waiting == ChangeBatch(place=1)


async def test_a_close_ends_all_waits_and_refuses_new_ones() -> None:
    feed = ChangeFeed()
    waiting = [await begin(feed, watch) for watch in (MINE, TaskWatch(id="task", revision=0))]
    feed.close()
    assert await asyncio.gather(*waiting) == [ChangeBatch(place=0)] * 2
    with pytest.raises(StoreUnavailable, match="closed"):
        await feed.changed(MINE, timeout=NONE, look=at_zero)
    feed.add_committed(new_record())
    assert feed.waiters == 0


@pytest.mark.parametrize("watch", [TaskWatch(id="task", revision=0), MINE, HolderWatch(holder=HOLDER)])
async def test_what_is_forgotten_wakes_who_waits_and_is_remembered_by_nobody(watch: Watch) -> None:
    feed = ChangeFeed()
    feed.add("task", 0, owner=OWNER, holder=HOLDER)
    waiting = await begin(feed, watch)
    feed.reset()
    # Of the same turn, and yet not all there is to tell.
    feed.add("task", 1, owner=OWNER, holder=HOLDER)
    assert not (await waiting).complete
    for since in (0, 1):
        assert not (await changed(feed, OwnerWatch(owner=OWNER, since=since), NONE)).complete
    assert (await changed(feed, OwnerWatch(owner=OWNER, since=2), NONE)).changes == (RecordChange("task", 1),)


async def test_a_look_that_takes_time_misses_nothing_that_is_heard_meanwhile() -> None:
    feed = ChangeFeed()

    async def look(_: str) -> int:
        assert feed.waiters == 1
        feed.add("task", 4, owner=None, holder=None)
        return 3

    watch = TaskWatch(id="task", revision=3)
    async with bounded():
        assert (await feed.changed_remotely(watch, timeout=LONG, look=look)).changes == (RecordChange("task", 4),)
        # Of what the look itself finds, nobody needs to be told.
        older = TaskWatch(id="task", revision=2)
        assert (await feed.changed_remotely(older, timeout=LONG, look=look)).changes == (RecordChange("task", 3),)
    assert feed.waiters == 0


async def test_a_close_during_a_look_ends_the_wait() -> None:
    feed = ChangeFeed()

    async def look(_: str) -> int:
        feed.close()
        return 0

    async with bounded():
        news = await feed.changed_remotely(TaskWatch(id="task", revision=0), timeout=LONG, look=look)
        assert news == ChangeBatch(place=0)
        with pytest.raises(StoreUnavailable, match="closed"):
            await feed.changed_remotely(TaskWatch(id="task", revision=0), timeout=LONG, look=look)
