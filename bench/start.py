"""Starts, and the memory of a gateway that has nothing to do: before any request, and after storms of large ones.

CPU of a start is counted until the first `initialize` is answered, with bytecode compiled by a start before.
"""

import os
import resource
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.load_driver import Barrage, Load, body
from bench.measure import SESSIONS
from bench.processes import ROOT
from bench.scenarios import SCENARIOS, Scenario
from bench.targets import Running, started

GOALS: Final = {
    "CPU of `taskgate --version` in s": 0.3,
    "CPU of a start in s": 0.9,
    "MiB resident while idle": 55.0,
    "MiB resident a moment after storms": 110.0,
}
_STORMS: Final = ("up1m", "down1m", "sse")
_CONNECTIONS: Final = 64
_SETTLE: Final = 8.0  # seconds; memory is given back after five that are idle


@dataclass(frozen=True, slots=True, kw_only=True)
class Starts:
    """One figure a round, by what `GOALS` names, of taskgate with everything on."""

    target: str = "taskgate"
    figures: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in GOALS})


def measure(stub: Running, load: Load, folder: Path, *, rounds: int, scale: float) -> Starts:
    """Start a fresh gateway in each round, and put each storm on it."""
    # Programs of the benchmark write bytecode, whatever its environment says of that.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    starts = Starts()
    for turn in range(rounds + 1):
        place = folder / f"start-{turn}"
        place.mkdir()
        version = _cpu_of_version()
        with started(starts.target, stub, place, sessions=1) as target:
            target.program.wait_until_quiet()
            cpu, idle = target.program.cpu(), target.program.resident() / 2**20
            if not turn:
                continue
        place = folder / f"storms-{turn}"
        place.mkdir()
        with started(starts.target, stub, place, sessions=SESSIONS) as target:
            for storm in (each for each in SCENARIOS if each.name in _STORMS):
                _storm(storm, target, load, max(_CONNECTIONS, round(storm.count * scale)))
            time.sleep(_SETTLE)
            after = target.program.resident() / 2**20
        for name, figure in zip(GOALS, (version, cpu, idle, after), strict=True):
            starts.figures[name].append(figure)
    return starts


def _cpu_of_version() -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "taskgate", "--version"], cwd=ROOT, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _storm(storm: Scenario, target: Running, load: Load, count: int) -> None:
    load.open(
        Barrage(
            port=target.port,
            connections=_CONNECTIONS,
            sessions=target.sessions,
            bodies=[body(storm.method, storm.params)],
            marker=storm.marker,
            times=storm.times,
        )
    )
    load.run(count)
    load.close()
    target.program.wait_until_quiet()
