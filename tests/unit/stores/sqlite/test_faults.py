"""SQLite errors as store faults that an operator can act on."""

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helpers.waiting import bounded
from taskgate.errors import StoreFault, StoreUnavailable
from taskgate.stores.sqlite.file import unavailable
from taskgate.stores.sqlite.writer import SqliteWriter

PAGE = 4096


def error_of(code: int) -> sqlite3.Error:
    """What the library raises with that code; nothing but a connection sets it."""
    error = sqlite3.OperationalError("as the test wants")
    error.sqlite_errorcode = code
    return error


def disk(**what: int) -> os.statvfs_result:
    """A disk with room, that can be written, but for what is named."""
    values = {"f_bsize": PAGE, "f_frsize": PAGE, "f_bavail": 1_000_000, "f_flag": 0} | what
    names = ("f_bsize", "f_frsize", "f_blocks", "f_bfree", "f_bavail", "f_files", "f_ffree", "f_favail", "f_flag")
    return os.statvfs_result([values.get(name, 0) for name in names] + [255])


@pytest.fixture
def connection(tmp_path: Path) -> sqlite3.Connection:
    """An open file of a few pages, which may have a thousand."""
    path = tmp_path / "some.db"
    connection = sqlite3.connect(path, timeout=0.1, isolation_level=None, check_same_thread=False)
    connection.executescript("PRAGMA journal_mode = WAL; PRAGMA max_page_count = 1000; CREATE TABLE seen (x)")
    return connection


@pytest.fixture
async def writer(connection: sqlite3.Connection) -> AsyncIterator[SqliteWriter]:
    """What writes to it."""
    writer = SqliteWriter(connection, asyncio.get_running_loop())
    yield writer
    async with bounded():
        await writer.close()


async def fault_of(writer: SqliteWriter, size: int) -> StoreFault | None:
    """The fault with which so many bytes are refused."""
    with pytest.raises(StoreUnavailable) as refusal:
        await writer.submit(lambda cursor: cursor.execute("INSERT INTO seen VALUES (zeroblob(?))", (size,)).rowcount)
    return refusal.value.fault


async def test_a_file_that_may_not_grow_is_at_its_limit(writer: SqliteWriter) -> None:
    assert await fault_of(writer, 2000 * PAGE) is StoreFault.SIZE_LIMIT


async def test_a_connection_that_may_not_write_is_read_only(
    connection: sqlite3.Connection, writer: SqliteWriter
) -> None:
    connection.execute("PRAGMA query_only = ON")
    assert await fault_of(writer, 1) is StoreFault.READ_ONLY


async def test_a_lock_of_another_program_is_told(
    connection: sqlite3.Connection, writer: SqliteWriter, tmp_path: Path
) -> None:
    other = sqlite3.connect(tmp_path / "some.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        assert await fault_of(writer, 1) is StoreFault.LOCKED
    finally:
        other.close()


@pytest.mark.parametrize(
    ("code", "found", "fault"),
    [
        (sqlite3.SQLITE_FULL, {"f_bavail": 0}, StoreFault.DISK_FULL),
        (sqlite3.SQLITE_FULL, {"f_bavail": 900}, StoreFault.DISK_FULL),
        (sqlite3.SQLITE_FULL, {"f_bavail": 1100}, StoreFault.SIZE_LIMIT),
        (sqlite3.SQLITE_IOERR_WRITE, {}, StoreFault.IO_ERROR),
        (sqlite3.SQLITE_IOERR_WRITE, {"f_bavail": 0}, StoreFault.DISK_FULL),
        (sqlite3.SQLITE_IOERR_WRITE, {"f_flag": os.ST_RDONLY}, StoreFault.READ_ONLY),
        (sqlite3.SQLITE_FULL, {"f_flag": os.ST_RDONLY}, StoreFault.READ_ONLY),
    ],
)
def test_the_disk_tells_what_the_error_does_not(
    connection: sqlite3.Connection,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    found: dict[str, int],
    fault: StoreFault,
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: disk(**found))
    assert unavailable("no", error_of(code), connection).fault is fault
    connection.close()


def test_where_the_disk_tells_nothing_the_error_is_taken_as_it_is(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(_: Path) -> os.statvfs_result:
        raise OSError

    monkeypatch.setattr(os, "statvfs", gone)
    assert unavailable("no", error_of(sqlite3.SQLITE_FULL), connection).fault is StoreFault.DISK_FULL
    connection.close()


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (error_of(sqlite3.SQLITE_CORRUPT_INDEX), StoreFault.DAMAGED),
        (error_of(sqlite3.SQLITE_IOERR_READ), StoreFault.IO_ERROR),
        (error_of(sqlite3.SQLITE_CONSTRAINT_UNIQUE), None),
        (ValueError("a record that cannot be read"), None),
        (None, None),
    ],
)
def test_of_a_read_the_error_alone_tells(error: BaseException | None, fault: StoreFault | None) -> None:
    told = unavailable("The store could not read", error)
    assert (str(told), told.fault, told.__cause__) == ("The store could not read", fault, error)
