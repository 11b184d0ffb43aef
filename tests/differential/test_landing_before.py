"""What comes out of this package is what came out of the landing before, to the byte.

The corpus is played to both in processes of their own, with the same clock and the same chance. Answers, samples of the
metrics page and lines of the audit log are compared. `make differential BASE=<commit> CHANGED=2000 SEED=7` plays more.

Something that is meant to change is played no longer, or `BASE` moves to the landing that changed it.
"""

import difflib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.commit_before import package_of

BASE = os.environ.get("DIFFERENTIAL_BASE") or "5bd479a9"
"""The landing before."""
SEED = os.environ.get("DIFFERENTIAL_SEED", "1")
CHANGED = os.environ.get("DIFFERENTIAL_CHANGED", "60")
"""How many messages with changes each host sends to each mount."""

PLAY = Path(__file__).parent / "play.py"
_OF_THE_MACHINE = re.compile(
    r"^(process_|python_|taskgate_(event_loop_|config_hash|config_last_|build_|memory_|concurrency_in_use|store_\w*|audit_\w*seconds))"
    r'|_(bucket|sum|created)[{ ]|operation="purge"'
)
"""Samples that show how long something took, what it ran on, or what happens now and then."""
_OF_THE_PROCESS = re.compile(r'"(request_id":"\w+(?=-)|fingerprint":"\w+|prev":"\w+)|(?<="seq":)\d+')
"""Parts of audit lines that differ from one process to the next: names made by chance, and the links of the chain."""

_BY_TIME = '"event":"audit.'
"""Lines that the log writes after some time: checkpoints, and the begin of its chain."""


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folders in which the landing before and this package left what came out."""
    folder = tmp_path_factory.mktemp("played")
    before, now = folder / "before", folder / "now"
    packages = package_of(BASE, folder)
    players = [
        subprocess.Popen(
            [sys.executable, PLAY, into, SEED, CHANGED],
            env={**os.environ, "PYTHONHASHSEED": "0", **environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for into, environment in ((before, packages), (now, {}))
    ]
    for player in players:
        _, told = player.communicate(timeout=600)
        assert player.returncode == 0, told
    return before, now


def _differences(before: list[str], now: list[str]) -> str:
    return "\n".join(line[:2000] for line in difflib.unified_diff(before, now, "before", "now", lineterm="", n=0))


def _read(file: Path) -> list[str]:
    return file.read_text().splitlines()


@pytest.mark.program
@pytest.mark.timeout(660)
def test_every_answer_is_the_same(played: tuple[Path, Path]) -> None:
    before, now = (_read(folder / "answers") for folder in played)
    assert len(now) > 10 * int(CHANGED)
    statuses = {json.loads(line)[3][0] for line in now}
    assert statuses >= {200, 202, 400, 404, 406, 415}
    differences = _differences(before, now)
    assert not differences, differences


@pytest.mark.program
@pytest.mark.timeout(660)
def test_the_metrics_page_shows_the_same(played: tuple[Path, Path]) -> None:
    before, now = (
        sorted(line for line in _read(folder / "metrics") if not _OF_THE_MACHINE.search(line)) for folder in played
    )
    assert len(now) > 300
    differences = _differences(before, now)
    assert not differences, differences


@pytest.mark.program
@pytest.mark.timeout(660)
def test_the_audit_log_says_the_same(played: tuple[Path, Path]) -> None:
    before, now = (
        [_OF_THE_PROCESS.sub("", line) for line in _read(folder / "audit.jsonl") if _BY_TIME not in line]
        for folder in played
    )
    assert len(now) > 5 * int(CHANGED)
    differences = _differences(before, now)
    assert not differences, differences
