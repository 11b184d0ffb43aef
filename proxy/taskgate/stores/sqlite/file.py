"""The file of a SQLite store: `open_file` locks, checks, creates or upgrades it and returns an
`OpenFile`.

The functions block: `open_file` runs off the event loop, and `unavailable`, which says what fault of
the file an error means, queries the disk. A refused file stays unchanged. Every refusal is a
StoreUnavailable with a text for the operator that names no path.
"""

import os
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from datetime import timedelta
from importlib import resources
from logging import getLogger
from pathlib import Path
from typing import Any, Final, Literal

from taskgate.errors import StoreFault, StoreUnavailable
from taskgate.stores.capacity import CapKeys, StoreUsage
from taskgate.stores.codec import number_function
from taskgate.stores.references import ReferenceOf, plain_reference
from taskgate.stores.sqlite import statements as sql
from taskgate.stores.sqlite.writes import read_head
from taskgate.system import descriptors

LAYOUT: Final = 5
"""The layout of tasks.sql, schema.sql and indexes.sql, stored in the file as `user_version`.

Layouts 1 and 2 lacked the columns for caps and idempotency keys (caps.sql). They and layout 3 lacked
those for small bodies (bodies.sql). All up to 4 lacked references and transitions, and had an index
of ids (before.sql, move.sql). Each had other indexes (indexes.sql).
"""

_MOVE: Final = ("before.sql", "tasks.sql", "move.sql", "indexes.sql")
_STEPS: Final = {
    0: ("tasks.sql", "schema.sql", "indexes.sql"),
    1: ("caps.sql", "bodies.sql", *_MOVE),
    2: ("caps.sql", "bodies.sql", *_MOVE),
    3: ("bodies.sql", *_MOVE),
    4: _MOVE,
}
"""The scripts that upgrade a file of each layout."""

APPLICATION: Final = 0x7461736B
"""The `application_id` of a taskgate file: ASCII "task"."""

_NEAR_TIMEOUT: Final = 0.05
"""Seconds that a read on the event loop may wait for a lock; a reader of a WAL file hardly ever
meets one.
"""

log = getLogger("taskgate.stores")

_Identity = tuple[int, int]
"""Device and inode: no other file gets them while this one is open."""

_MOST_PAGES: Final = 2**32 - 2
"""The limit of SQLite."""

_SECURE_DELETE: Final = ("OFF", "ON", "FAST")
"""The names of what the pragma returns."""

_CHECKPOINT_PAGES: Final = 4000
_LOG_LIMIT: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteOptions:
    """The path of the file and its settings.

    `busy_timeout` bounds the wait for a lock; `max_size` is in bytes.
    """

    path: Path
    synchronous: Literal["FULL", "NORMAL"]
    busy_timeout: timedelta
    max_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenFile:
    """The connections to an open file: `writer`, `near` to read on the event loop, `far` to read on
    a thread.

    `usage` has the counts that caps limit, and `statuses` the number of records in each status. Both
    are as they were when the file was opened; the store updates them. `locks` are file descriptors
    that keep other processes out. `identities` are the open files, by the paths that a restart uses.
    """

    writer: sqlite3.Connection
    near: sqlite3.Connection
    far: sqlite3.Connection
    locks: tuple[int, ...]
    reference_of: ReferenceOf
    usage: StoreUsage
    statuses: Counter[str]
    identities: tuple[tuple[Path, _Identity], ...]

    def is_gone(self) -> bool:
        """Whether a restart would find another file, or none.

        Blocks. Raises OSError if a path cannot be checked.
        """
        return any(_identity(path) != identity for path, identity in self.identities)

    def close(self) -> None:
        """Close everything; for a file without a store."""
        # The writer last: closing the last connection folds the write-ahead log into the file.
        for connection in (self.near, self.far, self.writer):
            connection.close()
        self.unlock()

    def unlock(self) -> None:
        """Release the locks, after the connections are closed."""
        for lock in self.locks:
            os.close(lock)


def open_file(options: SqliteOptions, reference_of: ReferenceOf = plain_reference) -> OpenFile:
    """Open or create the file. Its tasks are found by what `reference_of` returns.

    If the references in the file are others, made with another key, all are made anew.

    Raises StoreUnavailable if another process holds the file, or if the file system refuses. It
    also does so for a damaged file, and for one of another program or of a newer version.
    """
    try:
        with ExitStack() as undo:
            opened = _open(options, reference_of, undo)
            undo.pop_all()
            return opened
    except OSError as error:
        raise StoreUnavailable(f"The store's file cannot be opened: {error.strerror}") from error
    except sqlite3.Error as error:
        raise StoreUnavailable(f"The store's file cannot be opened: {error}") from error


