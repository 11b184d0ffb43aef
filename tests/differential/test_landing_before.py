"""What comes out of this package is what came out of the landing before, to the byte.

The corpus is played to both in processes of their own, with the same clock and the same chance. Answers, samples of the
metrics page and lines of the audit log are compared. `make differential BASE=<commit> CHANGED=2000 SEED=7` plays more.

Something that is meant to change is played no longer, or `BASE` moves to the landing that changed it.
"""

import json
import os
from pathlib import Path

import pytest

from differential.comparison import answers, audit_lines, differences, play_both, samples

CHANGED = os.environ.get("DIFFERENTIAL_CHANGED", "60")
"""How many messages with changes each host sends to each mount."""

PLAY = Path(__file__).parent / "play.py"


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folders in which the landing before and this package left what came out."""
    return play_both(PLAY, tmp_path_factory.mktemp("played"), CHANGED)


@pytest.mark.program
@pytest.mark.timeout(1260)
def test_every_answer_is_the_same(played: tuple[Path, Path]) -> None:
    before, now = (answers(folder) for folder in played)
    assert len(now) > 10 * int(CHANGED)
    statuses = {json.loads(line)[3][0] for line in now}
    assert statuses >= {200, 202, 400, 404, 406, 415}
    found = differences(before, now)
    assert not found, found


@pytest.mark.program
@pytest.mark.timeout(1260)
def test_the_metrics_page_shows_the_same(played: tuple[Path, Path]) -> None:
    before, now = (samples(folder) for folder in played)
    assert len(now) > 300
    found = differences(before, now)
    assert not found, found


@pytest.mark.program
@pytest.mark.timeout(1260)
def test_the_audit_log_says_the_same(played: tuple[Path, Path]) -> None:
    before, now = (audit_lines(folder) for folder in played)
    assert len(now) > 5 * int(CHANGED)
    found = differences(before, now)
    assert not found, found
