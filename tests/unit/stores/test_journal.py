"""What the journal does beyond the contract: how much it remembers, whom it wakes, what it keeps of waiters."""

import asyncio
from datetime import timedelta

import pytest

from helpers.records import HOLDER, OWNER, new_lease, new_record
from helpers.waiting import bounded
from taskgate.domain.record import OwnerKey, TaskId
from taskgate.errors import StoreUnavailable
from taskgate.stores.base import HolderWatch, News, OwnerWatch, RecordChange, TaskWatch, Watch
from taskgate.stores.journal import GONE, Journal

LONG = timedelta(hours=1)
NONE = timedelta()
MINE = OwnerWatch(owner=OWNER)


def at_zero(_: TaskId) -> int:
    return 0


async def changed(journal: Journal, watch: Watch, timeout: timedelta = LONG, revision: int = 0) -> News:
    async with bounded():
        return await journal.changed(watch, timeout=timeout, look=lambda _: revision)


async def begin(journal: Journal, watch: Watch, timeout: timedelta = LONG) -> "asyncio.Task[News]":
    waiting = asyncio.create_task(changed(journal, watch, timeout))
    await asyncio.sleep(0)
    assert not waiting.done()
    return waiting


@pytest.mark.parametrize(
    "watch", [TaskWatch(id="task", revision=0), MINE, HolderWatch(holder=HOLDER)], ids=["task", "owner", "holder"]
)
async def test_a_waiter_is_forgotten_however_its_wait_ends(watch: Watch) -> None:
    journal = Journal()
    record = new_record(id="task", revision=1, lease=new_lease())
    waiting = [await begin(journal, watch) for _ in range(3)]
    assert journal.waiters == 3
    waiting[0].cancel()
    await asyncio.gather(waiting[0], return_exceptions=True)
    assert journal.waiters == 2
    journal.note(record)
    await asyncio.gather(*waiting[1:])
    assert journal.waiters == 0
    await changed(journal, watch, NONE)
    assert journal.waiters == 0


async def test_a_look_that_fails_leaves_no_waiter() -> None:
    journal = Journal()

    def look(_: TaskId) -> int:
        raise StoreUnavailable("down")

    with pytest.raises(StoreUnavailable, match="down"):
        await journal.changed(TaskWatch(id="task", revision=0), timeout=LONG, look=look)
    assert journal.waiters == 0


async def test_the_look_comes_after_the_waiter_is_known() -> None:
    journal, seen = Journal(), []

    def look(_: TaskId) -> int:
        seen.append(journal.waiters)
        return 1

    await journal.changed(TaskWatch(id="task", revision=0), timeout=LONG, look=look)
    assert seen == [1]


async def test_a_change_of_no_newer_revision_wakes_nobody_who_watches_the_task() -> None:
    journal = Journal()
    waiting = await begin(journal, TaskWatch(id="task", revision=0))
    journal.note(new_record(id="task", revision=0))
    await asyncio.sleep(0)
    assert not waiting.done()
    journal.note(new_record(id="task", revision=3))
    assert (await waiting).changes == (RecordChange("task", 3),)


async def test_news_from_a_place_that_is_not_remembered_any_more_are_early_empty_and_not_complete() -> None:
    journal = Journal(remembered=3)
    for number in range(5):
        journal.note(new_record(id=str(number)))
    assert await changed(journal, OwnerWatch(owner=OWNER, since=1)) == News(place=5, complete=False)
    news = await changed(journal, OwnerWatch(owner=OWNER, since=2))
    assert news == News(changes=(RecordChange("2", 0), RecordChange("3", 0), RecordChange("4", 0)), place=5)


async def test_a_wait_through_more_changes_than_are_remembered_is_complete() -> None:
    journal = Journal(remembered=3)
    waiting = await begin(journal, MINE)
    for number in range(5):
        journal.note(new_record(id=str(number), owner=OwnerKey("somebody", "else")))
    journal.note(new_record(id="mine"))
    assert await waiting == News(changes=(RecordChange("mine", 0),), place=6)


async def test_more_changes_than_are_remembered_before_a_waiter_is_awake_are_not_complete() -> None:
    journal = Journal(remembered=3)
    waiting = await begin(journal, MINE)
    for number in range(4):
        journal.note(new_record(id=str(number)))
    assert await waiting == News(place=4, complete=False)


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
    journal, loop = Journal(), asyncio.get_running_loop()
    journal.note(new_record(owner=OwnerKey("somebody", "else")))
    timeout = timedelta(milliseconds=5)
    waiting = await begin(journal, watch, timeout)
    # Later than the wait's own timer, and due in the same turn of the loop as that: the loop is busy until then.
    moment = loop.time() + timeout.total_seconds()
    loop.call_at(moment, journal.note, new_record(id="task", revision=1, lease=new_lease()))
    while loop.time() <= moment:
        pass
    assert await waiting == News(changes=(RecordChange("task", 1),), place=2)


