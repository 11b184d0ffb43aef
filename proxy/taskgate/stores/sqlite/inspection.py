"""A look at the store's file without opening it: `expect_usable`, for the command that checks a
configuration.

It creates nothing, and reads only the header of the file. Damage further inside is found by a start.
"""

import os
import stat
from pathlib import Path
from typing import Final

from taskgate.errors import StoreUnavailable
from taskgate.stores.sqlite.file import APPLICATION, LAYOUT, in_use
from taskgate.system.descriptors import is_locked

_MAGIC: Final = b"SQLite format 3\0"
_HEADER: Final = 100
"""Bytes of the header of a database; the numbers in it are big-endian."""
_PAGES, _USER_VERSION, _APPLICATION_ID = slice(28, 32), slice(60, 64), slice(68, 72)


def expect_usable(path: Path, *, is_running: bool) -> None:
    """Check that a start could open or create the file. Blocks.

    With `is_running` another process may hold it. Raises StoreUnavailable with the reason.
    """
    path = path.resolve()
    try:
        if not path.exists():
            _expect_room(path.parent)
            return
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise StoreUnavailable(f"The folder {path.parent} cannot be written: no permission")
        with path.open("r+b", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise StoreUnavailable("The store's file is not a regular file")
            if not is_running and is_locked(file.fileno()):
                raise in_use(file.fileno())
            _examine(file.read(_HEADER))
    except OSError as error:
        raise StoreUnavailable(f"The store's file cannot be opened: {error.strerror}") from error


def _expect_room(folder: Path) -> None:
    """Check that a file can be created in the folder, or the folder in the nearest one that exists."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir():
        raise StoreUnavailable(f"{folder} is not a folder")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StoreUnavailable(f"The folder {folder} cannot be written: no permission")


def _examine(header: bytes) -> None:
    if not header:
        return
    if len(header) < _HEADER or not header.startswith(_MAGIC):
        raise StoreUnavailable("The store's file is damaged or not a SQLite file; it was not changed")
    pages, layout, application = (int.from_bytes(header[place]) for place in (_PAGES, _USER_VERSION, _APPLICATION_ID))
    if application != APPLICATION and (application or layout or pages > 1):
        raise StoreUnavailable("The store's file belongs to another program")
    if layout > LAYOUT:
        raise StoreUnavailable("The store's file was written by a newer version of the gateway")
