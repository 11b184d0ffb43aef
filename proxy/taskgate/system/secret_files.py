"""Files with secrets: `write_secret` writes one for its owner alone. `read_secret` reads one, and says
whether other users of the machine can read or write it (`is_exposed`). `is_foreign` and
`folder_fault` find what another user can replace. `forbid_core_dumps` keeps the memory of the process
out of files.
"""

import os
import resource
import stat
from contextlib import suppress
from logging import getLogger
from pathlib import Path
from tempfile import mkstemp
from typing import Final

ADVICE: Final = "may be read or written by every user of this machine: chmod o-rwx it"
"""The error text for an exposed file, after its name."""

FOREIGN: Final = "belongs to another user of this machine, who can replace it: chown it to the user of taskgate"
"""The error text for a file of another user, after its name."""

_OTHERS: Final = stat.S_IROTH | stat.S_IWOTH

log = getLogger("taskgate.secrets")


def read_secret(path: Path, most: int, key: str) -> tuple[bytes, bool]:
    """The first bytes of a file, one more than `most` if it is longer, and whether it is exposed.

    `key` is as for `is_exposed`. Raises OSError, and ValueError for a path that no file can have.
    """
    with path.open("rb") as file:
        exposed = is_exposed(path, os.fstat(file.fileno()).st_mode, key)
        return file.read(most + 1), exposed


def is_exposed(path: Path, mode: int, key: str) -> bool:
    """Whether a file with that mode must be refused, because others may read or write it.

    `key` is its configuration key, for the log. Kubernetes, Docker and systemd put secrets on
    separate mounts, where the mode says little: there the file is accepted and a line logged.
    """
    if not mode & _OTHERS:
        return False
    if not _is_mounted(path):
        return True
    log.info("a secret may be read by every user of this machine; it lies on a mount of its own", extra={"key": key})
    return False


def is_foreign(path: Path) -> bool:
    """Whether a file belongs to another user than root and that of this process.

    On a separate mount the owner says little, and the file is accepted. Raises OSError.
    """
    return path.stat().st_uid not in (0, os.geteuid()) and not _is_mounted(path)


def folder_fault(folder: Path) -> str | None:
    """Say why other users could replace the files of a folder; None if they could not.

    Containers get volumes as separate mounts, which a group may write: such a folder is accepted.
    Raises OSError.
    """
    found = folder.stat()
    if _is_separate_mount(folder):
        return None
    if found.st_uid not in (0, os.geteuid()):
        return FOREIGN
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "may be written by other users of this machine, who can replace the keys in it: chmod go-w it"
    return None


def forbid_core_dumps() -> None:
    """Have the system write no file with the memory of this process, which has tokens and keys.

    Programs that it starts inherit this.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def write_secret(path: Path, content: bytes, *, replaces: bool = False) -> None:
    """Write a file with mode 0600, as a whole or not at all. Follows no symbolic link.

    Raises FileExistsError if the file exists, unless `replaces`, and OSError. The new file has a name
    that cannot be predicted until it is complete, and is made by this call.
    """
    handle, unfinished = mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if replaces:
            os.replace(unfinished, path)
        else:
            os.link(unfinished, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(unfinished)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _is_mounted(path: Path) -> bool:
    """Whether a file is a mount, or is directly in a separate one."""
    return os.path.ismount(path) or _is_separate_mount(path.parent)


def _is_separate_mount(folder: Path) -> bool:
    return folder != Path(folder.anchor) and os.path.ismount(folder)
