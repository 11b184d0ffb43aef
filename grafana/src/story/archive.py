"""`archived`: a Prometheus that has a story, with what the recording and alert rules of the project make of it.

`promtool` writes the blocks. Rules are evaluated by asking Prometheus for each of their moments, since
it evaluates none of the past itself.
"""

import asyncio
import json
import math
import subprocess
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode
from urllib.request import urlopen

from example import prometheus
from example.processes import running
from ruamel.yaml import YAML

ALERTS: Final = Path(__file__).parents[2] / "alerts"
_ANSWER_WITHIN: Final = 120.0
_HISTORY: Final = 30 * 86400
_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """The times of a story, in seconds since 1970: scrapes and rules come `every` so many seconds."""

    begin: float
    end: float
    every: float
    history: Mapping[str, float] = field(default_factory=dict)
    """What recording rules had of the 30 days before, each the same at all times."""


@asynccontextmanager
async def archived(folder: Path, pages: Iterable[Iterable[str]], moments: Moments) -> AsyncIterator[str]:
    """The address of such a Prometheus, for the length of the block. Raises PrometheusMissing."""
    await asyncio.to_thread(_keep, folder, chain(_before(moments), (line for page in pages for line in page)))
    known: set[str] = set()
    rules = [*_rules()]
    recorded = {rule["record"] for rule in rules if "record" in rule}
    while recorded - known:
        ready = [
            rule
            for rule in rules
            if "record" in rule
            and rule["record"] not in known
            and not any(name in rule["expr"] for name in recorded - known)
        ]
        await _evaluate(folder, ready, moments)
        known |= {rule["record"] for rule in ready}
    await _evaluate(folder, [rule for rule in rules if "alert" in rule], moments)
    async with _served(folder) as address:
        yield address


def _before(moments: Moments) -> Iterator[str]:
    for place in range(int(_HISTORY / moments.every) if moments.history else 0):
        moment = moments.begin - _HISTORY + place * moments.every
        for name, value in moments.history.items():
            yield f"{_series(name, {'job': 'taskgate'})} {value} {moment}\n"


def _rules() -> Iterator[dict[str, Any]]:
    for file in sorted(ALERTS.glob("*.yml")):
        for group in YAML(typ="safe").load(file)["groups"]:
            yield from group["rules"]


async def _evaluate(folder: Path, rules: list[dict[str, Any]], moments: Moments) -> None:
    lines: list[str] = []
    async with _served(folder) as address:
        for rule in rules:
            for one in await asyncio.to_thread(_asked, address, rule["expr"], moments):
                lines += _samples(rule, one, moments.every)
    await asyncio.to_thread(_keep, folder, lines)


def _asked(address: str, expr: str, moments: Moments) -> list[dict[str, Any]]:
    """The series of an expression at the moments. A budget of 30 days takes Prometheus some seconds."""
    times = {"start": moments.begin, "end": moments.end, "step": moments.every}
    url = f"http://{address}/api/v1/query_range?{urlencode({'query': expr, **times})}"
    with urlopen(url, timeout=_ANSWER_WITHIN) as answer:
        found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
    return found


def _samples(rule: dict[str, Any], one: dict[str, Any], every: float) -> Iterator[str]:
    labels = {name: value for name, value in one["metric"].items() if name != "__name__"} | rule.get("labels", {})
    if "record" in rule:
        for moment, value in one["values"]:
            if math.isfinite(float(value)):
                yield f"{_series(rule['record'], labels)} {value} {moment}\n"
        return
    wait = float(str(rule.get("for", "0s"))[:-1]) * _UNITS[str(rule.get("for", "0s"))[-1]]
    name = _series("ALERTS", labels | {"alertname": rule["alert"], "alertstate": "firing"})
    since = before = -math.inf
    for moment, _ in one["values"]:
        since = since if moment - before <= every * 1.5 else moment
        before = moment
        if moment - since >= wait:
            yield f"{name} 1 {moment}\n"


def _series(name: str, labels: dict[str, str]) -> str:
    return f"{name}{{{','.join(f'{label}={json.dumps(value)}' for label, value in sorted(labels.items()))}}}"


def _keep(folder: Path, lines: Iterable[str]) -> None:
    """Adds samples to what is there already."""
    file = folder / "samples.txt"
    with file.open("w", encoding="utf-8") as text:
        text.writelines(lines)
        text.write("# EOF\n")
    command: list[str | Path] = [prometheus.program("promtool"), "tsdb", "create-blocks-from"]
    command += ["--max-block-duration=744h", "openmetrics", "-q"]
    subprocess.run([*command, file, folder / "blocks"], check=True, capture_output=True)  # noqa: S603
    file.unlink()


@asynccontextmanager
async def _served(folder: Path) -> AsyncIterator[str]:
    config = folder / "prometheus.yml"
    config.write_text("{}", encoding="utf-8")
    command = [*prometheus.command(config, folder / "blocks"), "--storage.tsdb.retention.time=100y"]
    async with running(command, log=folder / "prometheus.log") as child:
        async with asyncio.timeout(60):
            address = (await child.said(prometheus.LISTENS))[1].decode()
            await child.said(rb"Server is ready")
        yield address
