"""The alert rules: promtool takes them, and each has a case in which it fires, one in which it does not, and a runbook.

The cases themselves are in `grafana/alerts/tests`; that each of them judges anything is shown by changed rules.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from grafana.src.reading import panels

from helpers.alert_rules import (
    CASES,
    GRAFANA,
    RULES,
    RUNBOOKS,
    Rule,
    alerts,
    all_rules,
    cases,
    moments,
    recorded,
    write_changed,
)
from helpers.prometheus_server import promtool, require_prometheus
from helpers.promql import strangers
from taskgate.telemetry.auditlog.catalogue import EVENTS
from taskgate.telemetry.auditlog.formats.schema import schema_text

RUNBOOK_BASE = '{{ with query "taskgate:links" }}{{ . | first | label "runbooks" }}{{ end }}'
PARTS = ["What it means", "How to check", "What to do"]
NAMES = [rule["alert"] for rule in alerts()]
LINE = orjson.loads(schema_text())
SECTIONS = dict(
    re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", RUNBOOKS.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
)


@pytest.fixture
def prometheus_installed() -> None:
    """Skips the test where promtool is not there."""
    require_prometheus()


@pytest.mark.parametrize("file", RULES, ids=lambda file: file.name)
@pytest.mark.usefixtures("prometheus_installed")
def test_a_file_of_rules_is_free_of_mistakes(file: Path) -> None:
    status, said = promtool("check", "rules", "--lint=all", "--lint-fatal", file)
    assert status == 0, said


@pytest.mark.parametrize("file", CASES, ids=lambda file: file.name)
@pytest.mark.usefixtures("prometheus_installed")
def test_the_alerts_fire_where_they_should_and_nowhere_else(file: Path) -> None:
    status, said = promtool("test", "rules", file)
    assert status == 0, said


@pytest.mark.usefixtures("prometheus_installed")
def test_the_sample_configuration_of_prometheus_is_taken_and_has_all_rules() -> None:
    status, said = promtool("check", "config", GRAFANA / "prometheus.yml")
    assert status == 0, said
    assert re.findall(r"SUCCESS: (\d+) rules found", said) == [str(len(list(_rules_of(file)))) for file in RULES]


def test_no_alert_is_there_twice() -> None:
    assert len(NAMES) == len(set(NAMES))


@pytest.mark.parametrize("name", NAMES)
def test_an_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not(name: str) -> None:
    assert {any(fires) for alert, fires in cases() if alert == name} == {True, False}


def test_every_case_is_that_of_an_alert() -> None:
    assert {alert for alert, _ in cases()} == set(NAMES)


@pytest.mark.parametrize("rule", alerts(), ids=NAMES)
def test_an_alert_says_how_bad_it_is_what_is_wrong_and_where_to_read_on(rule: Rule) -> None:
    assert rule["labels"] in [{"severity": severity} for severity in ("critical", "warning", "info")]
    notes = rule["annotations"]
    assert list(notes) == ["summary", "description", "runbook_url"]
    assert all(notes[each].endswith(".") for each in ("summary", "description"))
    assert notes["runbook_url"] == f"{RUNBOOK_BASE}#{rule['alert'].lower()}"


@pytest.mark.parametrize("rule", list(all_rules()), ids=lambda rule: rule.get("alert") or rule["record"])
def test_a_rule_reads_only_what_taskgate_exports(rule: Rule) -> None:
    assert strangers(rule["expr"], recorded()) == []


# --- the runbooks ----------------------------------------------------------------------------------------------------


def test_every_alert_has_a_runbook_and_there_is_no_other_in_the_order_of_the_files() -> None:
    assert list(SECTIONS) == NAMES


@pytest.mark.parametrize("name", SECTIONS)
def test_a_runbook_says_what_it_means_how_to_check_and_what_to_do(name: str) -> None:
    assert re.findall(r"^\*\*(.+?)\*\*", SECTIONS[name], re.MULTILINE) == PARTS
    assert "```promql" in SECTIONS[name]


@pytest.mark.parametrize(
    ("name", "query"),
    [(name, query) for name, text in SECTIONS.items() for query in re.findall(r"```promql\n(.*?)```", text, re.DOTALL)],
)
def test_a_query_of_a_runbook_reads_only_what_taskgate_exports(name: str, query: str) -> None:
    assert strangers(query, recorded()) == []


@pytest.mark.parametrize("name", SECTIONS)
def test_a_runbook_names_only_events_alerts_and_panels_that_there_are(name: str) -> None:
    text = " ".join(SECTIONS[name].split())
    assert set(re.findall(r'\.event == "([^"]+)"', text)) <= EVENTS.keys()
    assert set(re.findall(r"Taskgate[A-Z]\w+", text)) <= set(NAMES) - {name}
    for dashboard, titles in re.findall(r"dashboard `([\w-]+)`: ((?:\*[^*]+\*(?:, )?)+)", text, re.IGNORECASE):
        assert set(re.findall(r"\*([^*]+)\*", titles)) <= _titles(dashboard)


def _titles(dashboard: str) -> set[str]:
    file = GRAFANA / "dashboards" / f"{dashboard}.json"
    return {panel["title"] for panel in panels(orjson.loads(file.read_bytes()))}


@pytest.mark.parametrize(
    ("name", "line"),
    [(name, line) for name, text in SECTIONS.items() for line in re.findall(r"^jq .*$", text, re.MULTILINE)],
)
def test_a_look_into_the_audit_log_reads_what_lines_have(name: str, line: str) -> None:
    members = {path for event in re.findall(r'\.event == "([^"]+)"', line) for path in EVENTS[event].members}
    paths = [path.split(".") for path in re.findall(r"(?<![\w\]])\.([a-z_]+(?:\.[a-z_]+)*)", line)]
    assert paths, "nothing is read"
    assert [path for path in paths if not _is_in(path, LINE) and not (path[0] == "data" and path[1] in members)] == []


def _is_in(path: list[str], schema: dict[str, Any]) -> bool:
    """Whether the published schema of a line has that member; what `data` holds depends on the event."""
    inside = [schema, *schema.get("anyOf", [])]
    found = [each["properties"][path[0]] for each in inside if path[0] in each.get("properties", {})]
    return bool(found) and (len(path) == 1 or any(_is_in(path[1:], each) for each in found))


# --- each case can fail ----------------------------------------------------------------------------------------------


def _rules_of(file: Path) -> list[str]:
    return re.findall(r"^ +- (?:alert|record): (\S+)$", file.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.usefixtures("prometheus_installed")
def test_an_alert_that_never_fires_fails_every_case_in_which_it_should(tmp_path: Path) -> None:
    assert _red(tmp_path, lambda rule: {**rule, "expr": "vector(0) > 1"}) == sorted(
        name for name, fires in moments() if fires
    )


@pytest.mark.usefixtures("prometheus_installed")
def test_an_alert_that_always_fires_fails_every_case(tmp_path: Path) -> None:
    assert _red(tmp_path, lambda rule: _at_once({**rule, "expr": "vector(1)"})) == sorted(name for name, _ in moments())


@pytest.mark.usefixtures("prometheus_installed")
def test_an_alert_that_waits_has_a_case_in_which_it_does_not_fire_yet(tmp_path: Path) -> None:
    assert set(_red(tmp_path, _at_once)) == {rule["alert"] for rule in alerts() if "for" in rule}


def _at_once(rule: Rule) -> Rule:
    return {name: value for name, value in rule.items() if name != "for"}


def _red(folder: Path, change: Callable[[Rule], Rule]) -> list[str]:
    """The alerts of the cases that fail once every alert is changed like that."""
    status, said = promtool("test", "rules", *write_changed(folder, change))
    assert status == 1
    return sorted(re.findall(r"alertname: ?(\w+), time", said))
