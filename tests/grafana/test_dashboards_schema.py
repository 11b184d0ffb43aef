"""The dashboards by the JSON Schemas that Grafana publishes of dashboards and of queries to Prometheus.

The schemas are no part of this project; where they are not at hand the tests are skipped.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from grafana.src.reading import dashboards, panels
from jsonschema import Draft7Validator
from jsonschema.exceptions import best_match

from helpers.dashboard_rules import Dashboard, copy

PLACE = Path(__file__).parents[3] / "shared" / "spec" / "schema" / "grafana"
ALL = dashboards()


def validator(name: str) -> Draft7Validator:
    """What judges a thing of that name."""
    file = PLACE / f"{name}.jsonschema.json"
    if not file.is_file():
        pytest.skip(f"the published schema of Grafana's {name} is not here")
    return Draft7Validator(json.loads(file.read_bytes()))


@pytest.mark.parametrize("dashboard", ALL, ids=lambda one: one["uid"])
def test_a_dashboard_is_one_by_the_published_schema(dashboard: Dashboard) -> None:
    fault = best_match(validator("dashboard").iter_errors(dashboard))
    assert fault is None, f"{fault.message} at {list(fault.absolute_path)}"


@pytest.mark.parametrize("dashboard", ALL, ids=lambda one: one["uid"])
def test_a_query_is_one_by_the_published_schema(dashboard: Dashboard) -> None:
    judge = validator("prometheus")
    faults = [best_match(judge.iter_errors(target)) for panel in panels(dashboard) for target in panel["targets"]]
    assert [fault.message for fault in faults if fault is not None] == []


@pytest.mark.parametrize("change", [{"refreshes": "30s"}, {"graphTooltip": 7}, {"panels": [{"type": 1}]}])
def test_the_schema_sees_what_is_none(change: dict[str, Any]) -> None:
    assert list(validator("dashboard").iter_errors(copy(ALL[0]) | change))
