"""The interaction suite of `mcp` has through taskgate the outcome that the verdict of each row says."""

import asyncio
from collections.abc import Mapping

import pytest
import pytest_asyncio

from interop.peers import require_peers
from suites.interaction import PARTS, rows, run
from suites.verdicts import INTERACTION, Outcomes, judge

pytestmark = [pytest.mark.interop, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Outcomes]:
    """The outcomes of all rows through taskgate."""
    require_peers(INTERACTION.environment, packages=False)
    # At once, since much is waited for.
    found = await asyncio.gather(*(run(part).through_taskgate(tmp_path_factory.mktemp("suite")) for part in PARTS))
    return {part: rows(part, each) for part, each in zip(PARTS, found, strict=True)}


@pytest.mark.parametrize("part", PARTS)
async def test_each_row_has_the_outcome_of_its_verdict(outcomes: Mapping[str, Outcomes], part: str) -> None:
    judge(INTERACTION, part, outcomes[part])


async def test_a_row_that_sees_tasks_announced_passes_where_no_call_becomes_one(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    require_peers(INTERACTION.environment, packages=False)
    verdicts = INTERACTION.verdicts()
    announced = {
        part: [row for row, verdict in verdicts[part].items() if "taskgate announces tasks" in verdict]
        for part in ("legacy hosts, servers with sessions", "legacy hosts, servers without sessions")
    }
    for part, seen in announced.items():
        names = (row.rpartition("::")[2].partition("[")[0] for row in seen)
        outcomes = await run(part, *names).through_taskgate(tmp_path_factory.mktemp("suite"), tasks={"upgrade": []})
        found = rows(part, outcomes)
        assert seen
        assert {row: found.get(row, "no outcome") for row in seen} == dict.fromkeys(seen)
