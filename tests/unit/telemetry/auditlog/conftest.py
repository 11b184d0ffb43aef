"""What tests of a log that is kept share: a system that does as it is told, and a file."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from taskgate.telemetry.auditlog import sinks as files
from taskgate.telemetry.auditlog.sinks import FileSink
from unit.telemetry.auditlog.logs_on_disk import Lines, ScriptedOs, Sinks


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedOs]:
    """What files take for the system."""
    made = ScriptedOs()
    monkeypatch.setattr(files, "os", made)
    yield made
    made.gate.set()


@pytest.fixture
def lines() -> Lines:
    """The lines that are written."""
    return Lines()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file of `sinks` is."""
    return tmp_path / "audit.jsonl"


@pytest.fixture
def sinks(path: Path) -> Iterator[Sinks]:
    """Makes sinks for `path`, and lets go of them."""
    made: list[FileSink] = []

    def new(rotate_size: int | None = None, keep: int = 3, *, disk: bool = True) -> FileSink:
        made.append(FileSink(path, rotate_size=rotate_size, keep=keep, disk=disk))
        return made[-1]

    yield new
    for sink in made:
        sink.close()
