"""The scripts by themselves: after each step every index has what the rows say, and nothing else.

Each test leads through what one script is there for, so that a missing line of it shows. `tests/mutants` takes
the lines out, one after the other.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from helpers.manual_clock import EPOCH
from helpers.records import OWNER, after, keep, new_input, new_lease, new_record, new_session
from helpers.redis_rows import Rows, expect_indexes
from helpers.redis_stores import LosingConnection, connect, open_redis_store, store_over
from helpers.shared_store import SharedServer
from helpers.waiting import bounded
from taskgate.domain.events import CallSucceeded, Dispatched, InputAnswered, InputRequested
from taskgate.domain.limits import Cap, CapScope
from taskgate.domain.listing import OrderBy, TaskFilter, TaskOrder, TaskState
from taskgate.domain.record import OwnerKey, TaskRecord, TaskStatus, evolve
from taskgate.errors import StoreUnavailable, TooManyBytes, TooManyTasks
from taskgate.stores.base import OwnerWatch
from taskgate.stores.codec import pack_time
from taskgate.stores.redis.client import Script, Value
from taskgate.stores.redis.connector import RedisConnector
from taskgate.stores.redis.options import RedisOptions, digest
from taskgate.stores.redis.records import rows
from taskgate.stores.redis.records.store import RedisStore
from taskgate.stores.shared import SharedBackend

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
OTHER = OwnerKey("someone", "elsewhere")
ENDED = CallSucceeded(result='{"content":[]}', tool_error=False)
FAILED = CallSucceeded(result='{"content":[1]}', tool_error=True)

Whole = Callable[[], Rows]


@pytest.fixture
async def store(shared_options: RedisOptions) -> AsyncIterator[RedisStore]:
    """An empty store."""
    store = await open_redis_store(shared_options)
    yield store
    await store.close()


@pytest.fixture
async def other(shared_options: RedisOptions) -> AsyncIterator[RedisStore]:
    """The same as another process has it."""
    store = await open_redis_store(shared_options)
    yield store
    await store.close()


@pytest.fixture
def whole(shared_server: SharedServer, shared_options: RedisOptions) -> Whole:
    """Holds every index to the rows."""
    return lambda: expect_indexes(shared_server, shared_options)


async def loaded(store: RedisStore, record: TaskRecord) -> TaskRecord | None:
    """The record as it is kept, its bodies with it."""
    return await store.load(record.owner, record.id, now=record.created_at, bodies=True)


# --- swap ------------------------------------------------------------------------------------------------------------


async def test_a_swap_leads_a_task_through_its_states(store: RedisStore, other: RedisStore, whole: Whole) -> None:
    record = new_record(lease=new_lease(), idempotency_digest="name", dispatched=False)
    await keep(store, record, new_record(owner=OTHER), new_record())
    whole()
    answer = InputAnswered(key="input-1", response='{"action":"decline"}')
    for event in (Dispatched(), InputRequested(request=new_input()), answer, ENDED):
        earlier, record = record, after(record, event)
        # It stands for its name no longer from when it has ended.
        record = evolve(record, idempotency_digest=None) if event is ENDED else record
        assert await store.swap(record, expected=earlier.revision)
        assert await loaded(other, record) == record
        before = whole()
        assert not await store.swap(after(earlier, FAILED), expected=earlier.revision)
        assert whole() == before
    assert await other.repeated(OWNER, "name", now=EPOCH) is None


async def test_a_swap_of_any_other_revision_changes_nothing_at_all(store: RedisStore, whole: Whole) -> None:
    """What fences one who was taken for dead: there is no other line that does."""
    record = new_record(revision=7, lease=new_lease())
    await keep(store, record)
    before = whole()
    for expected in (-1, 0, 6, 8, 70):
        assert not await store.swap(after(record, ENDED), expected=expected)
        assert whole() == before
    gone = new_record(revision=7)
    assert not await store.swap(after(gone, ENDED), expected=7)
    assert whole() == before


async def test_of_two_that_swap_one_wins_though_both_lead_to_the_same_revision(
    store: RedisStore, other: RedisStore, whole: Whole
) -> None:
    record = new_record()
    await keep(store, record)
    assert await store.swap(after(record, ENDED), expected=0)
    assert not await other.swap(after(record, FAILED), expected=0)
    assert not await other.swap(after(record, ENDED), expected=0)
    assert await loaded(store, record) == after(record, ENDED)
    whole()


async def test_a_swap_keeps_the_longer_lease_of_the_same_holder_alone(store: RedisStore, whole: Whole) -> None:
    for holder, until, kept in (
        ("process-1", 2 * SECOND, HOUR),
        ("process-1", 2 * HOUR, 2 * HOUR),
        ("process-2", 2 * SECOND, 2 * SECOND),
    ):
        record = new_record(lease=new_lease(until=EPOCH + SECOND))
        await keep(store, record)
        await store.renew("process-1", frozenset({record.id}), EPOCH + HOUR)
        moved = evolve(after(record, Dispatched()), lease=new_lease(holder=holder, until=EPOCH + until))
        assert await store.swap(moved, expected=0)
        whole()
        found = await store.load(OWNER, record.id, now=EPOCH)
        assert found is not None
        assert found.lease == new_lease(holder=holder, until=EPOCH + kept)


async def test_a_swap_without_a_lease_leaves_none(store: RedisStore, whole: Whole) -> None:
    record = new_record(lease=new_lease())
    await keep(store, record)
    assert await store.swap(evolve(after(record, Dispatched()), lease=None), expected=0)
    (row,) = whole().values()
    assert (row["holder"], row["until"]) == ("", "0")


async def test_a_swap_of_what_has_ended_is_no_news(store: RedisStore, other: RedisStore, whole: Whole) -> None:
    record = new_record()
    await keep(store, record)
    await store.swap(after(record, ENDED), expected=0)
    ended = after(record, ENDED)
    place = (await other.changed(OwnerWatch(owner=OWNER), timeout=timedelta(seconds=0.2))).place
    fetched = evolve(ended, revision=ended.revision + 1, outcome=None)
    assert await store.swap(fetched, expected=ended.revision)
    whole()
    news = await other.changed(OwnerWatch(owner=OWNER, since=place), timeout=timedelta(seconds=0.2))
    assert news.changes == ()


async def test_a_swap_that_changes_the_time_alone_moves_it_in_its_list(store: RedisStore, whole: Whole) -> None:
    record = new_record(lease=new_lease())
    await keep(store, record)
    later = evolve(record, revision=1, updated_at=EPOCH + SECOND, status_message="1/2")
    for before, now in ((record, later), (later, evolve(later, revision=2, status_message="2/2"))):
        assert await store.swap(now, expected=before.revision)
        whole()


async def test_a_swap_knows_no_rule_of_tasks(store: RedisStore, whole: Whole) -> None:
    """One that ended and is open again takes room again, and what comes late is counted."""
    record = new_record(lease=new_lease())
    ended = evolve(after(record, ENDED), outcome=None)
    late = evolve(ended, revision=ended.revision + 1, outcome=after(record, ENDED).outcome)
    opened = evolve(after(record, Dispatched()), revision=late.revision + 1)
    await keep(store, record)
    for before, now in ((record, ended), (ended, late), (late, opened)):
        assert await store.swap(now, expected=before.revision)
        (row,) = whole().values()
        assert row["open"] == ("1" if now is opened else "")


# --- insert ----------------------------------------------------------------------------------------------------------


def cap(scope: CapScope, limit: int, **more: Any) -> Cap:
    """A cap of that scope."""
    return Cap(scope=scope, limit=limit, **more)


async def test_an_insert_beyond_a_cap_changes_nothing(store: RedisStore, whole: Whole) -> None:
    await keep(store, new_record(params="x" * 100, tenant="gold"), new_record(params="y", owner=OTHER))
    before = whole()
    with pytest.raises(TooManyTasks):
        await store.insert(new_record(), caps=(cap(CapScope.CONTEXT, 5), cap(CapScope.GLOBAL, 2)))
    with pytest.raises(TooManyTasks):
        await store.insert(new_record(), caps=(cap(CapScope.CONTEXT, 1),))
    with pytest.raises(TooManyBytes):
        await store.insert(new_record(), caps=(cap(CapScope.CONTEXT, 100, bytes=True),))
    with pytest.raises(TooManyBytes):
        await store.insert(new_record(), caps=(cap(CapScope.GLOBAL, 101, bytes=True),))
    assert whole() == before
    room = (cap(CapScope.CONTEXT, 2), cap(CapScope.CONTEXT, 101, bytes=True), cap(CapScope.GLOBAL, 3))
    await store.insert(new_record(params="z"), caps=room)
    assert len(whole()) == 3


async def test_what_has_expired_counts_for_no_cap_of_tasks(store: RedisStore, whole: Whole) -> None:
    await keep(store, new_record(ttl=SECOND))
    for offset, fits in ((timedelta(milliseconds=500), False), (SECOND, True)):
        late = new_record(created_at=EPOCH + offset)
        if fits:
            await store.insert(late, caps=(cap(CapScope.CONTEXT, 1),))
        else:
            with pytest.raises(TooManyTasks):
                await store.insert(late, caps=(cap(CapScope.CONTEXT, 1),))
        whole()


async def test_a_name_leads_to_the_first_until_that_expires(store: RedisStore, whole: Whole) -> None:
    first = new_record(idempotency_digest="name", ttl=SECOND)
    assert await store.insert(first, caps=()) == first.id
    before = whole()
    assert await store.insert(new_record(idempotency_digest="name"), caps=(cap(CapScope.CONTEXT, 0),)) == first.id
    assert whole() == before
    assert await store.insert(new_record(idempotency_digest="other"), caps=()) != first.id
    next_one = new_record(idempotency_digest="name", created_at=EPOCH + SECOND)
    assert await store.insert(next_one, caps=()) == next_one.id
    assert await store.repeated(OWNER, "name", now=EPOCH + SECOND) == next_one.id
    # What it stood for before takes the name with it no more.
    await store.purge(now=EPOCH + SECOND, limit=10)
    assert await store.repeated(OWNER, "name", now=EPOCH + SECOND) == next_one.id
    whole()


async def test_an_id_is_taken_once(store: RedisStore, whole: Whole) -> None:
    record = new_record()
    await keep(store, record)
    before = whole()
    with pytest.raises(StoreUnavailable):
        await store.insert(evolve(new_record(tenant="gold"), id=record.id), caps=())
    assert whole() == before


# --- renew and take over ---------------------------------------------------------------------------------------------


async def test_a_holder_renews_its_own_alone(store: RedisStore, whole: Whole) -> None:
    mine, theirs = new_record(lease=new_lease()), new_record(lease=new_lease(holder="process-2"))
    ended, free = after(new_record(lease=new_lease()), ENDED), new_record()
    await keep(store, mine, theirs, ended, free)
    ids = frozenset({mine.id, theirs.id, ended.id, free.id, "gone"})
    await store.renew("process-1", ids, EPOCH + HOUR)
    rows = whole()
    assert [rows[each.id]["until"] == rows[mine.id]["until"] for each in (mine, theirs, free)] == [True, False, False]
    assert (await loaded(store, mine)) == evolve(mine, lease=new_lease(until=EPOCH + HOUR))


async def test_what_has_lapsed_is_taken_oldest_first_and_once(
    store: RedisStore, other: RedisStore, whole: Whole
) -> None:
    older = new_record(lease=new_lease(until=EPOCH + 3 * SECOND))
    newer = new_record(lease=new_lease(until=EPOCH + SECOND), created_at=EPOCH + SECOND, dispatched=True)
    newest = new_record(lease=new_lease(until=EPOCH + 2 * SECOND), created_at=EPOCH + 2 * SECOND)
    expired = new_record(lease=new_lease(until=EPOCH + SECOND), ttl=2 * SECOND)
    living = new_record(lease=new_lease(until=EPOCH + 4 * SECOND))
    ended = after(new_record(lease=new_lease(until=EPOCH + SECOND)), ENDED)
    await keep(store, newest, newer, older, expired, living, ended)
    take = {"holder": "taker", "until": EPOCH + HOUR, "now": EPOCH + 3 * SECOND}
    taken = await other.lapsed(**take, limit=2)
    whole()
    assert [(each.id, each.call.params is not None) for each in taken] == [(older.id, True), (newer.id, False)]
    assert {each.lease for each in taken} == {new_lease(holder="taker", until=EPOCH + HOUR)}
    assert [each.id for each in await store.lapsed(**take, limit=9)] == [newest.id]
    assert await store.lapsed(**take, limit=9) == ()
    rows = whole()
    held = {each.id: rows[each.id]["holder"] for each in (older, newer, newest, expired, living)}
    assert list(held.values()) == ["taker", "taker", "taker", "process-1", "process-1"]


# --- restore ---------------------------------------------------------------------------------------------------------


async def test_a_task_is_put_back_in_the_place_of_an_older_one_wholly(
    store: RedisStore, one: SharedBackend, whole: Whole
) -> None:
    record = new_record(lease=new_lease(), params="x" * 100, idempotency_digest="name", tenant="gold")
    sent = after(record, Dispatched())
    asked = after(sent, InputRequested(request=new_input()))
    await keep(store, record)
    # One that is older, or the same, takes nobody's place.
    for put_back, takes in ((asked, True), (sent, False), (asked, False)):
        assert await one.leases.restore(put_back) is takes
        (row,) = whole().values()
        assert (row["rev"], row["state"]) == (str(asked.revision), "input_required")


async def test_a_task_that_is_put_back_leaves_its_name_to_one_that_has_it(
    store: RedisStore, one: SharedBackend, whole: Whole
) -> None:
    lost = new_record(lease=new_lease(), idempotency_digest="name")
    has_it, free = (
        new_record(idempotency_digest="name", ttl=SECOND),
        new_record(lease=new_lease(), idempotency_digest="free"),
    )
    await keep(store, has_it)
    assert await one.leases.restore(lost)
    assert await one.leases.restore(free)
    rows = whole()
    assert [bool(rows[each.id]["name"]) for each in (has_it, lost, free)] == [True, False, True]
    assert await store.repeated(OWNER, "name", now=EPOCH) == has_it.id
    # One whose time is over stands for nothing any more.
    late = new_record(lease=new_lease(), idempotency_digest="name", created_at=EPOCH + SECOND)
    assert await one.leases.restore(late)
    assert await store.repeated(OWNER, "name", now=EPOCH + SECOND) == late.id


# --- withdraw --------------------------------------------------------------------------------------------------------


async def test_a_task_that_nobody_was_told_of_is_removed_wholly_and_others_hear_that(
    other: RedisStore, shared_options: RedisOptions, whole: Whole
) -> None:
    connection, record = connect(shared_options), new_record(params="x" * 50, lease=new_lease())
    store = await store_over(connection, shared_options)
    place = (await other.changed(OwnerWatch(owner=OWNER), timeout=timedelta(seconds=0.1))).place
    connection.lost = 2
    with pytest.raises(StoreUnavailable):
        await store.insert(record, caps=())
    watch, told = OwnerWatch(owner=OWNER, since=place), list[tuple[str, int]]()
    async with bounded():
        # Its end may be told after its beginning, which the lost connection may bring late.
        while told != [(record.id, -1)]:
            await asyncio.sleep(0.01)
            told = [(each.id, each.revision) for each in (await other.changed(watch, timeout=2 * SECOND)).changes]
    assert not whole()
    await store.close()


# --- purge -----------------------------------------------------------------------------------------------------------


async def test_what_has_expired_is_removed_longest_first_and_wholly(
    store: RedisStore, other: RedisStore, whole: Whole
) -> None:
    first = new_record(ttl=SECOND, lease=new_lease(), idempotency_digest="name")
    second = after(new_record(ttl=2 * SECOND, params="x" * 50, tenant="gold"), ENDED)
    third, stays = new_record(ttl=3 * SECOND), new_record(ttl=4 * SECOND)
    await keep(store, third, second, first, stays)
    place = (await other.changed(OwnerWatch(owner=OWNER), timeout=timedelta(seconds=0.1))).place
    assert [each.id for each in await store.purge(now=EPOCH + 3 * SECOND, limit=2)] == [first.id, second.id]
    whole()
    news = await other.changed(OwnerWatch(owner=OWNER, since=place), timeout=timedelta(seconds=2))
    assert news.changes
    assert {change.revision for change in news.changes} == {-1}
    assert [each.id for each in await store.purge(now=EPOCH + 3 * SECOND, limit=2)] == [third.id]
    assert await store.purge(now=EPOCH + 3 * SECOND, limit=2) == ()
    assert set(whole()) == {stays.id}


async def test_what_nobody_here_wrote_is_removed_with_its_place(
    store: RedisStore, shared_server: SharedServer, shared_options: RedisOptions, whole: Whole
) -> None:
    record = new_record(ttl=SECOND)
    await keep(store, record, new_record())
    root = f"{shared_options.key_prefix}{{taskgate}}:"
    shared_server.ask("SET", f"{root}task:odd", "no row", "PX", 3_600_000)
    shared_server.ask("ZADD", f"{root}all:working", 1, "odd", 1, "gone")
    assert [each.id for each in await store.purge(now=EPOCH + SECOND, limit=10)] == [record.id]
    assert len(whole()) == 1
    assert await store.purge(now=EPOCH + SECOND, limit=10) == ()


# --- sessions of hosts -----------------------------------------------------------------------------------------------


async def test_a_session_its_place_among_all_and_their_time_change_together(
    store: RedisStore, shared_server: SharedServer, shared_options: RedisOptions
) -> None:
    root, now = f"{shared_options.key_prefix}{{taskgate}}:", datetime.now(UTC)
    row_kept, day = timedelta(days=1), timedelta(days=1)

    def expect(sessions: dict[str, datetime]) -> None:
        """Each has a row and a place, by when it ends, and both are there for a day longer."""
        places = shared_server.ask("ZRANGE", f"{root}sessions", 0, -1, "WITHSCORES")
        flat = [part for pair in places for part in pair] if places and isinstance(places[0], list) else places
        there = {name.decode(): int(float(ends)) for name, ends in zip(flat[::2], flat[1::2], strict=True)}
        assert there == {digest(id): pack_time(ends) for id, ends in sessions.items()}
        rows = [key.decode() for key in shared_server.keys(f"{root}session:")]
        assert sorted(rows) == sorted(f"{root}session:{digest(id)}" for id in sessions)
        for id, ends in sessions.items():
            left = timedelta(milliseconds=shared_server.ask("PTTL", f"{root}session:{digest(id)}"))
            assert abs(ends + row_kept - now - left) < timedelta(minutes=1)
        if sessions:
            left = timedelta(milliseconds=shared_server.ask("PTTL", f"{root}sessions"))
            assert left > max(sessions.values()) + row_kept - now - timedelta(minutes=1)

    short, long = new_session(expires_at=now + HOUR), new_session(expires_at=now + day)
    await store.put(long)
    await store.put(short)
    expect({short.id: now + HOUR, long.id: now + day})
    with pytest.raises(StoreUnavailable):
        await store.put(replace(short, expires_at=now + 2 * HOUR))
    await store.touch(frozenset({short.id, "gone"}), until=now + 3 * day)
    expect({short.id: now + 3 * day, long.id: now + day})
    assert await store.purge_sessions(now=now + day - SECOND) == 0
    assert not await store.drop(OTHER, short.id)
    expect({short.id: now + 3 * day, long.id: now + day})
    assert await store.purge_sessions(now=now + day) == 1
    expect({short.id: now + 3 * day})
    assert await store.drop(short.owner, short.id)
    assert not await store.drop(short.owner, short.id)
    expect({})


# --- fields ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["head", "owner", "expires"])
async def test_a_row_of_which_a_part_is_missing_is_on_no_page(
    store: RedisStore, shared_server: SharedServer, shared_options: RedisOptions, missing: str
) -> None:
    record, other = new_record(), new_record()
    await keep(store, record, other)
    shared_server.ask("HDEL", f"{shared_options.key_prefix}{{taskgate}}:task:{record.id}", missing)
    where = TaskFilter(ids=frozenset({record.id, other.id}))
    page = await store.page(OWNER, where=where, order=TaskOrder(), after=None, limit=5, now=EPOCH)
    assert [task.id for task in page.tasks] == [other.id]


# --- page ------------------------------------------------------------------------------------------------------------


class Counting(LosingConnection):
    """A connection that remembers how many rows each page of a list had that the server gave."""

    pages: tuple[int, ...] = ()

    async def run(
        self, script: Script, keys: Sequence[str], arguments: Sequence[Value], *, durable: bool = False
    ) -> Any:
        answer = await super().run(script, keys, arguments, durable=durable)
        if script is rows.PAGE:
            self.pages += (len(answer[0]),)
        return answer


async def test_a_page_looks_at_no_more_than_it_may_and_gives_no_more_than_it_was_asked_for(
    shared_options: RedisOptions,
) -> None:
    connection = Counting(RedisConnector(shared_options), limit=8, wait=timedelta(seconds=5))
    store = await store_over(connection, shared_options)
    hour = [new_record(created_at=EPOCH + timedelta(milliseconds=number)) for number in range(1200)]
    await asyncio.gather(*(store.insert(record, caps=()) for record in hour))
    working = frozenset({TaskState(TaskStatus.WORKING)})
    found = TaskFilter(states=working)
    order = TaskOrder(by=OrderBy.CREATED)
    page = await store.page(OWNER, where=found, order=order, after=None, limit=5, now=EPOCH)
    assert (len(page.tasks), connection.pages) == (5, (6,))
    connection.pages = ()
    passed_over = TaskFilter(states=working, updated_after=EPOCH + HOUR)
    page = await store.page(OWNER, where=passed_over, order=order, after=None, limit=5, now=EPOCH)
    assert (page.tasks, connection.pages) == ((), (0, 0))
    await store.close()


@pytest.mark.parametrize("descending", [False, True])
async def test_of_one_time_ids_are_in_the_order_of_their_bytes_whatever_their_states(
    store: RedisStore, descending: bool
) -> None:
    ids = ["task", "task-1", "task-12", "task-2"]
    for number, id in enumerate(ids):
        record = evolve(new_record(), id=id)
        await keep(store, evolve(after(record, ENDED), updated_at=EPOCH) if number % 2 else record)
    order = TaskOrder(by=OrderBy.CREATED, descending=descending)
    page = await store.page(OWNER, where=TaskFilter(), order=order, after=None, limit=5, now=EPOCH)
    assert [task.id for task in page.tasks] == (ids[::-1] if descending else ids)
