"""The command line: `python -m bench [--quick] [--only relay,get,stored] [--json FILE]`.

The parts are relay, create, get, tokens, eras, memory and start, and those that are measured only when they are named:
stored, waiters, lists and fastmcp. Prints Markdown. Ends with 0 whether goals are met or not, and with 1 if a program
does not start or answers wrongly.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from bench import eras, lists, report, start, stored, waiters
from bench.failures import BenchFailed
from bench.load_driver import Load
from bench.measure import Bench, Outcome, started_all, started_load
from bench.memory import Held, MemoryBench
from bench.scenarios import FASTMCP, LARGE, PARTS, SCENARIOS
from bench.serving import LOOP, raise_descriptor_limit
from bench.targets import OURS, Running, started_stub

_FULL = {
    "rounds": 5,
    "scale": 1.0,
    "held": 5_000,
    "memory_rounds": 3,
    "stored": 1_000_000,
    "waiters": 10_000,
    "listed": 100_000,
}
_QUICK = {
    "rounds": 3,
    "scale": 0.2,
    "held": 1_000,
    "memory_rounds": 1,
    "stored": 10_000,
    "waiters": 1_000,
    "listed": 10_000,
}


@dataclass(frozen=True, slots=True)
class _Figures:
    """All that was measured."""

    outcomes: list[Outcome] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    waited: list[waiters.Waited] = field(default_factory=list)
    starts: list[start.Starts] = field(default_factory=list)


def _parts(text: str) -> list[str]:
    names = text.split(",")
    known = {*PARTS, *LARGE, *(scenario.name for scenario in SCENARIOS)}
    if unknown := [name for name in names if name not in known]:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; known: {', '.join(sorted(known))}")
    return names


def _many(text: str) -> int:
    if not text.isdecimal() or int(text) <= stored.FEW:
        raise argparse.ArgumentTypeError(f"must be a number above {stored.FEW}")
    return int(text)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="taskgate against small baselines, as ratios")
    parser.add_argument("--quick", action="store_true", help="a short form: fewer and shorter rounds, 1,000 held calls")
    parser.add_argument(
        "--only", type=_parts, default=list(PARTS), metavar="NAMES", help="parts or scenarios, by comma"
    )
    parser.add_argument("--baselines", action="store_true", help="measure the baselines alone, without taskgate")
    parser.add_argument(
        "--loop",
        choices=["auto", "asyncio", "uvloop"],
        default="auto",
        help="the event loop of all programs; auto is what taskgate takes",
    )
    parser.add_argument("--get-stream", action="store_true", help="let the stub hold GET streams, as most servers do")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every round's figures there")
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds of every scenario, memory too")
    parser.add_argument("--scale", type=float, metavar="F", help="multiply every round's count")
    parser.add_argument("--held", type=int, metavar="N", help="how many calls and tasks to hold")
    parser.add_argument("--stored", type=_many, metavar="N", help="how many tasks to store, for the part of that name")
    parser.add_argument(
        "--waiters", type=int, metavar="N", help="how many tasks to wait for, for the part of that name"
    )
    parser.add_argument("--listed", type=_many, metavar="N", help="how many tasks to list, for the part `lists`")
    parser.add_argument("--warm-up", type=int, default=2_000, metavar="N", help="requests before memory is measured")
    given = parser.parse_args()
    os.environ[LOOP] = given.loop
    chosen = _QUICK if given.quick else _FULL
    given.memory_rounds = given.rounds or chosen["memory_rounds"]
    for name in ("rounds", "scale", "held", "stored", "waiters", "listed"):
        if getattr(given, name) is None:
            setattr(given, name, chosen[name])
    return given


def _run(given: argparse.Namespace, folder: Path) -> _Figures:
    wanted = [scenario for scenario in (*SCENARIOS, FASTMCP) if {scenario.part, scenario.name} & set(given.only)]
    left_out = OURS if given.baselines else ()
    names = dict.fromkeys(name for scenario in wanted for name in scenario.targets if name not in left_out)
    wanted = [scenario for scenario in wanted if names.keys() & set(scenario.targets)]
    found = _Figures()
    with started_stub(get_stream=given.get_stream) as stub, started_load() as load:
        with started_all(list(names), stub, folder) as running:
            for scenario in wanted:
                outcome = Bench(stub, load, running).measure(scenario, rounds=given.rounds, scale=given.scale)
                found.outcomes.append(outcome)
                print(report.outcome_table(outcome), flush=True)
        if "memory" in given.only:
            memory = MemoryBench(stub, load, folder, warm_up=given.warm_up)
            held = memory.measure(rounds=given.memory_rounds, held=given.held, with_taskgate=not given.baselines)
            found.held.extend(held)
            print(report.memory_table(held), flush=True)
        if "eras" in given.only and not given.baselines:
            for outcome in eras.measure(stub, load, folder, rounds=given.rounds, scale=given.scale):
                found.outcomes.append(outcome)
                print(report.outcome_table(outcome), flush=True)
        if "start" in given.only and not given.baselines:
            starts = start.measure(stub, load, folder, rounds=given.memory_rounds, scale=given.scale)
            found.starts.append(starts)
        if not given.baselines:
            _run_large(given, folder, stub, load, found)
    return found


def _run_large(given: argparse.Namespace, folder: Path, stub: Running, load: Load, found: _Figures) -> None:
    if "stored" in given.only:
        outcome = stored.measure(stub, load, folder, many=given.stored, rounds=given.rounds, scale=given.scale)
        found.outcomes.append(outcome)
        print(report.outcome_table(outcome), flush=True)
    if "lists" in given.only:
        outcome = lists.measure(stub, load, folder, many=given.listed, rounds=given.rounds, scale=given.scale)
        found.outcomes.append(outcome)
        print(report.outcome_table(outcome), flush=True)
    if "waiters" in given.only:
        count = waiters.fitting(given.waiters)
        waited = waiters.measure(stub, load, folder, count=count, rounds=given.memory_rounds, scale=given.scale)
        found.waited.append(waited)
        print(report.waiters_table(waited), flush=True)


def main() -> int:
    """Measure and report."""
    given = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    raise_descriptor_limit()
    print(report.machine_line(), flush=True)
    try:
        with tempfile.TemporaryDirectory(prefix="taskgate-bench-") as folder:
            found = _run(given, Path(folder))
    except BenchFailed as failure:
        print(f"bench: {failure}", file=sys.stderr)
        return 1
    print(report.findings_table(report.findings(found.outcomes, found.held, found.waited, found.starts)))
    if given.json:
        written = report.as_json(found.outcomes, found.held, found.waited, found.starts)
        given.json.write_text(json.dumps(written, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
