"""A store in a file: restarts, shared commits, a full disk, and what runs on the event loop."""

import asyncio
import sqlite3
import threading
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from helpers.manual_clock import EPOCH
from helpers.records import HOLDER, OWNER, after, in_text, keep, new_lease, new_record, new_session
from taskgate.domain.events import (
    CallFaulted,
    CallSucceeded,
    Progressed,
)
from taskgate.domain.limits import Cap, CapScope
from taskgate.domain.listing import OrderBy, Position, TaskFilter, TaskOrder, TaskState
from taskgate.domain.record import FaultReason, TaskStatus
from taskgate.errors import StoreUnavailable
from taskgate.stores.base import MOST_SCANNED
from taskgate.stores.codec import LARGE
from taskgate.stores.references import plain_reference
from taskgate.stores.sqlite.file import open_file
from taskgate.stores.sqlite.store import SqliteStore
from taskgate.stores.sqlite.task_writes import BRIEF
from unit.stores.sqlite.conftest import Place

FAR_OFF = EPOCH + timedelta(days=365)
ENDED = CallSucceeded(result='{"content":[]}', tool_error=False)


async def test_a_new_start_finds_everything(place: Place) -> None:
    ended, running, session = new_record(params='"\ud800"'), new_record(lease=new_lease(until=FAR_OFF)), new_session()
    await keep(place.store, ended, running)
    await place.store.put(session)
    assert await place.store.swap(after(ended, ENDED), expected=0)
    store = await place.reopen()
    assert await store.load(OWNER, ended.id, now=EPOCH, bodies=True) == after(ended, ENDED)
    assert await store.load(OWNER, running.id, now=EPOCH, bodies=True) == replace(running, lease=None)
    assert await store.find(OWNER, session.id, now=EPOCH) == session


async def test_a_new_start_finds_every_lease_of_an_earlier_process_lapsed(place: Place) -> None:
    running, ended = new_record(lease=new_lease(until=FAR_OFF)), new_record(status=TaskStatus.COMPLETED)
    await keep(place.store, running, ended)
    store = await place.reopen()
    (taken,) = await store.lapsed(holder="next", until=FAR_OFF, now=EPOCH, limit=9)
    assert taken == replace(running, lease=new_lease(holder="next", until=FAR_OFF))
    assert await store.lapsed(holder="third", until=FAR_OFF, now=EPOCH, limit=9) == ()


async def test_an_end_that_an_earlier_process_did_not_see_is_no_news_of_its_lease(place: Place) -> None:
    record = new_record(lease=new_lease(until=FAR_OFF))
    await keep(place.store, record)
    store = await place.reopen()
    await store.renew(HOLDER, frozenset({record.id}), FAR_OFF)
    head = await store.load(OWNER, record.id, now=EPOCH)
    assert head is not None
    assert head.lease is None


async def test_a_close_folds_the_log_into_the_file(place: Place) -> None:
    await keep(place.store, new_record())
    await place.store.close()
    assert {part.name for part in place.options.path.parent.iterdir()} == {"taskgate.db", "taskgate.db.lock"}


async def test_many_inserts_and_swaps_share_commits(place: Place) -> None:
    said: list[str] = []
    place.file.writer.set_trace_callback(said.append)
    records = [new_record() for _ in range(100)]
    caps = (Cap(scope=CapScope.CONTEXT, limit=1000),)
    await asyncio.gather(*(place.store.insert(record, caps=caps) for record in records))
    await asyncio.gather(*(place.store.swap(after(record, ENDED), expected=0) for record in records))
    assert said.count("COMMIT") <= 4


async def test_a_record_that_cannot_be_written_harms_no_other(place: Place) -> None:
    taken, others = new_record(), [new_record() for _ in range(5)]
    await keep(place.store, taken)
    ends = await asyncio.gather(
        *(place.store.insert(record, caps=()) for record in (others[0], new_record(id="\ud800"), taken, *others[1:])),
        return_exceptions=True,
    )
    assert [type(end) for end in ends] == [str, StoreUnavailable, StoreUnavailable, *[str] * 4]
    for record in others:
        assert await place.store.load(OWNER, record.id, now=EPOCH, bodies=True) == record


