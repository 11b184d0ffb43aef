"""A file that is removed or replaced while it is open: no task that a restart would not find."""

import shutil
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path

import pytest

from helpers.manual_clock import EPOCH
from helpers.records import OWNER, after, keep, new_record
from helpers.waiting import bounded
from taskgate.domain.events import CallSucceeded
from taskgate.errors import StoreFault, StoreUnavailable
from taskgate.stores.sqlite.file import SqliteOptions, open_file
from taskgate.stores.sqlite.store import SqliteStore

ENDED = CallSucceeded(result='{"content":[]}', tool_error=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "taskgate.db"


def options(path: Path) -> SqliteOptions:
    return SqliteOptions(path=path, synchronous="FULL", busy_timeout=timedelta(seconds=1), max_size=1 << 30)


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    """A store in that file."""
    made = SqliteStore(open_file(options(path)))
    yield made
    async with bounded():
        await made.close()


def remove_all(path: Path) -> None:
    for file in path.parent.iterdir():
        file.unlink()


def remove_the_folder(path: Path) -> None:
    shutil.rmtree(path.parent)


def replace_with_a_copy(path: Path) -> None:
    copy = path.with_name("copy")
    shutil.copy(path, copy)
    copy.rename(path)


def remove_the_log(path: Path) -> None:
    path.with_name(path.name + "-wal").unlink()


HARMS = (remove_all, remove_the_folder, replace_with_a_copy, remove_the_log)


async def fault_of(store: SqliteStore) -> StoreFault | None:
    """What is found when the store is looked at."""
    try:
        await store.verify()
    except StoreUnavailable as error:
        return error.fault
    return None


@pytest.mark.parametrize("harm", HARMS)
async def test_no_task_is_made_in_a_file_that_a_restart_does_not_find(
    store: SqliteStore, path: Path, harm: Callable[[Path], None]
) -> None:
    harm(path)
    assert await fault_of(store) is StoreFault.FILE_GONE
    with pytest.raises(StoreUnavailable) as refusal:
        await store.insert(new_record(), caps=())
    assert refusal.value.fault is StoreFault.FILE_GONE
    with pytest.raises(StoreUnavailable):
        await store.check()


async def test_what_runs_may_end_there_for_hosts_that_fetch_it(store: SqliteStore, path: Path) -> None:
    running = new_record()
    await keep(store, running)
    remove_all(path)
    assert await fault_of(store) is StoreFault.FILE_GONE
    assert await store.swap(after(running, ENDED), expected=0)
    assert await store.load(OWNER, running.id, now=EPOCH, bodies=True) == after(running, ENDED)


async def test_a_file_that_was_moved_away_and_back_is_the_same(store: SqliteStore, path: Path, tmp_path: Path) -> None:
    moved = path.parent.rename(tmp_path / "moved")
    assert await fault_of(store) is StoreFault.FILE_GONE
    moved.rename(path.parent)
    assert await fault_of(store) is None
    await store.check()
    await store.insert(new_record(), caps=())


async def test_a_link_that_leads_to_another_file_is_a_replacement(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(path)
    store = SqliteStore(open_file(options(link)))
    try:
        assert await fault_of(store) is None
        link.unlink()
        link.symlink_to(tmp_path / "other.db")
        assert await fault_of(store) is StoreFault.FILE_GONE
    finally:
        async with bounded():
            await store.close()


async def test_the_end_of_the_store_leaves_alone_what_is_there_instead(store: SqliteStore, path: Path) -> None:
    remove_all(path)
    record = new_record()
    other = SqliteStore(open_file(options(path)))
    try:
        await keep(other, record)
        async with bounded():
            await store.close()
        assert await fault_of(other) is None
        assert await other.load(OWNER, record.id, now=EPOCH, bodies=True) == record
    finally:
        async with bounded():
            await other.close()


async def test_a_store_that_ends_without_its_log_has_everything_in_its_file(store: SqliteStore, path: Path) -> None:
    record = new_record()
    await keep(store, record)
    remove_the_log(path)
    async with bounded():
        await store.close()
    again = SqliteStore(open_file(options(path)))
    try:
        assert await again.load(OWNER, record.id, now=EPOCH, bodies=True) == record
    finally:
        async with bounded():
            await again.close()


async def test_the_file_with_the_lock_may_go(store: SqliteStore, path: Path) -> None:
    path.with_name(path.name + ".lock").unlink()
    assert await fault_of(store) is None
    with pytest.raises(StoreUnavailable, match="in use by another process"):
        open_file(options(path))


async def test_a_folder_that_cannot_be_looked_at_tells_nothing(store: SqliteStore, path: Path) -> None:
    # A path that leads into itself cannot be looked at even by root.
    moved = path.parent.rename(path.parent.with_name("moved"))
    path.parent.symlink_to(path.parent)
    assert await fault_of(store) is None
    path.parent.unlink()
    assert await fault_of(store) is StoreFault.FILE_GONE
    path.parent.symlink_to(path.parent)
    assert await fault_of(store) is StoreFault.FILE_GONE
    path.parent.unlink()
    moved.rename(path.parent)
    assert await fault_of(store) is None
