"""What a store that replicas share costs: gateways over SQLite and over a Valkey, under the same load in turn.

The command line: `python -m bench.shared [--only NAMES] [--targets NAMES] [--rounds N] [--scale F] [--json FILE]`.
Prints Markdown: rates and CPU of a task made and run, of a look at a task and of a relayed call, with rates of hosts
limited and not, as ratios to the gateway over SQLite; how many commands each takes; and how many an idle gateway sends,
alone and as one of three. Ends with 0 whether goals are met or not.
"""

import argparse
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from bench import host, report
from bench.failures import BenchFailed
from bench.measure import SESSIONS, Bench, Outcome, started_load
from bench.scenarios import SCENARIOS, Ratio, Scenario, call, task_call
from bench.serving import raise_descriptor_limit
from bench.targets import Running, started, started_stub
from bench.valkey import Listened, Valkey, started_valkey

GET_GOAL, CREATE_GOAL, IDLE_GOAL = 0.5, 0.6, 20.0
"""Rates over a Valkey, as parts of those over SQLite; and commands a second of a gateway that nobody asks anything."""
SQLITE, VALKEY, APPENDING, SYNCED = "sqlite", "valkey", "valkey, appendonly", "valkey, each write to disk"
RATED: Final = ", rates"
TARGETS: Final = (SQLITE, VALKEY, APPENDING, SYNCED, SQLITE + RATED, VALKEY + RATED)
PARTS: Final = ("create", "get", "relay", "commands", "idle")
_SETTINGS: Final = {
    VALKEY: {"appendonly": "no"},
    APPENDING: {"appendonly": "yes", "appendfsync": "everysec"},
    SYNCED: {"appendonly": "yes", "appendfsync": "always"},
}
_RATES: Final = """\
[{name: ip, scope: ip, rate: 1000000/s, burst: 1000000, before_auth: true}, \
{name: auth_failures, scope: ip, rate: 1/s, burst: 20, event: auth_failure}, \
{name: calls, scope: context, rate: 1000000/s, burst: 1000000, methods: ["tools/call"]}, \
{name: polls, scope: context, rate: 1000000/s, burst: 1000000, methods: ["tasks/*"]}]\
"""
"""As many rates as are usual, of which nobody meets one."""
_SIZES: Final = {"create": 1_500, "get": 4_000, "relay": 4_000}
_GOALS: Final = {"create": CREATE_GOAL, "get": GET_GOAL}
_SINGLES: Final = 15
"""Requests one after the other, of which each has its commands counted: most have none of another's among them."""
_IDLE: Final = 15.0
"""Seconds of one look at idle gateways: each gives some signs of life meanwhile."""
_FOX: Final = "the quick brown fox"


def scenarios() -> dict[str, Scenario]:
    """The loads of the other benchmark that are put on these gateways."""
    return {scenario.name: _over_stores(scenario) for scenario in SCENARIOS if scenario.name in _SIZES}


def _over_stores(scenario: Scenario) -> Scenario:
    """Rates of hosts are limited where that is all that the store is asked for."""
    name = scenario.name
    targets = TARGETS if name == "relay" else tuple(each for each in TARGETS if not each.endswith(RATED))
    ratios = []
    for of in targets:
        to = SQLITE + RATED if of.endswith(RATED) else SQLITE
        if of != to:
            goal = _GOALS.get(name) if of == VALKEY else None
            ratios += [Ratio(figure="rate", of=of, to=to, at_least=goal), Ratio(figure="cpu", of=of, to=to)]
    return Scenario(
        name=name,
        part="shared",
        title=scenario.title,
        targets=targets,
        connections=scenario.connections,
        count=_SIZES[name],
        method=scenario.method,
        params=scenario.params,
        marker=scenario.marker,
        ratios=tuple(ratios),
        needs_held_tasks=scenario.needs_held_tasks,
    )


def key_file(folder: Path, name: str) -> Path:
    """A key that all gateways have which share a store."""
    file = folder / f"{name}.key"
    if not file.exists():
        file.touch(mode=0o600)
        file.write_bytes(urlsafe_b64encode(os.urandom(32)))
    return file


@contextlib.contextmanager
def _gateway(
    stub: Running, folder: Path, name: str, *, sessions: int, valkey: Valkey | None, rated: bool
) -> Iterator[Running]:
    """One over that Valkey, or else over a file of its own; `folder` is of all that may share a store."""
    place = folder / name
    place.mkdir(exist_ok=True)
    parts = {"auth": f'{{mode: none, context: {{key_file: "{key_file(folder, "context")}"}}}}'}
    if rated:
        parts["rate"] = _RATES
    if valkey is not None:
        parts["store"] = valkey.section
    more = f'audit: {{hmac_key_file: "{key_file(folder, "audit")}"}}\n'
    with started("open", stub, place, sessions=sessions, more=more, parts=parts) as running:
        yield running


@contextlib.contextmanager
def _gateways(
    names: Sequence[str], stub: Running, folder: Path
) -> Iterator[tuple[dict[str, Running], dict[str, Valkey]]]:
    """A gateway for each of `names`, and the Valkeys that they need; no two share one."""
    with contextlib.ExitStack() as stack:
        running, valkeys = {}, {}
        for number, name in enumerate(names):
            own = f"gateway-{number}"
            settings = _SETTINGS.get(name.removesuffix(RATED))
            if settings is not None:
                place = folder / own
                place.mkdir()
                valkeys[name] = stack.enter_context(started_valkey(place, settings))
            running[name] = stack.enter_context(
                _gateway(stub, folder, own, sessions=SESSIONS, valkey=valkeys.get(name), rated=name.endswith(RATED))
            )
        yield running, valkeys


