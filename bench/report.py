"""The report: Markdown for people, JSON for programs.

Figures are medians over rounds; a ratio is taken within each round first, then its median and range are shown.
"""

import importlib.metadata
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from typing import Any

from bench import serving
from bench.measure import Outcome, Sample
from bench.memory import GOALS, TASK_GOAL, Held
from bench.scenarios import Ratio
from bench.start import GOALS as START_GOALS
from bench.start import Starts
from bench.waiters import GOALS_FROM, MIB_GOAL, P99_GOAL, Waited
from taskgate.system.event_loop import loop_factory, name_of

_COLUMNS = {"cpu": "{:.1f}", "rate": "{:,.0f}", "p50": "{:.2f}", "p99": "{:.2f}", "load_cpu": "{:.1f}"}
_LEAST_KIB = 0.001  # a few held calls may find room in memory that was there before
FIGURES = {"cpu": "CPU", "rate": "rate", "p50": "p50", "p99": "p99"}
_UNITS = {"cpu": "µs", "rate": "a second", "p50": "ms", "p99": "ms"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A ratio (or a difference, or for memory per task a size) over all rounds, and its goal."""

    what: str
    value: float
    low: float
    high: float
    at_most: float | None
    at_least: float | None = None

    @property
    def goal(self) -> str:
        """The goal in words; empty without one."""
        if self.at_most is not None:
            return f"≤ {self.at_most:g}"
        return "" if self.at_least is None else f"≥ {self.at_least:g}"

    @property
    def verdict(self) -> str:
        """Whether the goal is met; empty without a goal."""
        if not self.goal:
            return ""
        most = inf if self.at_most is None else self.at_most
        least = -inf if self.at_least is None else self.at_least
        return "met" if least <= self.value <= most else "missed"


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
    versions = {name: importlib.metadata.version(name) for name in ("aiohttp", "orjson", "taskgate")}
    cpu = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    made = loop_factory(serving.loop())()
    loop = name_of(made)
    made.close()
    python = f"{platform.python_implementation()} {platform.python_version()}"
    cores = len(os.sched_getaffinity(0))
    return {"python": python, "cores": cores, "cpu": cpu, "kernel": platform.release(), "loop": loop, **versions}


def finding(what: str, values: Sequence[float], at_most: float | None, *, at_least: float | None = None) -> Finding:
    """Those figures, one of each round, with their median and its goal."""
    middle = statistics.median(values)
    return Finding(what=what, value=middle, low=min(values), high=max(values), at_most=at_most, at_least=at_least)


def _ratio(outcome: Outcome, ratio: Ratio) -> Finding:
    pairs = zip(outcome.samples[ratio.of], outcome.samples[ratio.to], strict=True)
    figures = [(getattr(above, ratio.figure), getattr(below, ratio.figure)) for above, below in pairs]
    what = f"{outcome.scenario.name}: {FIGURES[ratio.figure]}"
    if ratio.absolute:
        what = f"{what} {_UNITS[ratio.figure]}, {ratio.of} - {ratio.to} (depends on the machine)"
        return finding(what, [above - below for above, below in figures], ratio.at_most)
    quotients = [above / below for above, below in figures]
    return finding(f"{what}, {ratio.of} / {ratio.to}", quotients, ratio.at_most, at_least=ratio.at_least)


def findings(
    outcomes: Sequence[Outcome],
    held: Sequence[Held],
    waited: Sequence[Waited] = (),
    starts: Sequence[Starts] = (),
) -> list[Finding]:
    """Every ratio whose two sides were measured, and what was found of starts and of waiters."""
    found = [
        _ratio(outcome, ratio)
        for outcome in outcomes
        for ratio in outcome.scenario.ratios
        if ratio.of in outcome.samples and ratio.to in outcome.samples
    ]
    by_target = {(one.kind, one.target): one for one in held}
    for (kind, target), one in by_target.items():
        if target != "taskgate":
            continue
        other = by_target[kind, "bare" if kind == "call" else "least"]
        values = [above / max(below, _LEAST_KIB) for above, below in zip(one.kib, other.kib, strict=True)]
        found.append(
            finding(f"memory per held {kind}: taskgate / {other.target}", values, GOALS.get((kind, other.target)))
        )
        if kind == "task":
            found.append(finding("memory per held task: taskgate, KiB", one.kib, TASK_GOAL))
    found += [
        finding(f"{one.target}: {name}", values, START_GOALS[name])
        for one in starts
        for name, values in one.figures.items()
    ]
    return [*found, *(each for one in waited for each in _waiting(one))]


def _waiting(waited: Waited) -> list[Finding]:
    judged = waited.count >= GOALS_FROM
    what = f"{waited.count:,} running tasks and as many waiters: taskgate"
    return [
        finding(f"{what}, MiB resident", waited.mib, MIB_GOAL if judged else None),
        finding(f"{what}, p99 of `tasks/get` in ms", waited.p99, P99_GOAL if judged else None),
    ]


def _median(samples: Sequence[Sample], figure: str) -> float:
    return statistics.median(getattr(sample, figure) for sample in samples)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "--:|" * (len(heads) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def outcome_table(outcome: Outcome) -> str:
    """One scenario's figures."""
    rows = [
        [name, *(form.format(_median(samples, figure)) for figure, form in _COLUMNS.items())]
        for name, samples in outcome.samples.items()
    ]
    rounds = len(next(iter(outcome.samples.values())))
    title = f"{outcome.scenario.name}: {outcome.scenario.title} ({rounds} rounds of {outcome.count:,})"
    heads = ("target", "CPU µs", "requests/s", "p50 ms", "p99 ms", "load's CPU µs")
    return f"#### {title}\n\n{_table(heads, rows)}\n"


def memory_table(held: Sequence[Held]) -> str:
    """The memory figures."""
    rows = [[f"{one.count:,} held {one.kind}s", one.target, f"{one.median:.1f}"] for one in held]
    return f"#### memory\n\n{_table(('held', 'target', 'KiB each'), rows)}\n"


def waiters_table(waited: Waited) -> str:
    """What was found while hosts waited."""
    figures = (waited.mib, waited.p50, waited.p99)
    row = [f"{waited.count:,}", f"{waited.count:,}", *(f"{statistics.median(figure):.2f}" for figure in figures)]
    heads = ("running tasks", "waiters", "MiB resident", "`tasks/get` p50 ms", "p99 ms")
    return f"#### waiters ({len(waited.mib)} rounds)\n\n{_table(heads, [row])}\n"


def findings_table(found: Sequence[Finding]) -> str:
    """Ratios and goals."""
    rows = [
        [
            one.what,
            f"{one.value:.2f}",
            f"{one.low:.2f}-{one.high:.2f}",
            one.goal,
            one.verdict,
        ]
        for one in found
    ]
    return f"#### ratios\n\n{_table(('what', 'median', 'range', 'goal', ''), rows)}\n"


def machine_line() -> str:
    """The machine in one sentence."""
    seen = machine()
    versions = ", ".join(f"{name} {seen[name]}" for name in ("aiohttp", "orjson", "taskgate"))
    python = f"{seen['python']} on {seen['loop']}"
    return f"{python}, {versions}; {seen['cores']} cores of {seen['cpu']}; Linux {seen['kernel']}; loopback.\n"


def as_json(
    outcomes: Sequence[Outcome],
    held: Sequence[Held],
    waited: Sequence[Waited] = (),
    starts: Sequence[Starts] = (),
) -> dict[str, Any]:
    """Everything that was measured, round by round."""
    return {
        "machine": machine(),
        "scenarios": {
            outcome.scenario.name: {
                "title": outcome.scenario.title,
                "count": outcome.count,
                "samples": {name: [asdict(sample) for sample in given] for name, given in outcome.samples.items()},
            }
            for outcome in outcomes
        },
        "memory": [asdict(one) for one in held],
        "waiters": [asdict(one) for one in waited],
        "starts": [asdict(one) for one in starts],
        "ratios": [{**asdict(one), "verdict": one.verdict} for one in findings(outcomes, held, waited, starts)],
    }
