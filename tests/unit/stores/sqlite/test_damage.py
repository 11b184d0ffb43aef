"""Unreadable rows and missing tables: an error for who asks for one, no obstacle to others."""

import logging
from dataclasses import replace
from datetime import timedelta

import orjson
import pytest

from helpers.manual_clock import EPOCH
from helpers.records import HOLDER, OWNER, after, keep, new_lease, new_record
from helpers.waiting import bounded
from taskgate.domain.events import Dispatched
from taskgate.domain.listing import Position, TaskFilter, TaskOrder
from taskgate.domain.record import TaskId, TaskRecord
from taskgate.errors import StoreUnavailable
from taskgate.stores.base import HolderWatch, RecordChange, TaskWatch
from taskgate.stores.codec import as_head, pack_head
from unit.stores.sqlite.conftest import Place

SECOND = timedelta(seconds=1)
FAR_OFF = EPOCH + timedelta(days=1)
HEADS = {
    "no JSON": b"\xff",
    "nothing": b"",
    "another version": b"[9]",
    "no array": b"7",
    "too short": b"[1]",
    "too deep": b" " + b"[" * 100_000,
    "a number": 5,
    "other types": orjson.dumps([1, *[{} for _ in range(19)]]),
    "a status of nobody": pack_head(new_record()).replace(b'"working"', b'"paused"'),
    "a time too far": pack_head(new_record()).replace(b"1767", b"9001767", 1),
    "an end too far": pack_head(new_record()).replace(b",3600000000,", b",9000000000000000000,"),
}


def damage(place: Place, *records: TaskRecord, head: object = b"\xff") -> None:
    for record in records:
        place.file.writer.execute("UPDATE tasks SET head = ? WHERE id = ?", (head, record.id))