def _open(options: SqliteOptions, reference_of: ReferenceOf, undo: ExitStack) -> OpenFile:
    path = options.path.resolve()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Lock the name and the file: a hard link or a mount gives the file another name, and another
    # log beside it.
    by_name = _lock(path.with_name(path.name + ".lock"), os.O_CREAT)
    undo.callback(os.close, by_name)
    _create(path)
    by_itself = _lock(path)
    # Closed after every connection: closing it drops the locks that SQLite has in this process.
    undo.callback(os.close, by_itself)
    layout = _examine(path)
    writer = undo.enter_context(closing(_connect(path, "rw", options.busy_timeout.total_seconds())))
    _prepare(writer, options)
    writer.create_function("reference_of", 2, _row_number_function(reference_of), deterministic=True)
    if layout < LAYOUT:
        if layout:
            _copy(writer, path, layout)
        # The earlier table and the next one are both in the file for a while. The library may overwrite
        # pages that become free: the log would have all of them as well.
        kept = _pragma(writer, "secure_delete")
        _pragma(writer, "secure_delete = OFF")
        _pragma(writer, f"max_page_count = {_MOST_PAGES}")
        _lay_out(writer, path, layout)
        _pragma(writer, f"secure_delete = {_SECURE_DELETE[kept]}")
    else:
        # Another order of the references may need a few pages more.
        _pragma(writer, f"max_page_count = {_MOST_PAGES}")
        _refer(writer)
    _prepare(writer, options)
    _add_columns(writer)
    writer.execute("UPDATE tasks SET holder = NULL, lease_until = 0 WHERE unfinished = 1 AND lease_until > 0")
    usage, statuses = _count(writer)
    near = undo.enter_context(closing(_connect(path, "ro", _NEAR_TIMEOUT)))
    far = undo.enter_context(closing(_connect(path, "ro", options.busy_timeout.total_seconds())))
    for reader in (near, far):
        reader.execute("SELECT 1 FROM tasks LIMIT 1").fetchall()
    locks = by_name, by_itself
    return OpenFile(
        writer=writer,
        near=near,
        far=far,
        locks=locks,
        reference_of=reference_of,
        usage=usage,
        statuses=statuses,
        identities=_identities(options.path),
    )


def in_use(lock: int) -> StoreUnavailable:
    """The error that another process keeps the file, by the lock of that descriptor."""
    owner = descriptors.lock_owner(lock)
    which = "" if owner is None else f", pid {owner}"
    return StoreUnavailable(f"The store's file is in use by another process{which}")


def _lock(path: Path, *flags: int) -> int:
    # Not inheritable: a server process must not hold the lock after the gateway ends.
    lock = os.open(path, os.O_RDWR | os.O_CLOEXEC | sum(flags), 0o600)
    try:
        descriptors.lock(lock)
    except BlockingIOError as error:
        try:
            raise in_use(lock) from error
        finally:
            os.close(lock)
    except OSError:
        os.close(lock)
        raise
    return lock


def _create(path: Path) -> None:
    """Create an empty file that only its owner can read, if there is none.

    Its log gets the same mode.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return
    _sync_folder(path)


def _sync_folder(path: Path) -> None:
    """Make the names in the folder of a file durable."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _examine(path: Path) -> int:
    """The layout of the file, 0 if it is new. Raises StoreUnavailable for a damaged or foreign
    file.

    The connection is read-only, so that a damaged file stays unchanged.
    """
    with closing(_connect(path, "ro", 1.0)) as connection:
        try:
            application = _pragma(connection, "application_id")
            layout = _pragma(connection, "user_version")
            verdict = _pragma(connection, "quick_check(1)")
            is_empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorname in ("SQLITE_CORRUPT", "SQLITE_NOTADB"):
                raise StoreUnavailable(
                    "The store's file is damaged or not a SQLite file; it was not changed"
                ) from error
            raise
    if verdict != "ok":
        raise StoreUnavailable("The store's file is damaged; it was not changed")
    if is_empty and layout == 0:
        return 0
    if application != APPLICATION:
        raise StoreUnavailable("The store's file belongs to another program")
    if layout > LAYOUT:
        raise StoreUnavailable("The store's file was written by a newer version of the gateway")
    return int(layout)


