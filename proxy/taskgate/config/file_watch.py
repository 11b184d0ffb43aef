"""Changes of files: `FileWatch` notices that the configuration file, or one that it refers to, is another.

`stamp_of` tells two versions of a file apart. `wiring.app` asks the watch now and then, and as soon
as a server refuses the gateway's credentials.
"""

from collections.abc import Mapping
from pathlib import Path

FileStamp = tuple[int, ...] | None
"""The identity of a version of a file; None for a file that is not there."""


def stamp_of(file: Path) -> FileStamp:
    """Return the stamp of a file as it is now."""
    try:
        found = file.stat()
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


class FileWatch:
    """One file, watched from the creation of the object, and those that `follow` and `add` name.

    A file that is replaced as a whole is noticed. So is one behind a link that is switched to
    another folder, as Kubernetes does with a ConfigMap. A file that is missing for a moment is no
    change.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._stamps: dict[Path, FileStamp] = {file: stamp_of(file)}

    def follow(self, files: Mapping[Path, FileStamp]) -> None:
        """Watch these files too, and of others only the first one. Each has its stamp from before it
        was read."""
        known = self._stamps
        self._stamps = {file: known.get(file, stamp) for file, stamp in {**files, self._file: None}.items()}

    def add(self, files: Mapping[Path, FileStamp]) -> None:
        """Watch these files too, until `follow` names others. Each has its stamp as there."""
        self._stamps = {**files, **self._stamps}

    def has_changed(self) -> bool:
        """Whether a file has changed since the last call that returned True, or since the start."""
        found = {file: stamp for file in self._stamps if (stamp := stamp_of(file)) is not None}
        has_changed = any(self._stamps[file] != stamp for file, stamp in found.items())
        self._stamps |= found
        return has_changed
