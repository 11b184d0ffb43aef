"""The tests of FastMCP's client have through taskgate the outcome that the verdict of each row says."""

from pathlib import Path

import pytest

from interop.peers import require_peers
from suites.fastmcp_client import run
from suites.verdicts import FASTMCP, disagreements

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


@pytest.mark.parametrize("directly", [False, True], ids=["through taskgate", "directly"])
async def test_each_row_has_the_outcome_of_its_verdict(tmp_path: Path, directly: bool) -> None:
    require_peers(FASTMCP.environment, packages=False)
    found = await (run().directly(tmp_path) if directly else run().through_taskgate(tmp_path))
    (verdicts,) = FASTMCP.verdicts().values()
    outcomes = {name.removeprefix("tests/client/"): problem for name, problem in found.items()}
    wrong = disagreements(verdicts, outcomes, directly=directly)
    assert not wrong, "\n".join(wrong)
