"""Leases by the server's clock: what a sign of life renews and says, and what is put back."""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from helpers.records import after, new_input, new_record
from helpers.shared_store import KINDS, Kind, SharedServer
from helpers.waiting import bounded
from taskgate.domain.events import InputRequested, InputWithdrawn
from taskgate.domain.record import Lease, Outcome, Succeeded, TaskRecord, TaskStatus, Transition, evolve
from taskgate.stores.open import open_shared
from taskgate.stores.redis.options import KeyNames, RedisOptions
from taskgate.stores.references import plain_reference
from taskgate.stores.shared import SharedBackend

LEASE = timedelta(seconds=15)
ENDED: Outcome = Succeeded(result='{"content":[]}', tool_error=False)


def held(holder: str, *, left: timedelta = LEASE, **changes: object) -> TaskRecord:
    """A record that a process holds, for so long by the server's clock."""
    now = datetime.now(UTC)
    changes = {"created_at": now, "updated_at": now, "lease": Lease(holder=holder, until=now + left), **changes}
    return new_record(**changes)


async def stored(shared: SharedBackend, record: TaskRecord) -> TaskRecord:
    """The record as it is kept."""
    kept = await shared.store.load(record.owner, record.id, now=record.created_at, bodies=True)
    assert kept is not None
    return kept


async def test_a_sign_of_life_tells_the_time_of_the_server(one: SharedBackend) -> None:
    before = time.time()
    beat = await one.leases.beat("one", {}, lease=LEASE)
    assert before - 0.1 <= beat.time.timestamp() <= time.time() + 0.1
    assert beat.time.tzinfo is UTC


async def test_a_sign_of_life_renews_what_the_process_holds_and_touches_no_revision(one: SharedBackend) -> None:
    record = held("one", left=timedelta(seconds=1))
    await one.store.insert(record, caps=())
    beat = await one.leases.beat("one", {record.id: record.revision}, lease=LEASE)
    assert (beat.ended, beat.lost, beat.behind) == (frozenset(),) * 3
    kept = await stored(one, record)
    assert kept.lease == Lease(holder="one", until=beat.time + LEASE)
    assert evolve(kept, lease=None) == evolve(record, lease=None)


async def test_a_lease_that_has_lapsed_is_renewed_while_nobody_took_over(
    one: SharedBackend, other: SharedBackend
) -> None:
    record = held("one", left=-timedelta(seconds=5))
    await one.store.insert(record, caps=())
    beat = await one.leases.beat("one", {record.id: record.revision}, lease=LEASE)
    assert not beat.lost
    taken = await other.store.lapsed(holder="other", until=beat.time + LEASE, now=beat.time, limit=1)
    assert taken == ()


async def test_nothing_is_taken_over_of_a_state_before_the_takers_last_sign_of_life(
    one: SharedBackend, other: SharedBackend, shared_server: SharedServer, shared_options: RedisOptions
) -> None:
    """It came back after that: leases have lapsed in it that were renewed since."""
    record = held("one", left=-timedelta(seconds=1))
    await one.store.insert(record, caps=())
    await one.leases.beat("one", {}, lease=LEASE)
    heard = (await other.leases.beat("other", {}, lease=LEASE)).time + LEASE
    lives = KeyNames(shared_options.key_prefix).of("lives")

    async def taken() -> list[str]:
        now = datetime.now(UTC)
        found = await other.store.lapsed(holder="other", until=now + LEASE, now=now, limit=9, heard=heard)
        return [each.id for each in found]

    known = shared_server.ask("ZSCORE", lives, "other")
    # Another sign of life of the taker, whose answer is on its way, may have found that state.
    for other_sign in (float(known) - 1, float(known) + 1):
        shared_server.ask("ZADD", lives, other_sign, "other")
        assert await taken() == []
    shared_server.ask("ZREM", lives, "other")
    assert await taken() == []
    shared_server.ask("ZADD", lives, known, "other")
    assert await taken() == [record.id]


async def test_a_sign_of_life_shortens_no_lease(one: SharedBackend) -> None:
    record = held("one", left=timedelta(hours=1))
    await one.store.insert(record, caps=())
    await one.leases.beat("one", {record.id: record.revision}, lease=LEASE)
    assert (await stored(one, record)).lease == record.lease


async def test_a_task_that_another_took_over_is_lost_and_stays_with_the_other(
    one: SharedBackend, other: SharedBackend
) -> None:
    record = held("one", left=-timedelta(seconds=1))
    await one.store.insert(record, caps=())
    now = datetime.now(UTC)
    (taken,) = await other.store.lapsed(holder="other", until=now + LEASE, now=now, limit=1)
    beat = await one.leases.beat("one", {record.id: record.revision}, lease=2 * LEASE)
    assert beat.lost == {record.id}
    assert (await stored(one, record)).lease == taken.lease


