"""Counts the tests that were skipped, by their reasons, over several runs of pytest: for the last line of `make test`.

A run adds its counts to the file that SKIPPED names, where it names one.
"""

import json
import os
from collections import Counter
from pathlib import Path

import pytest

# Not for the processes that this one starts: its workers, and runs of pytest in tests.
_FILE = os.environ.pop("SKIPPED", None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Add what this run skipped."""
    if not _FILE:
        return
    found = counts(Path(_FILE))
    for report in terminalreporter.getreports("skipped"):
        found[report.longrepr[2].removeprefix("Skipped: ")] += 1
    Path(_FILE).write_text(json.dumps(found))


def counts(file: Path) -> Counter[str]:
    """The counts of the runs so far."""
    text = file.read_text() if file.exists() else ""
    return Counter(json.loads(text or "{}"))
