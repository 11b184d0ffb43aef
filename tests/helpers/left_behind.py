"""What is left of programs that a gateway started: they are marked by their environment, and so is what they start."""

from pathlib import Path

_MARK = "STARTED_FOR"
_PROC = Path("/proc")


def marked(folder: Path) -> dict[str, str]:
    """What belongs into the environment of programs that are looked for by that folder."""
    return {_MARK: str(folder)}


def can_be_found() -> bool:
    """Whether this system tells of processes."""
    return _PROC.is_dir()


def left_behind(folder: Path) -> list[str]:
    """The processes that are there; none where none can be found."""
    mark = f"{_MARK}={folder}".encode()
    return [place.parent.name for place in _PROC.glob("[0-9]*/environ") if mark in _read(place).split(b"\0")]


def _read(place: Path) -> bytes:
    try:
        return place.read_bytes()
    except OSError:
        return b""