def count(place: Place, table: str) -> int:
    return int(place.file.writer.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


async def lapsed(place: Place, limit: int = 100) -> list[TaskId]:
    return [one.id for one in await place.store.lapsed(holder="next", until=FAR_OFF, now=EPOCH, limit=limit)]


async def page(place: Place, limit: int, after: Position | None = None) -> tuple[list[TaskId], Position | None]:
    order = TaskOrder(descending=False)
    page = await place.store.page(OWNER, where=TaskFilter(), order=order, after=after, limit=limit, now=EPOCH)
    return [task.id for task in page.tasks], page.next


def aged(count: int) -> list[TaskRecord]:
    """Records from the oldest on."""
    return [new_record(created_at=EPOCH + number * SECOND, ttl=timedelta(hours=1)) for number in range(count)]


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
class TestEveryDamage:
    @pytest.mark.parametrize("bodies", [False, True])
    async def test_is_no_missing_task_to_who_asks_for_it(self, place: Place, head: object, bodies: bool) -> None:
        record = new_record()
        await keep(place.store, record)
        damage(place, record, head=head)
        with pytest.raises(StoreUnavailable):
            await place.store.load(OWNER, record.id, now=EPOCH, bodies=bodies)

    async def test_is_nobodys_to_who_asks_whose_it_is(self, place: Place, head: object) -> None:
        await keep(place.store, record := new_record())
        damage(place, record, head=head)
        with pytest.raises(StoreUnavailable):
            await place.store.owner_of(record.id)

    async def test_is_left_out_wherever_many_are_looked_at(self, place: Place, head: object) -> None:
        old, damaged, young = aged(3)
        await keep(place.store, old, damaged, young)
        damage(place, damaged, head=head)
        assert await page(place, 9) == ([old.id, young.id], None)
        assert await lapsed(place) == [old.id, young.id]
        gone = await place.store.purge(now=young.expires_at, limit=9)
        assert [one.id for one in gone] == [old.id, young.id]
        assert [count(place, table) for table in ("tasks", "params", "outcomes")] == [0, 0, 0]


async def test_a_purge_counts_what_it_cannot_read(place: Place) -> None:
    records = aged(4)
    await keep(place.store, *records)
    damage(place, *records[:3])
    now = records[-1].expires_at
    gone = [[head.id for head in await place.store.purge(now=now, limit=2)] for _ in range(2)]
    assert gone == [[], [records[3].id]]


async def test_who_waits_for_a_task_hears_of_its_purge_though_it_cannot_be_read(place: Place) -> None:
    record = new_record(lease=new_lease())
    await keep(place.store, record)
    damage(place, record)
    since = (await place.store.changed(HolderWatch(holder=HOLDER), timeout=timedelta())).place
    await place.store.purge(now=record.expires_at, limit=1)
    for watch in (HolderWatch(holder=HOLDER, since=since), TaskWatch(id=record.id, revision=0)):
        async with bounded():
            news = await place.store.changed(watch, timeout=timedelta(hours=1))
        assert news.changes == (RecordChange(record.id, -1),)


async def test_a_head_that_was_read_before_the_damage_goes_with_the_purge(place: Place) -> None:
    record = new_record()
    await keep(place.store, record)
    assert await place.store.load(OWNER, record.id, now=EPOCH) is not None
    damage(place, record)
    assert await place.store.purge(now=record.expires_at, limit=1) == ()
    assert await place.store.load(OWNER, record.id, now=EPOCH) is None


@pytest.mark.parametrize("limit", [1, 2, 3, 9])
async def test_fewer_than_asked_for_lapse_only_when_none_is_left(place: Place, limit: int) -> None:
    records = aged(12)
    await keep(place.store, *records)
    readable = [record.id for number, record in enumerate(records) if number in (5, 9, 11)]
    damage(place, *(record for record in records if record.id not in readable))
    assert await lapsed(place, limit) == readable[:limit]
    assert await lapsed(place) == readable[limit:]
    assert await lapsed(place) == []
    held = place.file.writer.execute("SELECT DISTINCT holder FROM tasks").fetchall()
    assert held == [("next",)]


async def test_what_cannot_be_read_is_met_once_even_if_its_new_lease_has_lapsed_already(place: Place) -> None:
    records = aged(5)
    await keep(place.store, *records)
    damage(place, *records[:4])
    async with bounded():
        (taken,) = await place.store.lapsed(holder="next", until=EPOCH, now=EPOCH, limit=2)
    assert taken.id == records[4].id


@pytest.mark.parametrize("size", [10, 5000], ids=["small", "large"])
async def test_parameters_that_cannot_be_read_are_as_bad_as_a_head_to_who_needs_them(place: Place, size: int) -> None:
    fresh, sent = new_record(params="x" * size), new_record(dispatched=True)
    await keep(place.store, fresh, sent)
    place.file.writer.execute("UPDATE tasks SET params = x'ff' WHERE params IS NOT NULL")
    place.file.writer.execute("UPDATE params SET body = x'ff'")
    taken = await place.store.lapsed(holder="next", until=FAR_OFF, now=EPOCH, limit=9)
    assert taken == (replace(as_head(sent), lease=new_lease(holder="next", until=FAR_OFF)),)


async def test_a_page_that_ends_with_what_cannot_be_read_has_the_next_one_after_it(place: Place) -> None:
    records = aged(5)
    await keep(place.store, *records)
    damage(place, records[1], records[2], records[3])
    found, after = await page(place, 2)
    assert found == [records[0].id]
    assert after == Position(records[1].updated_at, records[1].id)
    found, after = await page(place, 2, after)
    assert found == []
    assert await page(place, 2, after) == ([records[4].id], None)


async def test_the_log_tells_how_many_and_nothing_of_them(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    records = aged(3)
    await keep(place.store, *records)
    damage(place, *records[:2])
    with caplog.at_level(logging.INFO, logger="taskgate.stores"):
        await lapsed(place)
        await place.store.purge(now=records[-1].expires_at, limit=9)
        await place.store.purge(now=records[-1].expires_at, limit=9)
    assert caplog.messages == [
        "2 unreadable stored tasks were taken over",
        "2 unreadable stored tasks were removed",
    ]


async def test_bodies_are_not_read_for_what_was_dispatched(place: Place) -> None:
    await keep(place.store, *(new_record(dispatched=bool(number)) for number in range(3)))
    said: list[str] = []
    place.file.writer.set_trace_callback(said.append)
    taken = await place.store.lapsed(holder="next", until=FAR_OFF, now=EPOCH, limit=9)
    place.file.writer.set_trace_callback(None)
    assert [one.call.params is not None for one in taken] == [True, False, False]
    assert sum("params" in statement for statement in said) == 1


async def test_a_count_of_what_is_unknown_is_refused(place: Place) -> None:
    await keep(place.store, new_record())
    place.file.writer.execute("UPDATE tasks SET status = 'paused'")
    store = await place.reopen()
    with pytest.raises(StoreUnavailable):
        await store.census()


async def test_a_table_that_is_gone_is_a_store_that_is_unavailable(place: Place) -> None:
    record = new_record()
    await keep(place.store, record)
    place.file.writer.executescript("DROP TABLE tasks; DROP TABLE sessions")
    store = place.store
    for verb in (
        store.load(OWNER, record.id, now=EPOCH),
        store.find(OWNER, "id", now=EPOCH),
        store.changed(TaskWatch(id=record.id, revision=0), timeout=timedelta()),
        store.page(OWNER, where=TaskFilter(), order=TaskOrder(), after=None, limit=1, now=EPOCH),
        store.insert(new_record(), caps=()),
        store.swap(after(record, Dispatched()), expected=0),
        store.purge(now=EPOCH, limit=1),
    ):
        with pytest.raises(StoreUnavailable):
            await verb