async def test_a_full_disk_refuses_and_what_was_kept_goes_on(place: Place) -> None:
    store = await place.reopen(max_size=256 * 1024)
    body = '"' + "x" * 60_000 + '"'
    kept, refused = [], None
    for _ in range(10):
        record = new_record(params=body, ttl=timedelta(seconds=1))
        try:
            await keep(store, record)
        except StoreUnavailable:
            refused = record
            break
        kept.append(record)
    assert refused is not None
    assert kept
    assert await store.load(OWNER, refused.id, now=EPOCH) is None
    for record in kept:
        assert await store.load(OWNER, record.id, now=EPOCH, bodies=True) == record
    assert await store.swap(after(kept[0], Progressed(message="half")), expected=0)
    assert len(await store.purge(now=kept[0].expires_at, limit=99)) == len(kept)
    await keep(store, refused)
    assert await store.load(OWNER, refused.id, now=EPOCH, bodies=True) == refused


async def test_a_swap_that_does_not_fit_is_undone_whole(place: Place) -> None:
    record = new_record()
    await keep(place.store, record)
    store = await place.reopen(max_size=128 * 1024)
    large = after(record, CallSucceeded(result="x" * 500_000, tool_error=False))
    with pytest.raises(StoreUnavailable):
        await store.swap(large, expected=0)
    assert await store.load(OWNER, record.id, now=EPOCH, bodies=True) == record
    assert await store.swap(after(record, ENDED), expected=0)


@pytest.mark.parametrize(("size", "is_near"), [(LARGE, True), (LARGE + 1, False)])
async def test_large_bodies_are_read_off_the_event_loop(place: Place, size: int, is_near: bool) -> None:
    record = new_record(params="p" * 100)
    await keep(place.store, record)
    ended = after(record, CallSucceeded(result="x" * (size - 100), tool_error=False))
    assert await place.store.swap(ended, expected=0)
    near: list[str] = []
    far: list[str] = []
    place.file.near.set_trace_callback(near.append)
    place.file.far.set_trace_callback(far.append)
    assert in_text(await place.store.load(OWNER, record.id, now=EPOCH, bodies=True)) == ended
    # Off the loop in one transaction, for its outcome is read apart.
    assert (len(near), len(far)) == ((1, 0) if is_near else (1, 3))


async def test_counts_are_read_off_the_event_loop(place: Place) -> None:
    near: list[str] = []
    place.file.near.set_trace_callback(near.append)
    await place.store.census()
    assert near == []


async def test_no_read_holds_the_log(place: Place) -> None:
    """A snapshot that stayed open would let the log grow for ever."""
    record = new_record()
    await keep(place.store, record)
    await place.store.put(session := new_session())
    await place.store.load(OWNER, record.id, now=EPOCH, bodies=True)
    await place.store.find(OWNER, session.id, now=EPOCH)
    await place.store.page(OWNER, where=TaskFilter(), order=TaskOrder(), after=None, limit=1, now=EPOCH)
    await place.store.census()
    await keep(place.store, new_record())
    assert place.file.writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0


@pytest.mark.parametrize("length", [BRIEF, BRIEF + 1])
@pytest.mark.parametrize("body", ["params", "result", "error"])
async def test_only_short_bodies_are_written_on_the_event_loop(place: Place, body: str, length: int) -> None:
    record, text = new_record(), "x" * length
    if body != "params":
        await keep(place.store, record)
    on_loop: list[bool] = []
    place.file.writer.set_trace_callback(
        lambda said: on_loop.append(threading.current_thread() is threading.main_thread()) if "INTO" in said else None
    )
    if body == "params":
        await keep(place.store, new_record(params=text))
    elif body == "result":
        assert await place.store.swap(after(record, CallSucceeded(result=text, tool_error=False)), expected=0)
    else:
        faulted = CallFaulted(error=text, reason=FaultReason.CLOSED, message="gone")
        assert await place.store.swap(after(record, faulted), expected=0)
    assert on_loop
    assert set(on_loop) == {length <= BRIEF}


MANY = """
    INSERT INTO tasks (id, reference, owner, context, created, updated, expires, unfinished, status, tool_error,
                       revision, lease_until, body_size, head)
    WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)
    SELECT 'other-' || n, n, owner, context, created + n, updated + n, expires, unfinished, status, tool_error,
           revision, lease_until, body_size, head FROM tasks, numbers
"""


