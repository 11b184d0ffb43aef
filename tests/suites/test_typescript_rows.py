"""The rows after the TypeScript SDK's end-to-end tests have through taskgate the outcome that their verdict says."""

from collections.abc import Mapping

import pytest
import pytest_asyncio

from interop.peers import require_peers
from suites.typescript_rows import SHARES, outcomes
from suites.verdicts import TYPESCRIPT_ROWS, Outcomes, judge

pytestmark = [pytest.mark.interop, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def found(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Outcomes]:
    """The outcomes of all parts."""
    require_peers()
    return await outcomes(lambda: tmp_path_factory.mktemp("rows"), directly=False)


@pytest.mark.parametrize("part", SHARES)
async def test_each_row_has_the_outcome_of_its_verdict(found: Mapping[str, Outcomes], part: str) -> None:
    judge(TYPESCRIPT_ROWS, part, found[part])