def _prepare(connection: sqlite3.Connection, options: SqliteOptions) -> None:
    if _pragma(connection, "journal_mode = WAL") != "wal":
        raise StoreUnavailable("The store's file is on a file system that does not support a write-ahead log")
    page_size: int = _pragma(connection, "page_size")
    for setting in (
        f"synchronous = {options.synchronous}",
        f"max_page_count = {max(1, options.max_size // page_size)}",
        f"wal_autocheckpoint = {_CHECKPOINT_PAGES}",
        f"journal_size_limit = {_LOG_LIMIT}",
    ):
        _pragma(connection, setting)


def _copy(connection: sqlite3.Connection, path: Path, layout: int) -> None:
    """Leave a copy of the file beside it, as it is before its upgrade. Raises StoreUnavailable if the
    disk has no room for both.

    An upgrade that was interrupted finds its copy again by size and time. By its name alone it would
    not be known: an earlier version of the gateway may have changed the file in between.
    """
    # All of the log goes into the file, which then has a time that each later change moves.
    is_open_elsewhere = _pragma(connection, "wal_checkpoint(TRUNCATE)")
    target, original = _copy_of(path, layout), path.stat()
    with suppress(FileNotFoundError):
        made = target.stat()
        if not is_open_elsewhere and (made.st_size, made.st_mtime_ns) == (original.st_size, original.st_mtime_ns):
            return
    # The copy, the next table beside the earlier one, and both in the log of the transaction.
    disk, needed = os.statvfs(path.parent), original.st_size * 3
    if disk.f_bavail * disk.f_frsize < needed:
        raise StoreUnavailable(
            f"The store's file needs {-(-needed // 2**20)} MiB of free disk space for its upgrade, "
            "a third of it for a copy; it was not changed"
        )
    draft = target.with_name(f"{target.name}.part")
    draft.unlink(missing_ok=True)
    with ExitStack() as undo:
        file = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        undo.callback(os.close, file)
        undo.callback(draft.unlink, missing_ok=True)
        with closing(_connect(draft, "rw", 1.0)) as copy:
            _pragma(copy, "journal_mode = OFF")
            _pragma(copy, "synchronous = OFF")
            connection.backup(copy)
        os.utime(file, ns=(original.st_atime_ns, original.st_mtime_ns))
        os.fsync(file)
        draft.replace(target)
        _sync_folder(path)


def _copy_of(path: Path, layout: int) -> Path:
    """The path of the copy of a file as it was in an earlier layout."""
    return path.with_name(f"{path.name}.layout{layout}")


def _lay_out(connection: sqlite3.Connection, path: Path, layout: int) -> None:
    """Upgrade a file from an earlier layout in one transaction; its records stay."""
    names = _STEPS[layout]
    # Tool and upstream names are only in heads: these functions compute their digests.
    for name, digest in (("tool_of", _tool_of), ("upstream_of", _upstream_of)):
        connection.create_function(name, 1, digest, deterministic=True)
    texts = " ".join(resources.files("taskgate.stores.sqlite").joinpath(name).read_text() for name in names)
    marks = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {LAYOUT};"
    script = f"BEGIN IMMEDIATE; {texts} {marks} COMMIT;"
    try:
        connection.executescript(script)
    except sqlite3.OperationalError:
        # The sort of a large index needs room in the folder for temporary files, or else memory.
        connection.rollback()
        _pragma(connection, "temp_store = MEMORY")
        connection.executescript(script)
    if layout:
        told = {"layout": LAYOUT, "copy": str(_copy_of(path, layout))}
        log.info("upgraded the store's file; a copy of the earlier one is beside it", extra=told)


def _add_columns(connection: sqlite3.Connection) -> None:
    """Add columns that came later to a table of an earlier release, which still reads and writes the file."""
    there = {name for (name,) in connection.execute("SELECT name FROM pragma_table_info('tasks')")}
    for name, kind in (("subject", "BLOB"), ("caller", "TEXT")):
        if name not in there:
            connection.execute(f"ALTER TABLE tasks ADD COLUMN {name} {kind}")


def _refer(connection: sqlite3.Connection) -> None:
    """Give all tasks of a file their references anew, if these were made with another key.

    Those of a file are made with one key, so the last row tells for all.
    """
    reference = "reference_of(CAST(id AS BLOB), seq)"
    row = connection.execute(f"SELECT reference = {reference} FROM tasks ORDER BY seq DESC LIMIT 1").fetchone()  # noqa: S608
    if row == (0,):
        connection.execute(f"UPDATE tasks SET reference = {reference}")  # noqa: S608
        log.info("made the references of stored tasks with another key")