@pytest.mark.parametrize("descending", [True, False], ids=["down", "up"])
@pytest.mark.parametrize("by", OrderBy)
async def test_a_page_looks_at_so_many_tasks_and_goes_on_behind_them(
    place: Place, by: OrderBy, descending: bool
) -> None:
    await keep(place.store, new_record())
    place.file.writer.execute(MANY, (MOST_SCANNED * 2 - 1,))
    first, last = (
        new_record(status=TaskStatus.INPUT_REQUIRED, created_at=EPOCH + timedelta(seconds=seconds))
        for seconds in (-1, 1)
    )
    await keep(place.store, first, last)
    near, far = (last, first) if descending else (first, last)
    # The order of update has them apart from tasks that have ended, but not from others that run.
    where, order = (
        TaskFilter(states=frozenset({TaskState(TaskStatus.INPUT_REQUIRED)})),
        TaskOrder(by=by, descending=descending),
    )
    found: list[list[str]] = []
    following: Position | None = None
    for _ in range(3):
        page = await place.store.page(OWNER, where=where, order=order, after=following, limit=5, now=EPOCH)
        found.append([task.id for task in page.tasks])
        following = page.next
        assert (following is None) is (len(found) == 3)
    assert found == [[near.id], [], [far.id]]


# --- references -------------------------------------------------------------------------------------------------------


def with_key(key: str, id: str) -> str:
    return plain_reference(f"{key} {id}")


async def test_a_file_that_opens_with_another_key_gives_all_its_tasks_their_references_anew(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    ids = [f"task-{at}" for at in range(3)]
    await keep(place.store, *(new_record(id=id) for id in ids))
    for key in ("old", "new"):
        await place.store.close()
        place.store = store = SqliteStore(open_file(place.options, partial(with_key, key)))
        assert [await store.referred(with_key(key, id)) for id in ids] == ids
        assert await store.referred(plain_reference(ids[0])) is None
        assert await store.load(OWNER, ids[0], now=EPOCH) is not None
        assert caplog.text.count("made the references of stored tasks with another key") == 1
        caplog.clear()
        await store.close()
        # The same key leaves them as they are.
        place.store = SqliteStore(open_file(place.options, partial(with_key, key)))
        assert caplog.text == ""


async def test_another_key_is_taken_though_the_file_is_as_large_as_it_may_be(place: Place) -> None:
    records = [new_record() for _ in range(2000)]
    await keep(place.store, *records)
    await place.store.close()
    with closing(sqlite3.connect(place.options.path)) as connection:
        connection.execute("VACUUM")
    full = replace(place.options, max_size=place.options.path.stat().st_size)
    file = open_file(full, partial(with_key, "new"))
    place.store = store = SqliteStore(file)
    assert await store.referred(with_key("new", records[0].id)) == records[0].id
    limit, pages = (file.writer.execute(f"PRAGMA {name}").fetchone()[0] for name in ("max_page_count", "page_count"))
    assert limit == pages


async def test_a_damaged_id_keeps_no_other_task_from_its_reference(place: Place) -> None:
    damaged = [new_record(created_at=EPOCH, id=f"damaged-{at}") for at in range(4)]
    record = new_record()
    await keep(place.store, *damaged, record)
    for one, id in zip(damaged, ("x" * 300, "y" * 300, b"\xff", b"\xfe"), strict=True):
        place.file.writer.execute("UPDATE tasks SET id = CAST(? AS TEXT) WHERE id = ?", (id, one.id))
    await place.store.close()
    place.store = store = SqliteStore(open_file(place.options, partial(with_key, "new")))
    assert await store.referred(with_key("new", record.id)) == record.id


async def test_the_size_of_a_file_has_no_free_pages(place: Place) -> None:
    records = [new_record(params='"' + "x" * 3000 + '"') for _ in range(200)]
    await keep(place.store, *records)
    before = (await place.store.census()).size
    await place.store.purge(now=records[0].expires_at, limit=999)
    after_it = (await place.store.census()).size
    assert before is not None
    assert after_it is not None
    assert after_it < before / 2


async def test_a_reference_that_begins_like_that_of_a_task_finds_nothing(place: Place) -> None:
    record = new_record()
    await keep(place.store, record)
    reference = plain_reference(record.id)
    other = reference[:-1] + ("A" if reference[-1] != "A" else "B")
    assert await place.store.referred(other) is None


async def test_a_task_whose_reference_has_the_number_of_another_one_is_refused(tmp_path: Path, place: Place) -> None:
    options = replace(place.options, path=tmp_path / "other.db")
    store = SqliteStore(open_file(options, lambda _: plain_reference("all")))
    await keep(store, new_record())
    with pytest.raises(StoreUnavailable):
        await keep(store, new_record())
    await store.close()