async def test_a_task_that_is_gone_is_told_even_where_its_owner_is_not_known() -> None:
    journal = Journal()
    watches = (TaskWatch(id="task", revision=0), HolderWatch(holder=HOLDER))
    waiting = [await begin(journal, watch) for watch in watches]
    journal.gone("task", owner=None, holder=HOLDER)
    assert await asyncio.gather(*waiting) == [News(changes=(RecordChange("task", GONE),), place=1)] * 2


async def test_news_are_the_newest_of_each_task_in_the_order_of_their_last_change() -> None:
    journal = Journal()
    for id, revision in (("a", 1), ("b", 1), ("a", 2), ("foreign", 9), ("c", 1)):
        owner = OwnerKey("somebody", "else") if id == "foreign" else OWNER
        journal.note(new_record(id=id, revision=revision, owner=owner))
    journal.gone("b", owner=OWNER, holder=None)
    news = await changed(journal, OwnerWatch(owner=OWNER, since=0))
    assert news == News(changes=(RecordChange("a", 2), RecordChange("c", 1), RecordChange("b", GONE)), place=6)


async def test_two_changes_in_one_turn_are_told_together() -> None:
    journal = Journal()
    waiting = await begin(journal, MINE)
    journal.note(new_record(id="a"))
    journal.note(new_record(id="b"))
    assert await waiting == News(changes=(RecordChange("a", 0), RecordChange("b", 0)), place=2)


async def test_a_change_is_told_to_who_held_the_lease_before() -> None:
    journal = Journal()
    waiting = await begin(journal, HolderWatch(holder=HOLDER))
    journal.note(new_record(id="a", revision=4), held_by=HOLDER)
    assert (await waiting).changes == (RecordChange("a", 4),)
    assert (await changed(journal, HolderWatch(holder="other", since=0), NONE)).changes == ()


async def test_time_that_is_up_gives_the_place_of_now() -> None:
    journal = Journal()
    waiting = await begin(journal, MINE, timedelta(milliseconds=1))
    journal.note(new_record(owner=OwnerKey("somebody", "else")))
    assert await waiting == News(place=1)


async def test_a_close_ends_all_waits_and_refuses_new_ones() -> None:
    journal = Journal()
    waiting = [await begin(journal, watch) for watch in (MINE, TaskWatch(id="task", revision=0))]
    journal.close()
    assert await asyncio.gather(*waiting) == [News(place=0)] * 2
    with pytest.raises(StoreUnavailable, match="closed"):
        await journal.changed(MINE, timeout=NONE, look=at_zero)
    journal.note(new_record())
    assert journal.waiters == 0


@pytest.mark.parametrize("watch", [TaskWatch(id="task", revision=0), MINE, HolderWatch(holder=HOLDER)])
async def test_what_is_forgotten_wakes_who_waits_and_is_remembered_by_nobody(watch: Watch) -> None:
    journal = Journal()
    journal.hear("task", 0, owner=OWNER, holder=HOLDER)
    waiting = await begin(journal, watch)
    journal.forget()
    # Of the same turn, and yet not all there is to tell.
    journal.hear("task", 1, owner=OWNER, holder=HOLDER)
    assert not (await waiting).complete
    for since in (0, 1):
        assert not (await changed(journal, OwnerWatch(owner=OWNER, since=since), NONE)).complete
    assert (await changed(journal, OwnerWatch(owner=OWNER, since=2), NONE)).changes == (RecordChange("task", 1),)


async def test_a_look_that_takes_time_misses_nothing_that_is_heard_meanwhile() -> None:
    journal = Journal()

    async def look(_: str) -> int:
        assert journal.waiters == 1
        journal.hear("task", 4, owner=None, holder=None)
        return 3

    watch = TaskWatch(id="task", revision=3)
    async with bounded():
        assert (await journal.changed_anywhere(watch, timeout=LONG, look=look)).changes == (RecordChange("task", 4),)
        # Of what the look itself finds, nobody needs to be told.
        older = TaskWatch(id="task", revision=2)
        assert (await journal.changed_anywhere(older, timeout=LONG, look=look)).changes == (RecordChange("task", 3),)
    assert journal.waiters == 0


async def test_a_close_during_a_look_ends_the_wait() -> None:
    journal = Journal()

    async def look(_: str) -> int:
        journal.close()
        return 0

    async with bounded():
        news = await journal.changed_anywhere(TaskWatch(id="task", revision=0), timeout=LONG, look=look)
        assert news == News(place=0)
        with pytest.raises(StoreUnavailable, match="closed"):
            await journal.changed_anywhere(TaskWatch(id="task", revision=0), timeout=LONG, look=look)
