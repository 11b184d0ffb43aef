"""Counts the tests that were skipped, by their reasons, over several runs of pytest: for the last line of `make test`.

A run adds its counts to the file that SKIPPED names, where it names one.
"""

import json
import os
from collections import Counter
from pathlib import Path

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Add what this run skipped. Its workers leave that to it."""
    file = os.environ.get("SKIPPED")
    if not file or hasattr(config, "workerinput"):
        return
    found = counts(Path(file))
    for report in terminalreporter.getreports("skipped"):
        found[report.longrepr[2].removeprefix("Skipped: ")] += 1
    Path(file).write_text(json.dumps(found))


def counts(file: Path) -> Counter[str]:
    """The counts of the runs so far."""
    text = file.read_text() if file.exists() else ""
    return Counter(json.loads(text or "{}"))
