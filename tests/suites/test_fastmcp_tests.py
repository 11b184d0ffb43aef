"""FastMCP's own tests have through taskgate the outcome that the verdict of each row says."""

from pathlib import Path

import pytest

from interop.peers import require_peers
from suites.fastmcp_tests import FOLDERS, rows, run
from suites.verdicts import Suite, judge

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


@pytest.mark.parametrize("suite", FOLDERS, ids=["client", "proxy"])
async def test_each_row_has_the_outcome_of_its_verdict(tmp_path: Path, suite: Suite) -> None:
    require_peers(suite.environment, packages=False)
    found = await run(suite).through_taskgate(tmp_path)
    for part in suite.verdicts():
        judge(suite, part, rows(suite, found))