async def test_a_task_that_nobody_holds_is_not_the_process_s_either(one: SharedBackend) -> None:
    record = evolve(held("one"), lease=None)
    await one.store.insert(record, caps=())
    beat = await one.leases.beat("one", {record.id: record.revision}, lease=LEASE)
    assert beat.lost == {record.id}
    assert (await stored(one, record)).lease is None


async def test_a_task_that_has_ended_is_told_of_and_left_alone(one: SharedBackend) -> None:
    record = held("one")
    await one.store.insert(record, caps=())
    done = evolve(record, status=TaskStatus.COMPLETED, outcome=ENDED, revision=record.revision + 1, lease=None)
    assert await one.store.swap(done, expected=record.revision)
    beat = await one.leases.beat("one", {record.id: record.revision}, lease=LEASE)
    assert (beat.ended, beat.lost, beat.behind) == ({record.id}, frozenset(), frozenset())


async def test_what_the_store_does_not_have_or_has_older_is_behind(one: SharedBackend) -> None:
    older, gone = held("one"), held("one")
    await one.store.insert(older, caps=())
    beat = await one.leases.beat("one", {older.id: older.revision + 1, gone.id: 0}, lease=LEASE)
    assert beat.behind == {older.id, gone.id}
    assert not beat.lost


async def test_a_row_that_is_none_any_more_costs_no_other_its_lease(
    one: SharedBackend, shared_server: SharedServer, shared_options: RedisOptions
) -> None:
    """Whoever may write to the store can put anything in the place of a row."""
    damaged, sound = held("one"), held("one")
    for record in (damaged, sound):
        await one.store.insert(record, caps=())
    (row,) = [key for key in shared_server.keys(shared_options.key_prefix) if key.endswith(damaged.id.encode())]
    shared_server.ask("SET", row, "none", "EX", 60)
    beat = await one.leases.beat("one", {damaged.id: 0, sound.id: 0}, lease=2 * LEASE)
    assert beat.behind == {damaged.id}
    lease, before = (await stored(one, sound)).lease, sound.lease
    assert lease is not None
    assert before is not None
    assert lease.until > before.until


async def test_many_tasks_are_one_command(
    one: SharedBackend, shared_server: SharedServer, shared_options: RedisOptions
) -> None:
    records = [held("one") for _ in range(40)]
    for record in records:
        await one.store.insert(record, caps=())
    await one.leases.beat("one", {}, lease=LEASE)
    shared_server.ask("CONFIG", "RESETSTAT")
    await one.leases.beat("one", {record.id: record.revision for record in records}, lease=LEASE)
    assert shared_server.commands()["evalsha"] == 1


async def test_who_gave_a_sign_of_life_lately_is_told(one: SharedBackend, other: SharedBackend) -> None:
    assert (await one.leases.beat("one", {}, lease=LEASE)).alive == {"one"}
    assert (await other.leases.beat("other", {}, lease=LEASE)).alive == {"one", "other"}
    assert (await one.leases.beat("one", {}, lease=LEASE)).alive == {"one", "other"}
    await other.leases.part("other")
    assert (await one.leases.beat("one", {}, lease=LEASE)).alive == {"one"}
    await other.leases.part("other")


async def test_who_gives_no_sign_of_life_is_not_among_them_for_long(one: SharedBackend, other: SharedBackend) -> None:
    await other.leases.beat("other", {}, lease=timedelta(microseconds=1))
    assert (await one.leases.beat("one", {}, lease=LEASE)).alive == {"one"}


async def test_who_vanished_is_told_to_all_until_it_is_back(one: SharedBackend, other: SharedBackend) -> None:
    third = {"three": (await other.leases.beat("three", {}, lease=timedelta(microseconds=1))).time}
    first = await one.leases.beat("one", {}, lease=LEASE)
    assert (first.vanished.keys(), first.vanished["three"] >= third["three"]) == ({"three"}, True)
    assert (await other.leases.beat("other", {}, lease=LEASE)).vanished == first.vanished
    assert (await other.leases.beat("three", {}, lease=LEASE)).vanished == {}
    assert (await one.leases.beat("one", {}, lease=LEASE)).vanished == {}


async def test_who_parted_did_not_vanish(one: SharedBackend, other: SharedBackend) -> None:
    await other.leases.beat("other", {}, lease=timedelta(microseconds=1))
    await other.leases.part("other")
    assert (await one.leases.beat("one", {}, lease=LEASE)).vanished == {}


async def test_who_vanished_is_forgotten_after_ten_minutes(
    one: SharedBackend, shared_server: SharedServer, shared_options: RedisOptions
) -> None:
    now = time.time_ns() // 1000
    vanished = KeyNames(shared_options.key_prefix).of("vanished")
    shared_server.ask("ZADD", vanished, str(now - 599_000_000), "late", str(now - 601_000_000), "later")
    assert (await one.leases.beat("one", {}, lease=LEASE)).vanished.keys() == {"late"}
    assert 3_500_000 < int(shared_server.ask("PTTL", vanished)) <= 3_600_000


