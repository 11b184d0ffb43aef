"""What one run of pytest did, as a file: its tests by outcome, why some were skipped, and what each file took.

A run writes into the folder that TALLY names, where it names one. `house/lanes.py` adds several up.
"""

import json
import os
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

# Not for the processes that this one starts: its workers, and runs of pytest in tests.
_FOLDER = os.environ.pop("TALLY", None)
_COUNTED = ("passed", "failed", "error", "skipped", "xfailed", "xpassed")


@dataclass(slots=True)
class Tally:
    """Tests by outcome, names of those that failed, skipped ones by reason, and seconds by file.

    `seconds` are of the clock. `busy` are of the processors, programs that the tests started and ended included.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    busy: Counter[str] = field(default_factory=Counter)

    def add(self, other: "Tally") -> None:
        """Add what another run did."""
        self.outcomes += other.outcomes
        self.failed += other.failed
        self.skipped += other.skipped
        self.seconds += other.seconds
        self.busy += other.busy


_tally = Tally()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add the seconds of one test, its fixtures included, to those of its file."""
    _tally.seconds[report.nodeid.partition("::")[0]] += report.duration


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Add what one test and its fixtures kept the processors busy for."""
    before = sum(os.times()[:4])
    try:
        return (yield)
    finally:
        _tally.busy[item.nodeid.partition("::")[0]] += sum(os.times()[:4]) - before


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write what this run did."""
    if not _FOLDER:
        return
    for outcome in _COUNTED:
        _tally.outcomes[outcome] += len(terminalreporter.getreports(outcome))
    _tally.failed += [
        report.nodeid for outcome in ("failed", "error") for report in terminalreporter.getreports(outcome)
    ]
    for report in terminalreporter.getreports("skipped"):
        _tally.skipped[report.longrepr[2].removeprefix("Skipped: ")] += 1
    Path(_FOLDER, f"{os.getpid()}.json").write_text(
        json.dumps({name: getattr(_tally, name) for name in Tally.__slots__})
    )


def tallies(folder: Path) -> Iterator[Tally]:
    """What each run that wrote into the folder did."""
    for file in sorted(folder.glob("*.json")):
        found = json.loads(file.read_text())
        yield Tally(
            Counter(found["outcomes"]),
            found["failed"],
            Counter(found["skipped"]),
            Counter(found["seconds"]),
            Counter(found["busy"]),
        )
