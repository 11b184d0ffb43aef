"""What a dashboard may not be: the rules of Grafana's dashboard-linter, as of June 2026, said again in Python.

Each rule takes a dashboard and gives its faults; none is what one hopes for. They are those of a dashboard that asks
Prometheus alone, and hold for every type of panel, where the linter leaves some out.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import promql_parser
from grafana.src.reading import expanded, panels
from promql_parser import Call, MatchOp, MatrixSelector

from helpers.promql import nodes, selectors

Dashboard = dict[str, Any]
Rule = Callable[[Dashboard], Iterator[str]]

WINDOW, SPAN = "88699907ms", "60697707ms"
"""Durations that nobody writes by hand, to know the variables by that stand for them."""

UNITS = frozenset(("s", "bytes", "percentunit", "reqps", "cps", "ops", "short", "locale", "bool_yes_no", "bool_on_off"))
"""Those of Grafana's units that are ours: base units as they are exported, and what becomes of them."""

_VARIABLE = "${datasource}"


def template_datasource(dashboard: Dashboard) -> Iterator[str]:
    """There is one data source to choose, under the name that all dashboards have for it."""
    found = [(each["name"], each["label"], each["query"]) for each in _templates(dashboard, "datasource")]
    if found != [("datasource", "Data source", "prometheus")]:
        yield f"data sources to choose: {found}"


def template_job_and_instance(dashboard: Dashboard) -> Iterator[str]:
    """Jobs and instances are to choose, several at once, and all of them is any that has a name."""
    templates = {each["name"]: each for each in _templates(dashboard, "query")}
    for name in ("job", "instance"):
        each = templates.get(name)
        if each is None:
            yield f"no variable {name}"
        elif (each["label"], each["multi"], each["allValue"]) != (name.capitalize(), True, ".+"):
            yield f"variable {name} cannot be several, or all"
        elif each["datasource"]["uid"] != _VARIABLE:
            yield f"variable {name} is not of the chosen data source"


def template_queries(dashboard: Dashboard) -> Iterator[str]:
    """What a variable asks is `label_values` of a selector, and is asked again when another time is shown."""
    for each in _templates(dashboard, "query"):
        asked = re.fullmatch(r"label_values\((.+), \w+\)", each["query"])
        if asked is None or not _parses(expanded(asked[1])):
            yield f"variable {each['name']} asks {each['query']}"
        if each["refresh"] != 2:
            yield f"variable {each['name']} is not asked again"


def uneditable(dashboard: Dashboard) -> Iterator[str]:
    """A generated dashboard is not edited by hand."""
    if dashboard["editable"]:
        yield "it can be edited"


def panel_datasource(dashboard: Dashboard) -> Iterator[str]:
    """Panels, queries and annotations use the chosen data source."""
    for panel in panels(dashboard):
        for each in (panel, *panel["targets"]):
            if each["datasource"] != {"type": "prometheus", "uid": _VARIABLE}:
                yield f"{panel['title']}: asks {each['datasource']}"
    for mark in dashboard["annotations"]["list"]:
        if mark["datasource"]["uid"] != _VARIABLE:
            yield f"{mark['name']}: asks {mark['datasource']}"


def panel_words(dashboard: Dashboard) -> Iterator[str]:
    """A panel has a title and a description."""
    for panel in panels(dashboard):
        if not (panel["title"] and panel["description"]):
            yield f"panel {panel['id']} says too little"


def panel_units(dashboard: Dashboard) -> Iterator[str]:
    """A panel has a unit, of those that exist."""
    for panel in panels(dashboard):
        unit = panel["fieldConfig"]["defaults"].get("unit")
        if unit not in UNITS:
            yield f"{panel['title']}: unit {unit}"


def panel_targets(dashboard: Dashboard) -> Iterator[str]:
    """A panel asks something."""
    for panel in panels(dashboard):
        if not panel["targets"]:
            yield f"{panel['title']}: asks nothing"


def target_promql(dashboard: Dashboard) -> Iterator[str]:
    """What is asked is PromQL."""
    for where, expr in _asked(dashboard):
        if not _parses(expr):
            yield f"{where}: {expr}"


def target_job_and_instance(dashboard: Dashboard) -> Iterator[str]:
    """Every selector is held to the chosen jobs and instances; what rules record of a job is held to jobs alone."""
    for where, expr in _asked(dashboard, chosen={"job": "$job", "instance": "$instance"}):
        for selector in selectors(expr):
            held = [(each.name, each.value) for each in selector.matchers.matchers if each.op == MatchOp.Re]
            for name in ("job",) if ":" in (selector.name or "") else ("job", "instance"):
                if (name, f"${name}") not in held:
                    yield f"{where}: {selector.name} is of any {name}"


def target_rate_interval(dashboard: Dashboard) -> Iterator[str]:
    """Rates are taken over `$__rate_interval`; other windows are that, or the whole time shown."""
    for where, expr in _asked(dashboard):
        for node in nodes(expr):
            if isinstance(node, Call):
                for argument in node.args:
                    if isinstance(argument, MatrixSelector) and not _is_fit(node.func.name, argument):
                        yield f"{where}: {node.func.name} over a window of its own"


def target_counters(dashboard: Dashboard) -> Iterator[str]:
    """A counter is shown by its rate or its increase, never as it is."""
    for where, expr in _asked(dashboard):
        counted = [
            argument.vector_selector.name
            for node in nodes(expr)
            if isinstance(node, Call) and node.func.name in ("rate", "irate", "increase")
            for argument in node.args
            if isinstance(argument, MatrixSelector)
        ]
        for selector in selectors(expr):
            if (selector.name or "").endswith("_total") and selector.name not in counted:
                yield f"{where}: {selector.name} is not counted"


RULES: tuple[Rule, ...] = (
    template_datasource,
    template_job_and_instance,
    template_queries,
    uneditable,
    panel_datasource,
    panel_words,
    panel_units,
    panel_targets,
    target_promql,
    target_job_and_instance,
    target_rate_interval,
    target_counters,
)


def copy(dashboard: Dashboard) -> Dashboard:
    """One to break."""
    copied: Dashboard = json.loads(json.dumps(dashboard))
    return copied


def _templates(dashboard: Dashboard, kind: str) -> list[dict[str, Any]]:
    return [each for each in dashboard["templating"]["list"] if each["type"] == kind]


def _asked(dashboard: Dashboard, chosen: dict[str, str] | None = None) -> Iterator[tuple[str, str]]:
    for panel in panels(dashboard):
        for target in panel["targets"]:
            yield panel["title"], expanded(target["expr"], window=WINDOW, span=SPAN, chosen=chosen)


def _parses(expr: str) -> bool:
    try:
        promql_parser.parse(expr)
    except ValueError:
        return False
    return True


def _is_fit(function: str, window: MatrixSelector) -> bool:
    milliseconds = round(window.range.total_seconds() * 1000)
    allowed = (WINDOW,) if function in ("rate", "irate") else (WINDOW, SPAN)
    return f"{milliseconds}ms" in allowed
