"""The cached heads of a SQLite store: no read while a task is unchanged, and a bounded number."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from helpers.manual_clock import EPOCH
from helpers.records import HOLDER, OWNER, after, keep, new_lease, new_record
from helpers.waiting import bounded
from taskgate.domain.events import CallFaulted, CallSucceeded, Dispatched, Progressed
from taskgate.domain.record import FaultReason, TaskRecord
from taskgate.stores.base import HolderWatch, TaskWatch
from taskgate.stores.codec import as_head
from taskgate.stores.sqlite.file import SqliteOptions, open_file
from taskgate.stores.sqlite.state import SEEN
from taskgate.stores.sqlite.store import SqliteStore

ENDED = CallSucceeded(result="{}", tool_error=False)


class Polls:
    """A store, and every statement it reads with on the event loop."""

    def __init__(self, path: Path) -> None:
        file = open_file(
            SqliteOptions(path=path, synchronous="NORMAL", busy_timeout=timedelta(seconds=5), max_size=1 << 26)
        )
        self.path = path
        self.reads: list[str] = []
        file.near.set_trace_callback(self.reads.append)
        self.store = SqliteStore(file)

    async def poll(self, record: TaskRecord) -> int:
        """Load the head; how many reads that took."""
        before = len(self.reads)
        assert await self.store.load(OWNER, record.id, now=EPOCH) is not None
        return len(self.reads) - before


@pytest.fixture
async def polls(tmp_path: Path) -> AsyncIterator[Polls]:
    made = Polls(tmp_path / "taskgate.db")
    yield made
    async with bounded():
        await made.store.close()


async def test_a_task_that_does_not_change_is_read_once(polls: Polls) -> None:
    record = new_record()
    await keep(polls.store, record)
    assert [await polls.poll(record) for _ in range(3)] == [1, 0, 0]
    assert await polls.store.swap(ended := after(record, ENDED), expected=0)
    assert [await polls.poll(ended) for _ in range(3)] == [1, 0, 0]


async def test_a_head_that_is_not_in_memory_is_read_without_a_wait(polls: Polls) -> None:
    record = new_record()
    await keep(polls.store, record)
    assert await polls.store.swap(ended := after(record, ENDED), expected=0)
    assert [polls.store.recall(OWNER, ended.id, now=EPOCH) for _ in range(2)] == [as_head(ended)] * 2
    assert len(polls.reads) == 1


async def test_of_a_foreign_task_as_much_is_read_as_of_a_missing_one(polls: Polls) -> None:
    record, foreign = new_record(), OWNER._replace(context="another")
    await keep(polls.store, record)
    await polls.poll(record)
    for id in (record.id, "missing"):
        polls.reads.clear()
        assert polls.store.recall(foreign, id, now=EPOCH) is None
        assert await polls.store.load(foreign, id, now=EPOCH) is None
        assert len(polls.reads) == 2


async def test_a_task_whose_call_leaves_at_once_is_not_read_until_it_has_ended(polls: Polls) -> None:
    record = new_record(lease=new_lease(), dispatched=True)
    await keep(polls.store, record)
    assert await polls.poll(record) == 0
    assert await polls.store.load(OWNER, record.id, now=EPOCH) == as_head(record)


async def test_a_task_that_moves_on_is_not_read_at_all(polls: Polls) -> None:
    record = new_record(lease=new_lease())
    await keep(polls.store, record)
    for event in (Dispatched(), Progressed(message="half")):
        moved = after(record, event)
        assert await polls.store.swap(moved, expected=record.revision)
        assert await polls.poll(moved) == 0
        record = moved


async def test_a_task_that_moves_on_does_not_make_another_forgotten_for_itself(polls: Polls) -> None:
    records = [new_record() for _ in range(SEEN)]
    await keep(polls.store, *records)
    assert [await polls.poll(record) for record in records] == [1] * SEEN
    assert await polls.store.swap(moved := after(records[-1], Dispatched()), expected=0)
    assert [await polls.poll(record) for record in (records[0], moved)] == [0, 0]


async def test_an_end_that_waits_behind_a_takeover_ends_the_task_of_the_next_holder(polls: Polls) -> None:
    record, until = new_record(lease=new_lease(until=EPOCH), dispatched=True), EPOCH + timedelta(minutes=1)
    await keep(polls.store, record)
    place = (await polls.store.changed(HolderWatch(holder="next"), timeout=timedelta())).place
    # The head is cached when the end is submitted, and says less than the row when that is written.
    taken, was_swapped = await asyncio.gather(
        polls.store.lapsed(holder="next", until=until, now=EPOCH, limit=1),
        polls.store.swap(ended := after(record, ENDED), expected=0),
    )
    assert [one.id for one in taken] == [record.id]
    assert was_swapped
    assert await polls.store.load(OWNER, record.id, now=EPOCH) == as_head(ended)
    news = await polls.store.changed(HolderWatch(holder="next", since=place), timeout=timedelta())
    assert [change.id for change in news.changes] == [record.id]


@pytest.mark.parametrize("key", [None, "key"])
async def test_a_task_ends_once_and_keeps_its_result_and_its_key(polls: Polls, key: str | None) -> None:
    record = new_record(lease=new_lease(), dispatched=True, idempotency_digest=key)
    await keep(polls.store, record)
    assert await polls.store.swap(ended := after(record, ENDED), expected=0)
    assert not await polls.store.swap(after(record, ENDED), expected=0)
    assert await polls.store.load(OWNER, record.id, now=EPOCH) == as_head(ended)
    whole = await polls.store.load(OWNER, record.id, now=EPOCH, bodies=True)
    assert whole is not None
    assert whole.outcome == ended.outcome
    assert await polls.store.repeated(OWNER, "key", now=EPOCH) == (record.id if key else None)


async def test_an_end_unsent_releases_the_key_of_a_row_that_is_cached(polls: Polls) -> None:
    record = new_record(lease=new_lease(), dispatched=True, idempotency_digest="key")
    await keep(polls.store, record)
    unsent = CallFaulted(error="{}", reason=FaultReason.SHUTDOWN, message="no", unsent=True)
    assert await polls.store.swap(after(record, unsent), expected=0)
    assert await polls.store.repeated(OWNER, "key", now=EPOCH) is None


async def test_what_is_remembered_of_a_swap_is_a_head_with_the_lease_that_lies_in_the_file(polls: Polls) -> None:
    later = EPOCH + timedelta(minutes=9)
    record = new_record(lease=new_lease())
    await keep(polls.store, record)
    await polls.store.renew(HOLDER, frozenset({record.id}), later)
    assert await polls.store.swap(moved := after(record, Dispatched()), expected=0)
    remembered = await polls.store.load(OWNER, record.id, now=EPOCH)
    assert polls.reads == []
    assert remembered == replace(as_head(moved), lease=new_lease(until=later))


async def test_the_head_that_was_read_first_is_forgotten_when_there_are_too_many(polls: Polls) -> None:
    records = [new_record() for _ in range(SEEN + 1)]
    await keep(polls.store, *records)
    assert [await polls.poll(record) for record in records] == [1] * (SEEN + 1)
    assert [await polls.poll(record) for record in reversed(records)] == [0] * SEEN + [1]


async def test_what_is_not_found_is_not_remembered(polls: Polls) -> None:
    record = new_record()
    assert await polls.store.load(OWNER, record.id, now=EPOCH) is None
    await keep(polls.store, record)
    assert await polls.store.load(OWNER, record.id, now=EPOCH) is not None


async def test_who_waits_is_not_sent_back_to_a_head_whose_change_the_loop_has_not_heard_of(polls: Polls) -> None:
    store, record = polls.store, new_record()
    await keep(store, record)
    head = await store.load(OWNER, record.id, now=EPOCH)
    assert head is not None
    swapping = asyncio.create_task(store.swap(after(head, Progressed(message="1/2")), expected=0))
    # One turn for the task, one for the writer to send what it collected.
    for _ in range(3):
        await asyncio.sleep(0)
    block_until_committed(polls.path)
    looks = 0
    async with bounded():
        while head.revision == 0:
            await store.changed(TaskWatch(id=record.id, revision=0), timeout=timedelta(seconds=1))
            head = await store.load(OWNER, record.id, now=EPOCH)
            assert head is not None
            looks += 1
            assert looks < 10, "the same head again and again, and the loop never gets on"
        assert await swapping


def block_until_committed(path: Path) -> None:
    """Keep the loop from turning until the writer's thread has committed."""
    end = time.monotonic() + 5
    with closing(sqlite3.connect(path)) as other:
        while other.execute("SELECT max(revision) FROM tasks").fetchone() == (0,):
            assert time.monotonic() < end


async def test_who_waits_for_the_end_of_a_task_does_not_read_its_head(polls: Polls) -> None:
    record = new_record()
    await keep(polls.store, record)
    watch = TaskWatch(id=record.id, revision=0)
    waiting = asyncio.create_task(polls.store.changed(watch, timeout=timedelta(minutes=1)))
    async with bounded():
        await asyncio.sleep(0)
        assert await polls.store.swap(ended := after(record, ENDED), expected=0)
        await waiting
    polls.reads.clear()
    assert polls.store.recall(OWNER, record.id, now=EPOCH) == as_head(ended)
    assert polls.reads == []
