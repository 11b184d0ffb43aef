"""Changes of one file, noticed by polling: `FileWatch`."""

from pathlib import Path


class FileWatch:
    """One file, watched from the creation of the object.

    A file that is replaced as a whole is noticed. So is one behind a link that is switched to
    another folder, as Kubernetes does with a ConfigMap. A file that is missing for a moment is no
    change.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._stamp = self._current_stamp()

    def has_changed(self) -> bool:
        """Whether the file has changed since the last call that returned True, or since the start."""
        stamp = self._current_stamp()
        if stamp is None or stamp == self._stamp:
            return False
        self._stamp = stamp
        return True

    def _current_stamp(self) -> tuple[int, ...] | None:
        try:
            found = self._file.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