def _commands(
    name: str, target: Running, valkey: Valkey, stub: Running, singles: int
) -> Iterator[tuple[str, Counter[str]]]:
    """The commands of so many single requests of each kind, one request at a time."""
    heads = target.sessions[0]
    task = host.create(target.port, heads, task_call("hold", text=""))
    asked: dict[str, Callable[[], Any]] = {
        "relay": lambda: host.ask(target.port, heads, "tools/call", call("echo", text=_FOX)),
        "get": lambda: host.ask(target.port, heads, "tasks/get", {"taskId": task}),
        "create": lambda: host.create(target.port, heads, task_call("echo", text=_FOX)),
    }
    with contextlib.closing(Listened(valkey)) as listened:
        for kind, ask in asked.items():
            for _ in range(singles):
                target.program.wait_until_quiet()
                listened.take()
                ask()
                if kind == "create":
                    target.program.wait_until_quiet()
                yield f"{name}: commands of a `{kind}`", listened.take()
    host.release(stub.port)


def _counted(names: Sequence[str], stub: Running, folder: Path, *, scale: float) -> list[report.Finding]:
    """How many commands each request takes, without rates and with."""
    place = folder / "commands"
    place.mkdir()
    found: dict[str, list[float]] = {}
    singles = max(3, round(_SINGLES * scale))
    with _gateways([name for name in (VALKEY, VALKEY + RATED) if name in names], stub, place) as (running, valkeys):
        for name, target in running.items():
            for what, counted in _commands(name, target, valkeys[name], stub, singles):
                found.setdefault(what, []).append(counted.total())
    goals = {f"{VALKEY}: commands of a `get`": 1.0, f"{VALKEY + RATED}: commands of a `relay`": 1.0}
    return [report.finding(what, values, goals.get(what)) for what, values in found.items()]


def _idle(stub: Running, folder: Path, *, scale: float) -> list[report.Finding]:
    """How many commands a second one gateway sends, and each of three, while nobody asks them anything."""
    found = []
    place = folder / "idle"
    place.mkdir()
    with started_valkey(place, _SETTINGS[VALKEY]) as valkey, contextlib.ExitStack() as stack:
        for there in range(1, 4):
            one = _gateway(stub, place, f"gateway-{there}", sessions=1, valkey=valkey, rated=True)
            stack.enter_context(one)
            if there == 2:
                continue
            rates = [each / there for each in _seen_idle(valkey, _IDLE * scale)]
            what = "one idle gateway" if there == 1 else "each of three idle gateways"
            found.append(report.finding(f"{what}: commands a second", rates, IDLE_GOAL))
    return found


def _seen_idle(valkey: Valkey, seconds: float) -> list[float]:
    """Commands a second at one Valkey, three times."""
    rates = []
    with contextlib.closing(Listened(valkey)) as listened:
        for _ in range(3):
            listened.take()
            begun = time.monotonic()
            time.sleep(seconds)
            rates.append(listened.take().total() / (time.monotonic() - begun))
    return rates


def _names(known: Sequence[str], *, apart: str) -> Callable[[str], list[str]]:
    def read(text: str) -> list[str]:
        names = text.split(apart)
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; known: {apart.join(known)}")
        return names

    return read


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.shared", description="what a shared store costs")
    parts, targets = _names(PARTS, apart=","), _names(TARGETS, apart=";")
    parser.add_argument("--only", type=parts, default=list(PARTS), metavar="NAMES", help="parts, by comma")
    parser.add_argument("--targets", type=targets, default=list(TARGETS), metavar="NAMES", help="by semicolon")
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="rounds of every load")
    parser.add_argument("--scale", type=float, default=1.0, metavar="F", help="multiply every round's count")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every round's figures there")
    return parser.parse_args()


def _measure(given: argparse.Namespace, stub: Running, folder: Path) -> list[Outcome]:
    loads = [scenario for name, scenario in scenarios().items() if name in given.only]
    outcomes = []
    if loads:
        with started_load() as load, _gateways(given.targets, stub, folder) as (running, _):
            for scenario in loads:
                outcomes.append(Bench(stub, load, running).measure(scenario, rounds=given.rounds, scale=given.scale))
                print(report.outcome_table(outcomes[-1]), flush=True)
    return outcomes


def main() -> int:
    """Measure, and print."""
    given = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    raise_descriptor_limit()
    print(report.machine_line(), flush=True)
    try:
        with tempfile.TemporaryDirectory(prefix="taskgate-bench-") as place, started_stub(get_stream=False) as stub:
            folder = Path(place)
            outcomes = _measure(given, stub, folder)
            counted = _counted(given.targets, stub, folder, scale=given.scale) if "commands" in given.only else []
            counted += _idle(stub, folder, scale=given.scale) if "idle" in given.only else []
    except BenchFailed as failure:
        print(f"bench: {failure}", file=sys.stderr)
        return 1
    print(report.findings_table([*report.findings(outcomes, []), *counted]))
    if given.json:
        told = report.as_json(outcomes, [])
        told["commands"] = [{"what": each.what, "value": each.value, "verdict": each.verdict} for each in counted]
        given.json.write_text(json.dumps(told, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
