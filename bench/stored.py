"""What a `tasks/get` costs among few and among many stored tasks: instances that differ in nothing but their file.

Every request asks for another task, drawn at random, so what is kept in memory of tasks that are asked for again and
again helps only where all tasks fit into it.
"""

import contextlib
import json
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from bench.failures import BenchFailed
from bench.load_driver import Body, Load, body
from bench.measure import SESSIONS, Bench, Outcome
from bench.processes import Program, ended, python
from bench.scenarios import Ratio, Scenario
from bench.targets import DATABASE, MOUNT, Running, started

FEW = 100
BETWEEN = 10_000
GOAL = 1.1  # what counts as the same cost, within what one run can tell
_SAMPLE = 100_000  # ids to draw from; more would change nothing but the memory of the load
_FILL_BOUND = 1_800.0  # seconds


def sizes(many: int) -> tuple[int, ...]:
    """How many tasks are stored in each instance, ascending."""
    return (FEW, BETWEEN, many) if many > BETWEEN else (FEW, many)


def _scenario(counts: Sequence[int]) -> Scenario:
    *fewer, most = (_name(count) for count in counts)
    goals = [GOAL, *[None] * (len(fewer) - 1)]
    return Scenario(
        name="stored",
        part="stored",
        title="`tasks/get` of a random one of so many stored tasks, 64 connections",
        targets=(*fewer, most),
        connections=64,
        count=10_000,
        method="tasks/get",
        params={},
        marker='"completed"',
        ratios=tuple(Ratio(figure="cpu", of=most, to=to, at_most=goal) for to, goal in zip(fewer, goals, strict=True)),
        in_turn=True,
    )


def measure(stub: Running, load: Load, folder: Path, *, many: int, rounds: int, scale: float) -> Outcome:
    """Fill a file for each size, start taskgate on each, and put the same load on all in turn."""
    counts = sizes(many)
    running: dict[str, Running] = {}
    bodies: dict[str, list[Body]] = {}
    with contextlib.ExitStack() as stack:
        for count in counts:
            place = folder / f"stored-{count}"
            place.mkdir()
            ids = _filled(place, count)
            bodies[_name(count)] = [body("tasks/get", {"taskId": task_id}) for task_id in ids]
            running[_name(count)] = stack.enter_context(started("open", stub, place, sessions=SESSIONS))
        bench = Bench(stub, load, running)
        return bench.measure(_scenario(counts), rounds=rounds, scale=scale, bodies=bodies)


def _name(count: int) -> str:
    return f"among {count:,}"


def _filled(place: Path, count: int) -> list[str]:
    """Put `count` tasks into a new file in `place`; ids of some of them, all of them where they are few."""
    database, told = place / DATABASE, place / "ids.json"
    began = time.monotonic()
    fill(count, "--database", str(database), "--sample", str(_SAMPLE), "--ids", str(told))
    size = database.stat().st_size / 2**20
    print(f"{count:,} finished tasks stored in {time.monotonic() - began:.0f} s, {size:,.1f} MiB\n", flush=True)
    ids: list[str] = json.loads(told.read_bytes())
    return ids


def fill(count: int, *options: str) -> None:
    """Put `count` tasks into the store that the options lead to."""
    command = python("stock", "--mount", MOUNT, "--count", str(count), *options)
    with ended(Program("the stock", command)) as program:
        try:
            status = program.popen.wait(_FILL_BOUND)
        except subprocess.TimeoutExpired:
            raise BenchFailed(f"{count:,} tasks were not stored within {_FILL_BOUND:.0f} s") from None
        if status:
            raise BenchFailed(f"{count:,} tasks could not be stored:\n{program.last_words()}")
