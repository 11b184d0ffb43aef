"""What being seen costs: gateways that differ in nothing but what they tell operators, under the same load in turn.

The command line: `python -m bench.observing [--only NAMES] [--rounds N] [--scale F] [--before TREE] [--json FILE]`.
Prints Markdown: CPU of a relayed call, of a look at a task and of a task made and run, with metrics and audit log
(their defaults), with tracing besides, and with each alone, as ratios to a gateway with neither; how many lines of the
audit log went with one write meanwhile; and for how long a scrape of many series holds up the event loop. `TREE` is a
checkout of another commit, which is measured too, as it is. Ends with 0 whether goals are met or not.
"""

import argparse
import contextlib
import http.client
import json
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from bench import report, scrapes
from bench.failures import BenchFailed
from bench.measure import SESSIONS, Bench, Outcome, started_load
from bench.scenarios import SCENARIOS, Ratio, Scenario
from bench.serving import raise_descriptor_limit
from bench.targets import Running, started, started_stub

GOAL: Final = 1.15
"""CPU of a relayed call with metrics and audit log, as a multiple of one without."""
UNSEEN, METRICS, LOG, SEEN = "unseen", "metrics", "audit log", "seen"
SYNCED, TRACED, BEFORE = "each write to disk", "traced", "before"
TARGETS: Final = (UNSEEN, METRICS, LOG, SEEN, SYNCED, TRACED, BEFORE)
PARTS: Final = ("relay", "get", "create", "scrapes")
_NO_METRICS, _NO_LOG = "metrics: {enabled: false}\n", "audit: {enabled: false}\n"
_SYNC: Final = 'audit: {sinks: [{name: file, type: file, events: ["*"], fsync: always}]}\n'
_TRACING: Final = 'tracing: {enabled: true, endpoint: "http://127.0.0.1:PORT/", sample_ratio: 0.1}\n'
_SETTINGS: Final = {
    UNSEEN: _NO_METRICS + _NO_LOG,
    METRICS: _NO_LOG,
    LOG: _NO_METRICS,
    SEEN: "",
    SYNCED: _SYNC,
    TRACED: _TRACING,
}
"""What the configuration of each target has besides."""
_SIZES: Final = {"relay": 3_000, "get": 3_000, "create": 1_500}
_FILE: Final = 'sink="file"'
_READINGS: Final = 20
_BETWEEN: Final = 0.1  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What one gateway kept while it was measured: lines of its audit log, and the writes that they went with."""

    target: str
    lines: int
    writes: int


def scenarios() -> dict[str, Scenario]:
    """The loads of the other benchmark that are put on these gateways."""
    return {scenario.name: _observed(scenario) for scenario in SCENARIOS if scenario.name in _SIZES}


def _observed(scenario: Scenario) -> Scenario:
    goal = GOAL if scenario.name == "relay" else None
    goals = {SEEN: goal, METRICS: None, LOG: None, SYNCED: None, TRACED: None}
    ratios = [Ratio(figure="cpu", of=of, to=UNSEEN, at_most=most) for of, most in goals.items()]
    compared = [Ratio(figure="cpu", of=of, to=BEFORE) for of in (UNSEEN, SEEN)]
    return Scenario(
        name=scenario.name,
        part="observing",
        title=scenario.title,
        targets=TARGETS,
        connections=scenario.connections,
        count=_SIZES[scenario.name],
        method=scenario.method,
        params=scenario.params,
        marker=scenario.marker,
        ratios=(*ratios, *compared),
        needs_held_tasks=scenario.needs_held_tasks,
    )


@contextlib.contextmanager
def _gateways(names: Sequence[str], before: Path | None, stub: Running, folder: Path) -> Iterator[dict[str, Running]]:
    with contextlib.ExitStack() as stack:
        running = {}
        for number, name in enumerate(names):
            place = folder / f"gateway-{number}"
            place.mkdir()
            # What is exported goes to the stub, which takes anything.
            more = _SETTINGS.get(name, "").replace("PORT", str(stub.port))
            tree = before if name == BEFORE else None
            one = started("open", stub, place, sessions=SESSIONS, more=more, tree=tree)
            running[name] = stack.enter_context(one)
        yield running


def _counted(target: Running) -> tuple[int, int]:
    """The lines that its file has once no more come, and the writes that there were."""
    now = _shown(target)
    for _ in range(_READINGS):
        # The first reading has the gateway make the lines that wait; a thread writes them.
        time.sleep(_BETWEEN)
        before, now = now, _shown(target)
        if now == before:
            break
    return now


def _shown(target: Running) -> tuple[int, int]:
    connection = http.client.HTTPConnection("127.0.0.1", target.admin_port, timeout=10)
    with contextlib.closing(connection):
        connection.request("GET", "/metrics")
        page = connection.getresponse().read().decode()
    return _sample(page, "taskgate_audit_chain_sequence"), _sample(page, "taskgate_audit_write_duration_seconds_count")


def _sample(page: str, name: str) -> int:
    found = re.search(rf"^{name}{{{_FILE}}} (\S+)$", page, re.MULTILINE)
    if found is None:
        raise BenchFailed(f"no {name} at /metrics")
    return int(float(found[1]))


def _kept(running: dict[str, Running], earlier: dict[str, tuple[int, int]]) -> list[Kept]:
    kept = []
    for name, (lines, writes) in earlier.items():
        now_lines, now_writes = _counted(running[name])
        kept.append(Kept(target=name, lines=now_lines - lines, writes=now_writes - writes))
    return kept


def kept_table(name: str, kept: Sequence[Kept]) -> str:
    """How many lines went with one write."""
    heads = ("target", "lines", "writes", "lines a write")
    rows = [(one.target, f"{one.lines:,}", f"{one.writes:,}", f"{one.lines / max(1, one.writes):.0f}") for one in kept]
    lines = ["| " + " | ".join(heads) + " |", "|---|--:|--:|--:|", *("| " + " | ".join(row) + " |" for row in rows)]
    return "\n".join([f"#### audit log during `{name}`", "", *lines, ""])


def _parts(text: str) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in PARTS]:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; known: {', '.join(PARTS)}")
    return names


def _targets(text: str) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in _SETTINGS]:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; known: {', '.join(_SETTINGS)}")
    return names


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.observing", description="what being seen costs")
    parser.add_argument("--only", type=_parts, default=list(PARTS), metavar="NAMES", help="parts, by comma")
    parser.add_argument("--targets", type=_targets, default=list(_SETTINGS), metavar="NAMES", help="gateways, by comma")
    parser.add_argument("--before", type=Path, metavar="TREE", help="a checkout of another commit, to measure besides")
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="rounds of every load")
    parser.add_argument("--scale", type=float, default=1.0, metavar="F", help="multiply every round's count")
    parser.add_argument("--series", type=int, default=scrapes.SERIES, metavar="N", help="how many series to scrape")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every round's figures there")
    return parser.parse_args()


def _measure(given: argparse.Namespace, folder: Path) -> tuple[list[Outcome], dict[str, list[Kept]]]:
    loads = {name: scenario for name, scenario in scenarios().items() if name in given.only}
    outcomes: list[Outcome] = []
    kept: dict[str, list[Kept]] = {}
    if not loads:
        return outcomes, kept
    names = [*given.targets, *([BEFORE] if given.before else [])]
    with (
        started_stub(get_stream=False) as stub,
        started_load() as load,
        _gateways(names, given.before, stub, folder) as running,
    ):
        for name, scenario in loads.items():
            earlier = {each: _counted(running[each]) for each in (SEEN, SYNCED) if each in running}
            outcome = Bench(stub, load, running).measure(scenario, rounds=given.rounds, scale=given.scale)
            outcomes.append(outcome)
            kept[name] = _kept(running, earlier)
            print(report.outcome_table(outcome), kept_table(name, kept[name]), sep="\n", flush=True)
    return outcomes, kept


def _scraped(given: argparse.Namespace) -> list[report.Finding]:
    """For how long the loop was held up without a scrape and with one, and what a scrape took."""
    if "scrapes" not in given.only:
        return []
    quiet, scraped = scrapes.measure(given.series, rounds=given.rounds)
    what = f"scrape of {scraped[-1].series:,} series"
    figures = {
        f"{what}: ms that the event loop waited at most": ([one.stall for one in scraped], scrapes.GOAL),
        "no scrape: ms that it waited at most": ([one.stall for one in quiet], None),
        f"{what}: ms until it was answered": ([one.took for one in scraped], None),
    }
    return [report.finding(name, values, goal) for name, (values, goal) in figures.items()]


def main() -> int:
    """Measure, and print."""
    given = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    raise_descriptor_limit()
    print(report.machine_line(), flush=True)
    try:
        with tempfile.TemporaryDirectory(prefix="taskgate-bench-") as folder:
            outcomes, kept = _measure(given, Path(folder))
        scraped = _scraped(given)
    except BenchFailed as failure:
        print(f"bench: {failure}", file=sys.stderr)
        return 1
    print(report.findings_table([*report.findings(outcomes, []), *scraped]))
    if given.json:
        told: dict[str, Any] = report.as_json(outcomes, [])
        told["audit"] = {name: [asdict(each) for each in found] for name, found in kept.items()}
        told["scrapes"] = [asdict(each) for each in scraped]
        given.json.write_text(json.dumps(told, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
