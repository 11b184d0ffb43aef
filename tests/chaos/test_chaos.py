"""Three replicas, and much that goes wrong: no acknowledged task is lost, none ends twice, no call is sent twice."""

import os
from pathlib import Path

import pytest

from chaos.checker import complaints
from chaos.drive import run

SEEDS = [int(seed) for seed in os.environ.get("CHAOS_SEEDS", "1").split(",")]
SECONDS = float(os.environ.get("CHAOS_SECONDS", "15"))


@pytest.mark.alone
@pytest.mark.kill
@pytest.mark.filterwarnings("ignore:The experimental tasks API is deprecated:DeprecationWarning")
@pytest.mark.timeout(SECONDS + 120)
@pytest.mark.parametrize("seed", SEEDS)
async def test_whatever_dies_the_invariants_hold(seed: int, tmp_path: Path) -> None:
    played = await run(seed, tmp_path, seconds=SECONDS)
    print(played)  # noqa: T201 - the seed, and what it came to, belong into the report of every run
    assert complaints(played.history) == [], played
    assert played.eternal == []
