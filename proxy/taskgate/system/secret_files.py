"""Files with secrets: whether others of this machine may read one, and whether that is a reason to refuse it."""

import os.path
import stat
from logging import getLogger
from pathlib import Path
from typing import Final

ADVICE: Final = "may be read or written by every user of this machine: chmod o-rwx it"
"""What is wrong with such a file, and what to do about it."""

_OTHERS: Final = stat.S_IROTH | stat.S_IWOTH

log = getLogger("taskgate.secrets")


def is_exposed(path: Path, mode: int, key: str) -> bool:
    """Whether a file with that mode is to be refused, because others may read or write it; `key` names it in the log.

    Kubernetes, Docker and systemd put secrets on mounts of their own, where the mode says little: there it is a note.
    """
    if not mode & _OTHERS:
        return False
    if not (os.path.ismount(path) or _is_mount_of_its_own(path.parent)):
        return True
    log.info("a secret may be read by every user of this machine; it lies on a mount of its own", extra={"key": key})
    return False


def _is_mount_of_its_own(folder: Path) -> bool:
    return folder != Path(folder.anchor) and os.path.ismount(folder)
