"""Records in Redis: round trips, unreadable rows, full memory, a cluster."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest

from helpers.manual_clock import EPOCH
from helpers.records import HOLDER, OWNER, after, keep, new_lease, new_record
from helpers.redis_stores import LosingConnection, open_redis_store, several
from helpers.shared_store import Clustered, SharedServer, expect_every_key_to_expire
from helpers.waiting import bounded
from taskgate.domain.events import CallSucceeded, Dispatched, Progressed
from taskgate.domain.limits import Caps
from taskgate.domain.listing import OrderBy, TaskFilter, TaskOrder, TaskState
from taskgate.domain.record import TaskRecord, TaskStatus
from taskgate.errors import StoreUnavailable
from taskgate.stores.base import OwnerWatch, RecordChange, Scan, TaskWatch
from taskgate.stores.codec import as_head, pack_time
from taskgate.stores.redis.options import RedisOptions
from taskgate.stores.redis.records.store import RedisStore

LATER = EPOCH + timedelta(minutes=10)
LONG = timedelta(hours=1)
ENDED = CallSucceeded(result="{}", tool_error=False)
CAPS = Caps(tasks_per_context=9, tasks_per_tool=9, tasks_global=9, kept_per_context=999, kept_global=999).applicable(
    {}, None, False
)
UP = TaskOrder(by=OrderBy.CREATED, descending=False)


def row_of(record: TaskRecord, options: RedisOptions) -> str:
    return f"{options.key_prefix}{{taskgate}}:task:{record.id}"


# --- round trips -----------------------------------------------------------------------------------------------------

KEPT, OTHER = new_record(lease=new_lease()), new_record(lease=new_lease(), idempotency_digest="key")
VERBS: dict[str, Callable[[RedisStore], Awaitable[object]]] = {
    "insert": lambda store: store.insert(new_record(params="{}"), caps=CAPS),
    "repeated": lambda store: store.repeated(OWNER, "key", now=EPOCH),
    "load": lambda store: store.load(OWNER, KEPT.id, now=EPOCH),
    "load bodies": lambda store: store.load(OWNER, KEPT.id, now=EPOCH, bodies=True),
    "owner_of": lambda store: store.owner_of(KEPT.id),
    "transitions": lambda store: store.transitions(KEPT.id),
    "swap": lambda store: store.swap(after(KEPT, Dispatched()), expected=0),
    "swap to the end": lambda store: store.swap(after(OTHER, ENDED), expected=0),
    "page": lambda store: store.page(OWNER, where=TaskFilter(), order=TaskOrder(), after=None, limit=9, now=EPOCH),
    "changed": lambda store: store.changed(TaskWatch(id=KEPT.id, revision=0), timeout=timedelta()),
    "renew": lambda store: store.renew(HOLDER, frozenset({KEPT.id, OTHER.id}), LATER),
    "lapsed": lambda store: store.lapsed(holder="next", until=LATER, now=LATER, limit=1),
    "purge": lambda store: store.purge(now=LATER + LONG, limit=9),
    "census": lambda store: store.census(),
}


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
async def test_a_verb_is_one_round_trip(
    store: RedisStore,
    connection: LosingConnection,
    verb: Callable[[RedisStore], Awaitable[object]],
) -> None:
    # The server knows each script after its first use.
    for every in VERBS.values():
        await every(store)
    await store.purge(now=LATER + LONG * 9, limit=99)
    await keep(store, KEPT, OTHER)
    connection.asked = 0
    await verb(store)
    assert connection.asked == 1


# --- what cannot be read ---------------------------------------------------------------------------------------------


@pytest.fixture
async def damaged(store: RedisStore, shared_options: RedisOptions, connection: LosingConnection) -> TaskRecord:
    """The older of two records, whose head is nothing that anybody wrote; the other one is well."""
    record, other = new_record(), new_record(created_at=EPOCH + timedelta(seconds=1))
    await keep(store, record, other)
    await connection.do("HSET", row_of(record, shared_options), "head", "nothing")
    return record


async def test_a_damaged_record_is_no_record_to_its_owner_and_none_to_others(
    store: RedisStore, damaged: TaskRecord
) -> None:
    for bodies in (False, True):
        with pytest.raises(StoreUnavailable):
            await store.load(OWNER, damaged.id, now=EPOCH, bodies=bodies)
        assert await store.load(OWNER._replace(mount="x"), damaged.id, now=EPOCH, bodies=bodies) is None
    with pytest.raises(StoreUnavailable):
        await store.owner_of(damaged.id)


async def test_a_damaged_record_hides_no_other(
    store: RedisStore, damaged: TaskRecord, caplog: pytest.LogCaptureFixture
) -> None:
    page = await store.page(OWNER, where=TaskFilter(), order=UP, after=None, limit=1, now=EPOCH)
    assert page.tasks == ()
    assert page.next is not None
    page = await store.page(OWNER, where=TaskFilter(), order=UP, after=page.next, limit=1, now=EPOCH)
    (other,) = (task.id for task in page.tasks)
    page = await store.page(
        OWNER, where=TaskFilter(ids=frozenset({damaged.id, other})), order=UP, after=None, limit=9, now=EPOCH
    )
    assert [task.id for task in page.tasks] == [other]
    assert [taken.id for taken in await store.lapsed(holder="next", until=LATER, now=EPOCH, limit=1)] == [other]
    assert [head.id for head in await store.purge(now=EPOCH + 9 * LONG, limit=9)] == [other]
    assert set((await store.census()).tasks.values()) == {0}
    assert "1 unreadable stored tasks were taken over" in caplog.text
    assert "1 unreadable stored tasks were removed" in caplog.text


async def test_a_row_that_is_gone_by_itself_leaves_nothing_that_is_met_again(
    store: RedisStore, shared_options: RedisOptions, connection: LosingConnection
) -> None:
    """As where nobody was left to purge it for longer than its keys stay."""
    record, other = new_record(), new_record(created_at=EPOCH + timedelta(seconds=1))
    await keep(store, record, other)
    await connection.do("DEL", row_of(record, shared_options))
    page = await store.page(OWNER, where=TaskFilter(), order=UP, after=None, limit=9, now=EPOCH)
    assert [task.id for task in page.tasks] == [other.id]
    assert [taken.id for taken in await store.lapsed(holder="next", until=LATER, now=EPOCH, limit=1)] == [other.id]
    assert [head.id for head in await store.purge(now=EPOCH + 9 * LONG, limit=9)] == [other.id]
    assert set((await store.census()).tasks.values()) == {0}


async def test_members_that_nobody_here_wrote_end_no_scan(
    store: RedisStore, shared_options: RedisOptions, connection: LosingConnection
) -> None:
    record = new_record()
    await keep(store, record)
    score = pack_time(record.expires_at) - 1
    members = [value for name in (b"\xff", b"x" * 3000, b"", b"\0") for value in (score, name)]
    await connection.do("ZADD", f"{shared_options.key_prefix}{{taskgate}}:unfinished:everybody", *members)
    for unfinished in (True, False):
        found, place = list[str](), ""
        while place is not None:
            part = await store.scan(
                unfinished=unfinished, wants=lambda _: True, after=place or None, limit=1, now=EPOCH
            )
            found += [head.id for head in part.heads]
            place = part.next
        assert found == [record.id]


async def overwrite(connection: LosingConnection, row: str, damage: str) -> None:
    """Put something that nobody here wrote in the place of a row."""
    if damage == "half a row":
        for field in ("expires", "state"):
            await connection.do("HDEL", row, field)
    elif damage == "no times":
        await connection.do("HSET", row, "created", "once", "expires", "never", "size", "large")
    else:
        await connection.do("SET", row, "of another type", "PX", 60_000)


@pytest.mark.parametrize("damage", ["another type", "half a row", "no times"])
async def test_what_is_no_row_keeps_no_other_from_being_taken_over_or_removed(
    store: RedisStore, shared_options: RedisOptions, connection: LosingConnection, damage: str
) -> None:
    root = f"{shared_options.key_prefix}{{taskgate}}:"
    records = [new_record(created_at=EPOCH + timedelta(seconds=number)) for number in range(3)]
    others = [record.id for record in records[::2]]
    await keep(store, *records)
    await overwrite(connection, row_of(records[1], shared_options), damage)
    taken = await store.lapsed(holder="next", until=LATER, now=EPOCH, limit=9)
    assert [record.id for record in taken] == others
    assert sorted(await connection.do("ZRANGE", f"{root}open", 0, -1)) == sorted(id.encode() for id in others)
    assert [head.id for head in await store.purge(now=EPOCH + 9 * LONG, limit=9)] == others
    assert await store.load(OWNER, records[1].id, now=EPOCH) is None
    assert set((await store.census()).tasks.values()) == {0}


@pytest.mark.parametrize("damage", ["another type", "half a row", "no times"])
async def test_what_is_no_row_keeps_no_other_out_of_a_list(
    store: RedisStore, shared_options: RedisOptions, connection: LosingConnection, damage: str
) -> None:
    records = [new_record(created_at=EPOCH + timedelta(seconds=number)) for number in range(3)]
    others = [record.id for record in records[::2]]
    await keep(store, *records)
    await overwrite(connection, row_of(records[1], shared_options), damage)
    for where in (TaskFilter(), TaskFilter(ids=frozenset(record.id for record in records))):
        page = await store.page(OWNER, where=where, order=UP, after=None, limit=9, now=EPOCH)
        assert [task.id for task in page.tasks] == others


@pytest.mark.parametrize("until", ["soon", "", "9" * 30])
async def test_a_record_whose_lease_is_damaged_cannot_be_read_and_goes_in_its_time(
    store: RedisStore, shared_options: RedisOptions, connection: LosingConnection, until: str
) -> None:
    record, other = new_record(lease=new_lease()), new_record(lease=new_lease())
    await keep(store, record, other)
    await connection.do("HSET", row_of(record, shared_options), "until", until, "rev", "many")
    with pytest.raises(StoreUnavailable):
        await store.load(OWNER, record.id, now=EPOCH)
    with pytest.raises(StoreUnavailable):
        await store.changed(TaskWatch(id=record.id, revision=0), timeout=LONG)
    assert [head.id for head in await store.purge(now=EPOCH + 9 * LONG, limit=9)] == [other.id]


# --- lists -----------------------------------------------------------------------------------------------------------


async def test_a_list_of_which_much_is_passed_over_is_read_on(store: RedisStore) -> None:
    """What fails the bounds of the other time is passed over one by one, a bounded number of them at a time."""
    hour = [new_record(created_at=EPOCH + timedelta(milliseconds=number)) for number in range(1200)]
    async with bounded():
        await asyncio.gather(*(store.insert(record, caps=()) for record in hour))
    wanted = [after(record, Progressed(message="x"), by=timedelta(minutes=1)) for record in (hour[3], hour[-3])]
    for record in wanted:
        assert await store.swap(record, expected=0)
    where = TaskFilter(updated_after=EPOCH + timedelta(seconds=30), states=frozenset({TaskState(TaskStatus.WORKING)}))
    for order in (UP, TaskOrder(by=OrderBy.CREATED)):
        page = await store.page(OWNER, where=where, order=order, after=None, limit=2, now=EPOCH)
        ids = [record.id for record in wanted]
        assert [task.id for task in page.tasks] == (ids[::-1] if order.descending else ids)
        assert page.next is None
    assert len(await store.purge(now=EPOCH + 9 * LONG, limit=9999)) == len(hour)


# --- the server ------------------------------------------------------------------------------------------------------


@pytest.mark.program
async def test_a_server_without_memory_refuses_what_is_new_and_serves_what_there_is(tmp_path: Path) -> None:
    async with SharedServer(tmp_path) as server:
        options = server.options()
        store = await open_redis_store(options)
        try:
            record = new_record(ttl=timedelta(minutes=1), params="{}")
            await keep(store, record)
            server.ask("CONFIG", "SET", "maxmemory", "1")
            with pytest.raises(StoreUnavailable):
                await store.insert(new_record(), caps=())
            with pytest.raises(StoreUnavailable):
                await store.swap(after(record, ENDED), expected=0)
            assert await store.load(OWNER, record.id, now=EPOCH, bodies=True) == record
            page = await store.page(OWNER, where=TaskFilter(), order=UP, after=None, limit=9, now=EPOCH)
            assert len(page.tasks) == 1
            part = await store.scan(unfinished=True, wants=lambda _: False, after=None, limit=1, now=EPOCH)
            assert part == Scan((), None)
            part = await store.scan(unfinished=True, wants=lambda _: True, after=None, limit=1, now=EPOCH)
            assert part.heads == (as_head(record),)
            part = await store.scan(unfinished=True, wants=lambda _: True, after=part.next, limit=1, now=EPOCH)
            assert part == Scan((), None)
            assert (await store.census()).tasks[TaskStatus.WORKING] == 1
            assert await store.purge(now=record.expires_at, limit=9) == (as_head(record),)
            server.ask("CONFIG", "SET", "maxmemory", "0")
            await keep(store, new_record())
        finally:
            await store.close()


async def test_a_server_that_forgot_its_scripts_is_told_them_again(
    store: RedisStore, connection: LosingConnection
) -> None:
    record = new_record()
    await keep(store, record)
    await connection.do("SCRIPT", "FLUSH")
    assert await store.swap(after(record, ENDED), expected=0)


@pytest.mark.program
async def test_a_cluster_keeps_all_of_it_in_one_slot(tmp_path: Path) -> None:
    async with Clustered(tmp_path, replicas=0) as cluster:
        options = cluster.options()
        async with several(options) as (here, there):
            record = new_record(lease=new_lease(), idempotency_digest="key", params="{}")
            async with bounded():
                since = (await there.changed(OwnerWatch(owner=OWNER), timeout=timedelta())).place
                assert await here.insert(record, caps=CAPS) == record.id
                assert await there.insert(new_record(idempotency_digest="key"), caps=CAPS) == record.id
                heard = await there.changed(OwnerWatch(owner=OWNER, since=since), timeout=LONG)
                assert heard.changes == (RecordChange(record.id, 0),)
            assert await there.load(OWNER, record.id, now=EPOCH, bodies=True) == record
            await there.renew(HOLDER, frozenset({record.id}), LATER)
            moved = after(record, Dispatched(), ENDED)
            page = await here.page(OWNER, where=TaskFilter(), order=UP, after=None, limit=9, now=EPOCH)
            assert [task.id for task in page.tasks] == [record.id]
            (taken,) = await there.lapsed(holder="next", until=LATER + LONG, now=LATER, limit=9)
            assert taken.id == record.id
            assert await here.swap(moved, expected=0)
            assert (await here.census()).tasks[TaskStatus.COMPLETED] == 1
            assert await there.purge(now=record.expires_at, limit=9) == (as_head(moved),)
            for node in cluster.primaries:
                expect_every_key_to_expire(node, options)
