"""The alert rules and their cases, as the files in grafana/alerts have them, and rules to judge the cases by."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import orjson
from ruamel.yaml import YAML

GRAFANA = Path(__file__).parents[2] / "grafana"
RULES = sorted((GRAFANA / "alerts").glob("*.yml"))
CASES = sorted((GRAFANA / "alerts" / "tests").glob("*.yml"))
RUNBOOKS = GRAFANA / "runbooks.md"

Rule = dict[str, Any]


@cache
def load(file: Path) -> Any:
    """What a file of YAML says; it is everybody's, and nobody's to change."""
    return YAML(typ="safe").load(file)


def all_rules() -> Iterator[Rule]:
    """Every rule, in the order of the files."""
    for file in RULES:
        for group in load(file)["groups"]:
            yield from group["rules"]


def alerts() -> list[Rule]:
    """The rules that alert."""
    return [rule for rule in all_rules() if "alert" in rule]


def recorded() -> set[str]:
    """The series that rules record."""
    return {rule["record"] for rule in all_rules() if "record" in rule}


def cases() -> Iterator[tuple[str, list[bool]]]:
    """The alert of each case, and for each moment that is looked at whether it fires then."""
    for file in CASES:
        for case in load(file)["tests"]:
            [alert] = {expected["alertname"] for expected in case["alert_rule_test"]}
            yield alert, [bool(expected["exp_alerts"]) for expected in case["alert_rule_test"]]


def moments() -> Iterator[tuple[str, bool]]:
    """Each moment of each case: the alert, and whether it fires."""
    for alert, fires in cases():
        yield from ((alert, each) for each in fires)


def write_changed(folder: Path, change: Callable[[Rule], Rule]) -> list[Path]:
    """Writes all rules, each alert changed, and their cases into a folder; returns the files of the cases."""
    (folder / "tests").mkdir()
    for file in RULES:
        content = deepcopy(load(file))
        for group in content["groups"]:
            group["rules"] = [change(rule) if "alert" in rule else rule for rule in group["rules"]]
        (folder / file.name).write_bytes(orjson.dumps(content))
    return [_copied(file, folder / "tests") for file in CASES]


def _copied(file: Path, folder: Path) -> Path:
    (folder / file.name).write_bytes(file.read_bytes())
    return folder / file.name