async def test_a_sign_of_life_is_told_until_when_the_one_before_was_good(
    one: SharedBackend, other: SharedBackend
) -> None:
    first = await one.leases.beat("one", {}, lease=LEASE)
    assert first.before is None
    await other.leases.beat("other", {}, lease=2 * LEASE)
    second = await one.leases.beat("one", {}, lease=LEASE / 3)
    assert second.before == first.time + LEASE
    assert (await one.leases.beat("one", {}, lease=LEASE)).before == second.time + LEASE / 3


async def test_of_a_sign_of_life_that_the_store_forgot_nothing_is_told(
    one: SharedBackend, shared_server: SharedServer, shared_options: RedisOptions
) -> None:
    await one.leases.beat("one", {}, lease=LEASE)
    shared_server.ask("FLUSHDB")
    assert (await one.leases.beat("one", {}, lease=LEASE)).before is None


async def test_the_leases_can_be_had_apart(one: SharedBackend) -> None:
    record = held("one", left=timedelta(seconds=1))
    await one.store.insert(record, caps=())
    async with one.open_leases() as leases:
        beat = await leases.beat("one", {record.id: record.revision}, lease=LEASE)
    lease = (await stored(one, record)).lease
    assert lease is not None
    assert lease.until == beat.time + LEASE


@pytest.mark.parametrize("was_kept", [False, True])
async def test_a_task_is_put_back_with_its_bodies_where_the_store_has_forgotten_it(
    one: SharedBackend, other: SharedBackend, was_kept: bool
) -> None:
    record = held("one")
    newer = evolve(record, revision=record.revision + 1, status_message="further on")
    if was_kept:
        await one.store.insert(record, caps=())
    assert await one.leases.restore(newer)
    assert await stored(other, record) == newer
    assert not await one.leases.restore(newer)


async def test_a_task_that_is_put_back_over_an_older_state_keeps_its_transitions(one: SharedBackend) -> None:
    record = held("one")
    await one.store.insert(record, caps=())
    asks = after(record, InputRequested(request=new_input("input-1")))
    again = after(asks, InputWithdrawn(key="input-1"))
    for changed in (asks, again):
        assert await one.store.swap(changed, expected=changed.revision - 1)
    assert await one.leases.restore(evolve(again, revision=again.revision + 1, status_message="further on"))
    assert await one.store.transitions(record.id) == (
        Transition(TaskStatus.WORKING, record.created_at),
        Transition(TaskStatus.INPUT_REQUIRED, asks.updated_at),
        Transition(TaskStatus.WORKING, again.updated_at),
    )


async def test_a_task_is_found_by_its_reference_of_another_key_after_its_next_change(
    one: SharedBackend, shared_options: RedisOptions
) -> None:
    def with_key(id: str) -> str:
        return plain_reference(f"key {id}")

    record = held("one")
    await one.store.insert(record, caps=())
    again = await open_shared(shared_options, reference_of=with_key)
    try:
        assert await again.store.swap(after(record, InputRequested(request=new_input("input-1"))), expected=0)
        assert await again.store.referred(with_key(record.id)) == record.id
        assert await one.store.referred(plain_reference(record.id)) is None
    finally:
        await again.store.close()


async def test_an_outcome_is_put_back(one: SharedBackend) -> None:
    record = held("one")
    await one.store.insert(record, caps=())
    done = evolve(record, status=TaskStatus.COMPLETED, outcome=ENDED, revision=record.revision + 1, lease=None)
    assert await one.leases.restore(done)
    assert (await stored(one, record)).outcome == ENDED


async def test_nothing_is_put_back_over_what_another_holds(one: SharedBackend, other: SharedBackend) -> None:
    record = held("other")
    await other.store.insert(record, caps=())
    mine = evolve(held("one"), id=record.id, revision=record.revision + 5)
    assert not await one.leases.restore(mine)
    assert await stored(one, record) == record


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_whose_memory_is_full_says_so_and_takes_signs_of_life(tmp_path: Path, kind: Kind) -> None:
    async with SharedServer(tmp_path, kind) as server, bounded():
        shared = await open_shared(server.options())
        try:
            first = await shared.leases.beat("one", {}, lease=LEASE)
            server.ask("CONFIG", "SET", "maxmemory", "1")
            second = await shared.leases.beat("one", {}, lease=LEASE)
            server.ask("CONFIG", "SET", "maxmemory", "0")
            third = await shared.leases.beat("one", {}, lease=LEASE)
        finally:
            await shared.store.close()
    assert [beat.full for beat in (first, second, third)] == [False, True, False]
    assert (first.before, second.before, third.before) == (None, first.time + LEASE, second.time + LEASE)
