"""A program is played to the landing before and to this package, and what both left in their folders is compared."""

import difflib
import os
import re
import subprocess
import sys
from pathlib import Path

from helpers.commit_before import package_of

BASE = os.environ.get("DIFFERENTIAL_BASE") or "65de4136"
"""The landing before."""
SEED = os.environ.get("DIFFERENTIAL_SEED") or "1"

_OF_THE_MACHINE = re.compile(
    r"^(process_|python_|taskgate_(event_loop_|config_hash|config_last_|build_|memory_|concurrency_in_use|store_\w*|audit_\w*seconds))"
    r'|_(bucket|sum|created)[{ ]|operation="purge"'
)
"""Samples that show how long something took, what it ran on, or what happens now and then."""
_WORDS = "# HELP "
"""Lines that say what a family means; the page of metrics is held against them."""
_OF_THE_PROCESS = re.compile(r'"(request_id":"\w+(?=-)|fingerprint":"\w+|prev":"\w+)|(?<="seq":)\d+')
"""Parts of audit lines that differ from one process to the next: names made by chance, and the links of the chain."""

_RELEASE = re.compile(r"\b0\.[19]\.0\b")
"""The version of the package, which answers and audit lines name."""

_BY_TIME = '"event":"audit.'
"""Lines that the log writes after some time: checkpoints, and the begin of its chain."""


def play_both(program: Path, folder: Path, count: str) -> tuple[Path, Path]:
    """The folders in which the landing before and this package left what came out of the program."""
    before, now = folder / "before", folder / "now"
    packages = package_of(BASE, folder)
    players = [
        subprocess.Popen(
            [sys.executable, program, into, SEED, count],
            env={**os.environ, "PYTHONHASHSEED": "0", **environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for into, environment in ((before, packages), (now, {}))
    ]
    # Both have ended before one is judged: a program that runs on would fail a later test.
    told = [player.communicate(timeout=1200)[1] for player in players]
    for player, text in zip(players, told, strict=True):
        assert player.returncode == 0, text
    return before, now


def differences(before: list[str], now: list[str]) -> str:
    """What of it is not the same."""
    return "\n".join(line[:4000] for line in difflib.unified_diff(before, now, "before", "now", lineterm="", n=0))


def answers(folder: Path) -> list[str]:
    """What hosts got."""
    return _RELEASE.sub("", (folder / "answers").read_text()).splitlines()


def samples(folder: Path) -> list[str]:
    """The samples of the metrics page that are the same on every machine."""
    lines = (folder / "metrics").read_text().splitlines()
    same = (line for line in lines if not _OF_THE_MACHINE.search(line))
    return sorted(line for line in same if not line.startswith(_WORDS))


def audit_lines(folder: Path) -> list[str]:
    """The lines of the audit log, sorted, without what differs from one process to the next.

    A line of a request without a known caller stands behind others of the same batch.
    """
    lines = _RELEASE.sub("", (folder / "audit.jsonl").read_text()).splitlines()
    return sorted(_OF_THE_PROCESS.sub("", line) for line in lines if _BY_TIME not in line)