def _row_number_function(reference_of: ReferenceOf) -> Callable[[bytes, int], int]:
    """Return a function from the id and the number of a row to its packed reference.

    No look-up names the id of a damaged row: it gets a number of its own, and keeps no other from its place.
    """
    number_of = number_function(reference_of)

    def number(id: bytes, seq: int) -> int:
        try:
            return number_of(id.decode()) or -seq
        except UnicodeDecodeError:
            return -seq

    return number


def _identities(path: Path) -> tuple[tuple[Path, _Identity], ...]:
    # The configured path may be a link, which a restart follows again. The lock file is not
    # checked: if it is removed, the lock on the database itself keeps other processes out.
    resolved = path.resolve()
    found = ((each, _identity(each)) for each in (path, resolved.with_name(resolved.name + "-wal")))
    return tuple((each, identity) for each, identity in found if identity is not None)


def _identity(path: Path) -> _Identity | None:
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def _count(connection: sqlite3.Connection) -> tuple[StoreUsage, Counter[str]]:
    usage, statuses = StoreUsage(), Counter[str]()
    for *keys, expires in connection.execute(sql.UNFINISHED):
        usage.add_task(CapKeys(*keys), expires)
    sizes = Counter[tuple[bytes, bytes | None]]()
    for context, subject, status, size in connection.execute(sql.KEPT):
        sizes[context, subject] += size
        statuses[status] += 1
    for (context, subject), size in sizes.items():
        usage.add_bytes(CapKeys(context, subject, None, None, None), size)
    return usage, statuses


def _tool_of(head: bytes) -> bytes | None:
    record = read_head(head, None, 0)
    return None if record is None else sql.tool_digest(record.owner.mount, record.call.tool)


def _upstream_of(head: bytes) -> bytes | None:
    record = read_head(head, None, 0)
    return None if record is None else sql.upstream_digest(record.owner.mount)


def _connect(path: Path, mode: Literal["ro", "rw"], timeout: float) -> sqlite3.Connection:
    # One thread at a time uses a connection, but not the one that opens it.
    return sqlite3.connect(
        f"{path.as_uri()}?mode={mode}", uri=True, timeout=timeout, isolation_level=None, check_same_thread=False
    )


def _pragma(connection: sqlite3.Connection, statement: str) -> Any:
    row = connection.execute(f"PRAGMA {statement}").fetchone()
    return None if row is None else row[0]


_FAULTS: Final = {
    sqlite3.SQLITE_FULL: StoreFault.DISK_FULL,
    sqlite3.SQLITE_READONLY: StoreFault.READ_ONLY,
    sqlite3.SQLITE_PERM: StoreFault.READ_ONLY,
    sqlite3.SQLITE_IOERR: StoreFault.IO_ERROR,
    sqlite3.SQLITE_CANTOPEN: StoreFault.IO_ERROR,
    sqlite3.SQLITE_CORRUPT: StoreFault.DAMAGED,
    sqlite3.SQLITE_NOTADB: StoreFault.DAMAGED,
    sqlite3.SQLITE_BUSY: StoreFault.LOCKED,
}
"""By primary result code; other codes are no fault of the file."""


def unavailable(
    text: str, cause: BaseException | None, connection: sqlite3.Connection | None = None
) -> StoreUnavailable:
    """The StoreUnavailable for an error of SQLite; `connection` is the writer's, and is idle."""
    code = getattr(cause, "sqlite_errorcode", None)
    fault = None if code is None else _FAULTS.get(code & 0xFF)
    if connection is not None and fault in (StoreFault.DISK_FULL, StoreFault.IO_ERROR):
        fault = _fault_of_write(connection, fault)
    error = StoreUnavailable(text, fault=fault)
    error.__cause__ = cause
    return error


def _fault_of_write(connection: sqlite3.Connection, fault: StoreFault) -> StoreFault:
    try:
        ((_, _, path),) = connection.execute("PRAGMA database_list").fetchall()
        disk = os.statvfs(Path(path).parent)
        most, used, unused, page = (
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("max_page_count", "page_count", "freelist_count", "page_size")
        )
    except (OSError, sqlite3.Error):
        return fault
    if disk.f_flag & os.ST_RDONLY:
        return StoreFault.READ_ONLY
    left = disk.f_bavail * disk.f_frsize
    if fault is StoreFault.IO_ERROR:
        return fault if left else StoreFault.DISK_FULL
    # Both may be near their end: the one with less left is the cause.
    return StoreFault.SIZE_LIMIT if (most - used + unused) * page < left else fault
