"""Bytes on a connection mean what they meant to the landing before: where a request ends, what is refused, what closes.

The connections of `heads` are played to both packages: usual requests, and those that two parsers could read
differently, in one piece or cut at any place, several at once. What came back, byte by byte and piece by piece, whether
the connection closed, the metrics page and the audit log are compared. `make differential HEADS=20000 SEED=7` plays
more.
"""

import json
import os
from pathlib import Path

import pytest

from differential.comparison import answers, audit_lines, differences, play_both, samples

HEADS = os.environ.get("DIFFERENTIAL_HEADS", "600")
"""How many connections are made."""

PLAY = Path(__file__).parent / "play_heads.py"


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folders in which the landing before and this package left what came out."""
    return play_both(PLAY, tmp_path_factory.mktemp("played"), HEADS)


@pytest.mark.program
@pytest.mark.timeout(1260)
def test_every_connection_goes_the_same_way(played: tuple[Path, Path]) -> None:
    before, now = (answers(folder) for folder in played)
    assert len(now) == int(HEADS)
    came = "".join(text for line in now for text, _ in json.loads(line)[1])
    for status in (200, 400, 405, 417, 431, 501):
        assert came.count(f"HTTP/1.1 {status} ") >= 3, status
    found = differences(before, now)
    assert not found, found


@pytest.mark.program
@pytest.mark.timeout(1260)
def test_the_metrics_page_shows_the_same(played: tuple[Path, Path]) -> None:
    before, now = (samples(folder) for folder in played)
    found = differences(before, now)
    assert not found, found


@pytest.mark.program
@pytest.mark.timeout(1260)
def test_the_audit_log_says_the_same(played: tuple[Path, Path]) -> None:
    before, now = (audit_lines(folder) for folder in played)
    assert len(now) > int(HEADS)
    found = differences(before, now)
    assert not found, found
