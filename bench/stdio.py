"""What a call costs through a program that is there already, against one that is relayed over HTTP: CPU of the gateway.

The command line: `python -m bench.stdio [--rounds N] [--scale F] [--json FILE]`. Two gateways that differ in nothing
but how they speak to their server: over HTTP to `stub_upstream`, or over the standard streams of `stub_program`, whose
tools are the same code. Prints Markdown. Ends with 0 whether goals are met or not.
"""

import argparse
import contextlib
import json
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench import report
from bench.failures import BenchFailed
from bench.measure import SESSIONS, Bench, Outcome, started_load
from bench.processes import ROOT
from bench.scenarios import SCENARIOS, Ratio, Scenario
from bench.serving import raise_descriptor_limit
from bench.targets import Running, started, started_stub

GOAL: Final = 1.5
"""CPU of a call through a warm process, as a multiple of a relayed HTTP call."""
HTTP, STDIO = "over HTTP", "over stdio"
_LOADS: Final = ("relay", "solo", "up64k", "down1m", "list")
_COMMAND: Final = [sys.executable, "-m", "bench.stub_program"]
_SERVER: Final = f"transport: stdio, command: {json.dumps(_COMMAND)}, cwd: {json.dumps(str(ROOT))}"


def scenarios() -> list[Scenario]:
    """The loads of the other benchmark that are put on both gateways."""
    return [_either_way(scenario) for scenario in SCENARIOS if scenario.name in _LOADS]


def _either_way(scenario: Scenario) -> Scenario:
    goal = GOAL if scenario.name == "relay" else None
    return Scenario(
        name=scenario.name,
        part="stdio",
        title=scenario.title,
        targets=(HTTP, STDIO),
        connections=scenario.connections,
        count=scenario.count,
        method=scenario.method,
        params=scenario.params,
        marker=scenario.marker,
        times=scenario.times,
        ratios=(
            Ratio(figure="cpu", of=STDIO, to=HTTP, at_most=goal),
            Ratio(figure="p50", of=STDIO, to=HTTP),
        ),
    )


@contextlib.contextmanager
def _gateways(stub: Running, folder: Path) -> Iterator[dict[str, Running]]:
    places = {name: folder / str(number) for number, name in enumerate((HTTP, STDIO))}
    for place in places.values():
        place.mkdir()
    with (
        started("open", stub, places[HTTP], sessions=SESSIONS) as http,
        started("open", stub, places[STDIO], sessions=SESSIONS, parts={"server": _SERVER}) as stdio,
    ):
        yield {HTTP: http, STDIO: stdio}


def _run(given: argparse.Namespace, folder: Path) -> list[Outcome]:
    outcomes = []
    with started_stub(get_stream=True) as stub, started_load() as load, _gateways(stub, folder) as running:
        for scenario in scenarios():
            if given.only and scenario.name not in given.only:
                continue
            outcomes.append(Bench(stub, load, running).measure(scenario, rounds=given.rounds, scale=given.scale))
            print(report.outcome_table(outcomes[-1]), flush=True)
    return outcomes


def main() -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m bench.stdio", description="calls through programs, as ratios")
    parser.add_argument("--only", type=lambda text: text.split(","), metavar="NAMES", help="loads, by comma")
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="rounds of every load")
    parser.add_argument("--scale", type=float, default=0.5, metavar="F", help="multiply every round's count")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every round's figures there")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    raise_descriptor_limit()
    print(report.machine_line(), flush=True)
    try:
        with tempfile.TemporaryDirectory(prefix="taskgate-bench-") as folder:
            outcomes = _run(given, Path(folder))
    except BenchFailed as failure:
        print(f"bench: {failure}", file=sys.stderr)
        return 1
    print(report.findings_table(report.findings(outcomes, [], [])))
    if given.json:
        given.json.write_text(json.dumps(report.as_json(outcomes, [], []), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
