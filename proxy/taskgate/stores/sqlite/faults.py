"""The translation of SQLite's errors into StoreUnavailable with its fault: `unavailable`.

SQLite reports a full disk and a file at its maximum size with the same code, and a read-only disk
as an I/O error. The file system tells them apart. The functions block, because they query the disk.
"""

import os
import sqlite3
from pathlib import Path
from typing import Final

from taskgate.errors import StoreFault, StoreUnavailable

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
