"""taskgate finds in the requests of gunicorn's tests what the verdict of each row says."""

from collections.abc import Mapping
from typing import Any

import pytest
import pytest_asyncio

from interop.peers import require_peers
from suites.gunicorn_requests import (
    PARTS,
    Answers,
    corpus,
    directly,
    problem_of_invalid,
    problem_of_valid,
    through_taskgate,
)
from suites.verdicts import REQUESTS, Outcomes, judge

pytestmark = pytest.mark.interop
in_one_loop = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def requests() -> list[dict[str, Any]]:
    """All requests, with what gunicorn makes of them."""
    require_peers(REQUESTS.environment, packages=False)
    return await corpus()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outcomes(requests: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Outcomes]:
    """The outcomes of all rows in taskgate."""
    return await through_taskgate(requests, tmp_path_factory.mktemp("suite"))


@in_one_loop
@pytest.mark.parametrize("part", PARTS.values())
async def test_each_row_has_the_outcome_of_its_verdict(outcomes: Mapping[str, Outcomes], part: str) -> None:
    judge(REQUESTS, part, outcomes[part])


@in_one_loop
@pytest.mark.parametrize("part", PARTS.values())
async def test_each_row_passes_directly(requests: list[dict[str, Any]], part: str) -> None:
    judge(REQUESTS, part, directly(requests)[part], directly=True)


@pytest.mark.parametrize(
    ("heads", "closes", "seen", "passes"),
    [
        (1, False, Answers([404, 400], True), True),
        (2, False, Answers([404, 404, 400], True), True),
        (1, True, Answers([404], False), True),
        (1, False, Answers([404], False), False),
        (1, True, Answers([404, 400], True), False),
        (1, False, Answers([404, 404, 400], True), False),
        (2, False, Answers([404, 400], True), False),
        (1, False, Answers([400], False), False),
        (1, True, Answers([501], False), False),
    ],
)
def test_a_valid_request_passes_where_as_many_requests_are_found(
    heads: int, closes: bool, seen: Answers, passes: bool
) -> None:
    assert (problem_of_valid({"heads": heads, "closes": closes}, seen) is None) is passes


@pytest.mark.parametrize(
    ("heads", "seen", "passes"),
    [
        (0, Answers([400], False), True),
        (0, Answers([431], False), True),
        (0, Answers([404], False), False),
        (0, Answers([400, 400], True), False),
        (0, Answers([], False), False),
        (0, Answers([400, 400], False), False),
        (1, Answers([404], False), True),
        (1, Answers([404, 400], True), False),
        (1, Answers([200], False), False),
    ],
)
def test_an_invalid_request_passes_where_it_is_refused_and_nothing_behind_it_is_read(
    heads: int, seen: Answers, passes: bool
) -> None:
    assert (problem_of_invalid({"heads": heads}, seen) is None) is passes
