"""What operators ask of a store: a task by its reference, its transitions, and the tasks of all owners."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from helpers.manual_clock import EPOCH
from helpers.records import OWNER, after, keep, new_call, new_input, new_record
from taskgate.domain.events import CallSucceeded, InputRequested, InputWithdrawn, TaskEvent
from taskgate.domain.record import MAX_TRANSITIONS, CallerNames, OwnerKey, TaskRecord, TaskStatus, Transition
from taskgate.stores.base import MOST_SCANNED, Scan, Store
from taskgate.stores.codec import text_in_head
from taskgate.stores.references import plain_reference

DONE = CallSucceeded(result="{}", tool_error=False)
WORKING, ASKS, COMPLETED = TaskStatus.WORKING, TaskStatus.INPUT_REQUIRED, TaskStatus.COMPLETED


def asked(number: int) -> TaskEvent:
    return InputRequested(request=new_input(f"input-{number}"))


def answered(number: int) -> TaskEvent:
    return InputWithdrawn(key=f"input-{number}")


async def moved(store: Store, record: TaskRecord, *events: TaskEvent) -> TaskRecord:
    """The record after these events, each of which is stored."""
    for event in events:
        changed = after(record, event)
        assert await store.swap(changed, expected=record.revision)
        record = changed
    return record


async def found(store: Store, *, unfinished: bool) -> list[str]:
    """The ids of all parts of a scan, each of three at most."""
    ids, place = list[str](), None
    while True:
        part = await store.scan(unfinished=unfinished, wants=lambda _: True, after=place, limit=3, now=EPOCH)
        assert len(part.heads) <= 3
        ids += [head.id for head in part.heads]
        place = part.next
        if place is None:
            return ids


# --- references


async def test_a_task_is_found_by_its_reference_until_it_is_removed(store: Store) -> None:
    records = [new_record(id=f"task-{number}") for number in range(3)]
    await keep(store, *records)
    for record in records:
        assert await store.referred(plain_reference(record.id)) == record.id
    await store.purge(now=records[0].expires_at, limit=9)
    assert await store.referred(plain_reference(records[0].id)) is None


async def test_a_reference_that_no_task_has_finds_nothing(store: Store) -> None:
    record = new_record()
    await keep(store, record)
    right = plain_reference(record.id)
    for text in (
        "",
        "t_",
        "t_!",
        right[:-1],
        right + "A",
        right[:20] + "__",
        "t_" + "ä" * 22,
        "t_\ud800",
        plain_reference(""),
    ):
        assert await store.referred(text) is None, text


async def test_a_task_that_has_ended_is_found_by_its_reference(store: Store) -> None:
    record = new_record()
    await keep(store, record)
    await moved(store, record, DONE)
    assert await store.referred(plain_reference(record.id)) == record.id


# --- transitions


async def test_a_new_task_has_the_transition_of_its_creation(store: Store) -> None:
    record = new_record()
    await keep(store, record)
    assert await store.transitions(record.id) == (Transition(WORKING, EPOCH),)


async def test_the_transitions_of_a_task_have_the_time_of_each(store: Store) -> None:
    record = new_record()
    await keep(store, record)
    first = await moved(store, record, asked(1))
    second = await moved(store, first, asked(2), answered(1), answered(2))
    ended = await moved(store, second, DONE)
    assert await store.transitions(record.id) == (
        Transition(WORKING, record.created_at),
        Transition(ASKS, first.updated_at),
        Transition(WORKING, second.updated_at),
        Transition(COMPLETED, ended.updated_at),
    )


async def test_a_swap_that_was_lost_leaves_no_transition(store: Store) -> None:
    record = new_record()
    await keep(store, record)
    assert not await store.swap(after(record, asked(1)), expected=7)
    assert len(await store.transitions(record.id)) == 1


async def test_of_many_transitions_the_first_and_the_newest_are_kept(store: Store) -> None:
    record = new_record()
    await keep(store, record)
    last, times = record, list[Transition]()
    for number in range(1, 2 * MAX_TRANSITIONS):
        for event in (asked(number), answered(number)):
            last = await moved(store, last, event)
            times.append(Transition(last.status, last.updated_at))
    kept = await store.transitions(record.id)
    assert kept == (Transition(WORKING, EPOCH), *times[1 - MAX_TRANSITIONS :])
    assert len(kept) == MAX_TRANSITIONS
    ended = await moved(store, last, DONE)
    kept = await store.transitions(record.id)
    assert len(kept) == MAX_TRANSITIONS
    assert kept[-1] == Transition(COMPLETED, ended.updated_at)
    assert kept[-2] == times[-1]


async def test_a_task_that_is_not_stored_has_no_transitions(store: Store) -> None:
    assert await store.transitions("never") == ()
    assert await store.transitions("\ud800") == ()


# --- scans


async def test_a_scan_finds_the_tasks_of_all_owners_once(store: Store) -> None:
    records = [new_record(id=f"task-{at}", owner=OwnerKey(f"context-{at % 3}", "mount")) for at in range(8)]
    await keep(store, *records)
    await moved(store, records[4], DONE)
    assert sorted(await found(store, unfinished=False)) == [record.id for record in records]
    assert sorted(await found(store, unfinished=True)) == [record.id for record in records if record.id != "task-4"]


async def test_a_scan_of_all_tasks_finds_the_newest_first(store: Store) -> None:
    """In any status, and whatever their lists are kept by: the last one expires first."""
    start, span = EPOCH - timedelta(minutes=1), timedelta(seconds=1)
    records = [
        new_record(id=f"task-{at}", created_at=start + at * span, ttl=timedelta(hours=1) - at * 2 * span)
        for at in range(8)
    ]
    await keep(store, *records)
    for at in (1, 4, 6):
        await moved(store, records[at], DONE)
    await moved(store, records[2], CallSucceeded(result="{}", tool_error=True))
    await moved(store, records[3], asked(1))
    assert await found(store, unfinished=False) == [record.id for record in reversed(records)]


async def test_a_scan_goes_on_behind_what_was_removed_meanwhile(store: Store) -> None:
    records = [
        new_record(id=f"task-{at}", created_at=EPOCH + timedelta(0, at), ttl=timedelta(hours=1 + (at == 3)))
        for at in range(6)
    ]
    await keep(store, *records)
    first = await store.scan(unfinished=False, wants=lambda _: True, after=None, limit=3, now=EPOCH)
    assert [head.id for head in first.heads] == ["task-5", "task-4", "task-3"]
    await store.purge(now=records[5].expires_at, limit=1)
    await keep(store, new_record(id="task-9", created_at=EPOCH + timedelta(0, 9)))
    rest = await store.scan(unfinished=False, wants=lambda _: True, after=first.next, limit=9, now=EPOCH)
    assert ([head.id for head in rest.heads], rest.next) == (["task-2", "task-1"], None)


async def test_a_scan_shows_heads_as_they_are_now(store: Store) -> None:
    record = new_record(params="{}")
    await keep(store, record)
    changed = await moved(store, record, asked(1))
    (head,) = (await store.scan(unfinished=True, wants=lambda _: True, after=None, limit=9, now=EPOCH)).heads
    assert (head.revision, head.status, head.call.params) == (changed.revision, ASKS, None)


async def test_a_scan_omits_what_is_expired_and_what_is_not_wanted(store: Store) -> None:
    records = [new_record(id=f"task-{at}", ttl=timedelta(seconds=at + 1)) for at in range(6)]
    await keep(store, *records)
    wants: Callable[[TaskRecord], bool] = lambda head: head.id != "task-4"  # noqa: E731
    for unfinished in (True, False):
        part = await store.scan(
            unfinished=unfinished, wants=wants, after=None, limit=9, now=EPOCH + timedelta(seconds=3)
        )
        assert ({head.id for head in part.heads}, part.next) == ({"task-3", "task-5"}, None)


@pytest.mark.parametrize("tool", ["echo", 'a"b', "a\\b", "Prüfung", "two words", "a/b", "t\tb", "\x7f"])
@pytest.mark.parametrize("message", [None, "fine", "a lone surrogate: \ud800"])
async def test_a_scan_finds_what_has_the_texts_however_it_is_stored(
    store: Store, tool: str, message: str | None
) -> None:
    names = (tool, "another")
    records = [new_record(call=new_call(tool=name), status_message=message) for name in names]
    await keep(store, *records)
    texts = [text for text in (text_in_head(tool), text_in_head("working")) if text is not None]
    for unfinished in (True, False):
        wants: Callable[[TaskRecord], bool] = lambda head: head.call.tool == tool  # noqa: E731
        part = await store.scan(unfinished=unfinished, wants=wants, after=None, limit=9, now=EPOCH, texts=texts)
        assert [head.id for head in part.heads] == [records[0].id]


# --- names of callers

BOB = CallerNames("corp", "bob", "claude-code", "acme")
ODD = CallerNames("corp", 'a "bob" \ud800 \0 ä', None, None)


@pytest.mark.parametrize("caller", [None, BOB, ODD])
async def test_every_reading_of_a_task_has_the_names_of_its_caller(store: Store, caller: CallerNames | None) -> None:
    record = new_record(caller=caller, params='{"a":1}')
    await keep(store, record)
    await moved(store, record, asked(1), answered(1))
    later = record.expires_at
    found = [await store.load(OWNER, record.id, now=EPOCH, bodies=bodies) for bodies in (False, True)]
    found += (await store.scan(unfinished=True, wants=lambda _: True, after=None, limit=9, now=EPOCH)).heads
    found += await store.lapsed(holder="another", until=later, now=EPOCH, limit=9)
    assert [None if each is None else each.caller for each in found] == [caller] * 4


@pytest.mark.parametrize("unfinished", [True, False])
async def test_a_scan_for_a_name_finds_the_tasks_of_its_caller(store: Store, unfinished: bool) -> None:
    mine = new_record(caller=BOB)
    await keep(store, mine, new_record(caller=BOB._replace(subject="alice")), new_record())
    texts = [text for text in (text_in_head("bob"), text_in_head("acme"), text_in_head("working")) if text is not None]
    wants: Callable[[TaskRecord], bool] = lambda head: head.caller == BOB  # noqa: E731
    part = await store.scan(unfinished=unfinished, wants=wants, after=None, limit=9, now=EPOCH, texts=texts)
    assert [head.id for head in part.heads] == [mine.id]


async def test_a_scan_goes_on_where_it_was_while_tasks_come_and_go(store: Store) -> None:
    records = [new_record(id=f"task-{at}") for at in range(6)]
    await keep(store, *records)
    first = await store.scan(unfinished=True, wants=lambda _: True, after=None, limit=2, now=EPOCH)
    seen = [head.id for head in first.heads]
    gone = next(record for record in records if record.id not in seen)
    await moved(store, gone, DONE)
    await moved(store, next(record for record in records if record.id == seen[-1]), DONE)
    place = first.next
    while place is not None:
        part = await store.scan(unfinished=True, wants=lambda _: True, after=place, limit=2, now=EPOCH)
        seen += [head.id for head in part.heads]
        place = part.next
    assert sorted(seen) == [record.id for record in records if record is not gone]


async def test_a_scan_finds_tasks_that_change_their_status_meanwhile(store: Store) -> None:
    records = [new_record(id=f"task-{at}") for at in range(6)]
    await keep(store, *records)
    asking = [await moved(store, record, asked(1)) for record in records[::2]]
    seen, place = list[str](), None
    while place is not None or not seen:
        part = await store.scan(unfinished=False, wants=lambda _: True, after=place, limit=1, now=EPOCH)
        if not seen:
            for record in asking:
                await moved(store, record, answered(1))
            for record in records[1::2]:
                await moved(store, record, asked(1))
        seen += [head.id for head in part.heads]
        place = part.next
    assert set(seen) == {record.id for record in records}


async def test_a_part_of_a_scan_looks_at_a_bounded_number_of_tasks(store: Store) -> None:
    looked = 0

    def unwanted(_: TaskRecord) -> bool:
        nonlocal looked
        looked += 1
        return False

    await keep(store, *(new_record(id=f"task-{at}") for at in range(MOST_SCANNED + 5)))
    kept = set[str]()
    place, parts = None, 0
    while place is not None or not parts:
        part = await store.scan(unfinished=False, wants=lambda _: True, after=place, limit=4000, now=EPOCH)
        kept |= {head.id for head in part.heads}
        place, parts = part.next, parts + 1
    assert len(kept) == MOST_SCANNED + 5
    for unfinished in (True, False):
        looked = 0
        part = await store.scan(unfinished=unfinished, wants=unwanted, after=None, limit=9, now=EPOCH)
        assert (part.heads, looked) == ((), MOST_SCANNED)
        assert part.next is not None
        part = await store.scan(unfinished=unfinished, wants=unwanted, after=part.next, limit=9, now=EPOCH)
        assert (looked, part.next) == (MOST_SCANNED + 5, None)


async def test_a_scan_from_a_place_that_no_part_ended_with_finds_nothing(store: Store) -> None:
    await keep(store, new_record())
    for place in ("", "x", "-1", "9" * 40, "²", "\ud800"):
        part = await store.scan(unfinished=False, wants=lambda _: True, after=place, limit=2, now=EPOCH)
        assert part == Scan((), None), place


async def test_a_text_that_is_too_long_for_an_id_finds_nothing(store: Store) -> None:
    await keep(store, new_record())
    long = "x" * 100_000
    assert await store.load(OWNER, long, now=EPOCH) is None
    assert await store.transitions(long) == ()
    assert await store.owner_of(long) is None
