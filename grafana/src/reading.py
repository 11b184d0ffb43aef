"""Reads generated dashboards back: the queries of their panels and variables, for Prometheus.

For uses without Grafana: the previews, and tests against a real Prometheus.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

FOLDER: Final = Path(__file__).parents[1] / "dashboards"

_LABEL_VALUES: Final = re.compile(r"label_values\((.+), (\w+)\)")
_VARIABLE: Final = re.compile(r"\$(\w+)")


class Target(NamedTuple):
    """One query of one panel, as it is in the file."""

    dashboard: str
    panel: str
    letter: str
    expr: str
    legend: str
    instant: bool

    def __str__(self) -> str:
        return f"{self.dashboard} / {self.panel} / {self.letter}"


class Variable(NamedTuple):
    """A variable that takes the values of a label of some series."""

    dashboard: str
    name: str
    series: str
    label: str


def dashboards() -> list[dict[str, Any]]:
    """Every committed dashboard."""
    return [json.loads(file.read_text(encoding="utf-8")) for file in sorted(FOLDER.glob("*.json"))]


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """The panels of a dashboard that have queries, in their order, with those of closed rows."""
    every = [each for panel in dashboard["panels"] for each in (panel, *panel.get("panels", []))]
    return [panel for panel in every if panel["type"] != "row"]


def shown(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """The panels that are in sight when a dashboard is opened."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def targets(dashboard: dict[str, Any]) -> Iterator[Target]:
    """Every query of a dashboard's panels, and of its annotations, whose panel is `annotations`."""
    for panel in panels(dashboard):
        for target in panel["targets"]:
            letter, expr, legend = target["refId"], target["expr"], target["legendFormat"]
            yield Target(dashboard["uid"], panel["title"], letter, expr, legend, target["instant"])
    for mark in dashboard["annotations"]["list"]:
        yield Target(dashboard["uid"], "annotations", mark["name"], mark["expr"], "", False)


def variables(dashboard: dict[str, Any]) -> Iterator[Variable]:
    """The variables of a dashboard that have a query."""
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            found = _LABEL_VALUES.fullmatch(variable["query"])
            assert found, variable["query"]
            yield Variable(dashboard["uid"], variable["name"], found[1], found[2])


def expanded(expr: str, *, window: str = "1m", span: str = "1h", chosen: Mapping[str, str] | None = None) -> str:
    """The expression without variables of Grafana.

    `window` is the rate interval, at least four scrapes; `span` the time shown. What is not chosen is everything.
    KeyError for a variable that is none of ours.
    """
    known = {"__rate_interval": window, "__range": span, "job": ".+", "instance": ".+", "upstream": ".*"}
    known |= chosen or {}
    return _VARIABLE.sub(lambda found: known[found[1]], expr)
