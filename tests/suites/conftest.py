"""The last lines of a run of suites: how many rows of each part passed."""

import pytest

from suites.verdicts import counted


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was counted."""
    for line in counted:
        terminalreporter.write_line(line)
