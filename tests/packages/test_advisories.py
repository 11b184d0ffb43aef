"""`make advisories` never says that all is well when it could not look."""

import json

import pytest

from packages.advisories import CLEAN, UNKNOWN, VULNERABLE, verdict

GOOD = {"name": "a", "version": "1", "vulns": []}
BAD = {"name": "b", "version": "2", "vulns": [{"id": "CVE-2026-1", "fix_versions": ["2.1"]}]}
SKIPPED = {"name": "c", "skip_reason": "Dependency not found on PyPI"}


@pytest.mark.parametrize(
    ("found", "status", "said"),
    [
        ([GOOD], CLEAN, ["advisories: 0 known, 1 releases checked"]),
        ([GOOD, BAD], VULNERABLE, ["b 2: CVE-2026-1, fixed in 2.1", "advisories: 1 known, 2 releases checked"]),
        ([GOOD, SKIPPED], UNKNOWN, ["advisories: 0 known, 1 releases checked", "advisories: no data for c"]),
        ([SKIPPED], UNKNOWN, ["advisories: the data could not be reached, so nothing was checked"]),
    ],
)
def test_the_status_says_whether_all_was_checked(found: list[object], status: int, said: list[str]) -> None:
    assert verdict(json.dumps({"dependencies": found})) == (status, said)


@pytest.mark.parametrize("report", ["", "{}", "Traceback"])
def test_a_report_that_is_none_is_no_good_news(report: str) -> None:
    assert verdict(report)[0] == UNKNOWN
