"""A disk of a few MiB, mounted for the length of a block, that a test fills up: `small_disk`, `SmallDisk`."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PIECE = b"\0" * 4096


class SmallDisk:
    """The disk. What fills it is one file, so that all of its room can be given back at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filling = folder / "filling"

    def fill(self) -> None:
        """Leave no room."""
        with self._filling.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(PIECE)
            except OSError:
                return

    def clear(self) -> None:
        """Give the room back."""
        self._filling.unlink()


@contextmanager
def small_disk(folder: Path, size: str = "3m") -> Iterator[SmallDisk]:
    """A disk in a folder, empty; skips the test where nothing can be mounted."""
    folder.mkdir()
    try:
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
        done = subprocess.run(command, capture_output=True, check=False, timeout=10)
    except FileNotFoundError:
        pytest.skip("there is no command `mount` here")
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().partition("\n")[0].replace(str(folder), "…")
        pytest.skip(f"nothing can be mounted here: {said}")
    try:
        yield SmallDisk(folder)
    finally:
        # At once from where it is seen, whatever a test that failed still has open there.
        subprocess.run(["umount", "--lazy", str(folder)], check=True, timeout=10)
