"""The tests of FastMCP's proxy have with taskgate in its place the outcome that the verdict of each row says."""

from pathlib import Path

import pytest

from interop.peers import require_peers
from suites.fastmcp_proxy import FOLDER, run
from suites.verdicts import FASTMCP_PROXY, disagreements

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


@pytest.mark.parametrize("directly", [False, True], ids=["through taskgate", "directly"])
async def test_each_row_has_the_outcome_of_its_verdict(tmp_path: Path, directly: bool) -> None:
    require_peers(FASTMCP_PROXY.environment, packages=False)
    found = await (run().directly(tmp_path) if directly else run().through_taskgate(tmp_path))
    (verdicts,) = FASTMCP_PROXY.verdicts().values()
    outcomes = {name.removeprefix(FOLDER): problem for name, problem in found.items()}
    wrong = disagreements(verdicts, outcomes, directly=directly)
    assert not wrong, "\n".join(wrong)
