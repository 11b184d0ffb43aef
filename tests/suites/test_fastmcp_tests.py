"""FastMCP's own tests have through taskgate the outcome that the verdict of each row says."""

from pathlib import Path

import pytest

from interop.peers import require_peers
from suites.fastmcp_tests import FOLDERS, run
from suites.verdicts import Suite, disagreements

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


@pytest.mark.parametrize("directly", [False, True], ids=["through taskgate", "directly"])
@pytest.mark.parametrize("suite", FOLDERS, ids=["client", "proxy"])
async def test_each_row_has_the_outcome_of_its_verdict(tmp_path: Path, suite: Suite, directly: bool) -> None:
    require_peers(suite.environment, packages=False)
    made = run(suite)
    found = await (made.directly(tmp_path) if directly else made.through_taskgate(tmp_path))
    (verdicts,) = suite.verdicts().values()
    outcomes = {name.removeprefix(FOLDERS[suite]): problem for name, problem in found.items()}
    wrong = disagreements(verdicts, outcomes, directly=directly)
    assert not wrong, "\n".join(wrong)
