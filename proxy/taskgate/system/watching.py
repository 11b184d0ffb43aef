"""Whether a file is another one than it was when it was last looked at.

What must not live here: what is done about it. What holds: a file that is put in its place whole is seen, also where it
is reached by a link that is turned to another folder, as Kubernetes does with a ConfigMap; one that is away for a
moment is no news.
"""

from pathlib import Path


class FileWatch:
    """One file, from when the watch is made."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seen = self._stamp()

    def changed(self) -> bool:
        """Whether it is another one than at the last call that said so, or at the beginning."""
        found = self._stamp()
        if found is None or found == self._seen:
            return False
        self._seen = found
        return True

    def _stamp(self) -> tuple[int, ...] | None:
        try:
            found = self._file.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
