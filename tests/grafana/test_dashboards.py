"""The dashboards: committed as they are generated, alike in what all have, and made of what the catalogue has."""

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
from grafana.src import thresholds
from grafana.src.__main__ import FOLDER, main, written
from grafana.src.board import Board
from grafana.src.boards import BOARDS
from grafana.src.boards.health import EXPIRED_TASKS, FAILED_TASKS, OUR_ERRORS
from grafana.src.links import SERIES, console, link
from grafana.src.reading import dashboards, expanded, panels, shown, targets, variables
from grafana.src.thresholds import Bound
from grafana.src.words import CODES, renames
from promql_parser import BinaryExpr, NumberLiteral

from helpers.alert_rules import RUNBOOKS, alerts, all_rules, recorded
from helpers.dashboard_rules import Dashboard
from helpers.promql import family_of, nodes, selectors, strangers
from taskgate.telemetry.metrics.catalogue import FAMILIES
from taskgate.telemetry.metrics.labels import ERROR, STATUS_CODE, Label

ALL = dashboards()
BOUNDS = [each for each in vars(thresholds).values() if isinstance(each, Bound)]
FOREIGN = {"by (generation)", "by (objective)", "by (alertname)"}
"""Labels of Python's own families, of recorded series and of alerts."""
PARTS = ["**Shows:** ", "**Normal:** ", "**Otherwise:** "]


def each_dashboard(function: object) -> object:
    return pytest.mark.parametrize("dashboard", ALL, ids=lambda one: one["uid"])(function)


# --- the files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_the_committed_file_is_what_is_generated_now(board: Board) -> None:
    assert (FOLDER / f"{board.uid}.json").read_text(encoding="utf-8") == written(board)


def test_there_is_a_file_for_each_dashboard_and_no_other() -> None:
    assert {file.stem for file in FOLDER.glob("*.json")} == {board.uid for board in BOARDS}


def test_generating_writes_every_file(tmp_path: Path) -> None:
    main(tmp_path)
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {
        file.name: file.read_text() for file in FOLDER.glob("*.json")
    }


def test_the_addresses_of_the_dashboards_never_change() -> None:
    """People keep them, and the dashboards of an older release are replaced by those of the same uid."""
    names = ("overview", "tasks", "security", "limits", "upstreams", "runtime")
    assert [board.uid for board in BOARDS] == [f"taskgate-{name}" for name in names]


@each_dashboard
def test_what_newer_releases_of_grafana_do_not_know_is_left_out(dashboard: Dashboard) -> None:
    assert "style" not in dashboard
    assert [each["name"] for each in dashboard["templating"]["list"] if "id" in each] == []


# --- what all have -----------------------------------------------------------------------------------------------


@each_dashboard
def test_a_dashboard_shows_the_last_hour_anew_every_half_minute_with_one_crosshair(dashboard: Dashboard) -> None:
    assert dashboard["time"] == {"from": "now-1h", "to": "now"}
    assert (dashboard["refresh"], dashboard["graphTooltip"], dashboard["tags"]) == ("30s", 1, ["taskgate", "mcp"])


@each_dashboard
def test_a_dashboard_leads_to_the_others_with_the_time_and_the_variables_that_are_chosen(dashboard: Dashboard) -> None:
    [others] = dashboard["links"]
    assert (others["type"], others["tags"], others["asDropdown"]) == ("dashboards", ["taskgate", "mcp"], True)
    assert others["keepTime"]
    assert others["includeVars"]


@each_dashboard
def test_a_dashboard_lets_one_choose_source_jobs_instances_and_upstreams(dashboard: Dashboard) -> None:
    assert [each["name"] for each in dashboard["templating"]["list"]] == [
        *("datasource", "job", "instance", "upstream"),
        *("runbooks", "console"),
    ]


@each_dashboard
def test_the_addresses_of_links_are_no_choice_but_read_from_the_one_series_that_has_them(dashboard: Dashboard) -> None:
    hidden = [each for each in dashboard["templating"]["list"] if each.get("hide") == 2]
    assert [each["query"] for each in hidden] == [f"label_values({SERIES}, {each['name']})" for each in hidden]
    [rule] = [rule for rule in all_rules() if rule.get("record") == SERIES]
    assert rule["labels"].keys() == {each["name"] for each in hidden}


@each_dashboard
def test_a_dashboard_marks_changes_of_configuration_and_release_and_alerts(dashboard: Dashboard) -> None:
    assert [mark["name"] for mark in dashboard["annotations"]["list"]] == [
        "Configuration changed",
        "Another release",
        "Alert fires",
    ]


@each_dashboard
def test_panels_stand_under_headings_do_not_overlap_and_fill_their_rows(dashboard: Dashboard) -> None:
    assert dashboard["panels"][0]["type"] == "row"
    taken = [
        (x, y)
        for each in dashboard["panels"]
        for x in range(each["gridPos"]["x"], each["gridPos"]["x"] + each["gridPos"]["w"])
        for y in range(each["gridPos"]["y"], each["gridPos"]["y"] + each["gridPos"]["h"])
    ]
    assert len(taken) == len(set(taken))
    assert {x for x, _ in taken} == set(range(24))
    assert len(taken) == 24 * (1 + max(y for _, y in taken))


@each_dashboard
def test_panels_have_numbers_and_titles_of_their_own(dashboard: Dashboard) -> None:
    numbers = [each["id"] for top in dashboard["panels"] for each in (top, *top.get("panels", []))]
    assert all(after == before + 1 for before, after in pairwise(numbers))
    titles = [panel["title"] for panel in panels(dashboard)]
    assert len(titles) == len(set(titles))


# --- what panels say ---------------------------------------------------------------------------------------------


@each_dashboard
def test_a_panel_tells_what_it_shows_what_is_normal_and_what_to_do_otherwise(dashboard: Dashboard) -> None:
    for panel in panels(dashboard):
        parts = panel["description"].split("\n\n")
        assert [part.startswith(word) for part, word in zip(parts, PARTS, strict=True)] == [True] * 3, panel["title"]
        assert all(part.endswith(".") and len(part) > len(word) + 1 for part, word in zip(parts, PARTS, strict=True))


@each_dashboard
def test_a_panel_leads_to_a_section_of_the_runbook(dashboard: Dashboard) -> None:
    sections = re.findall(r"^## (\S+)$", RUNBOOKS.read_text(encoding="utf-8"), re.MULTILINE)
    for panel in panels(dashboard):
        [runbook] = panel["links"]
        alert = runbook["title"].removeprefix("Runbook: ")
        assert alert in sections, panel["title"]
        assert runbook["url"] == link(alert)


@each_dashboard
def test_a_series_leads_to_the_console_and_to_the_next_dashboard(dashboard: Dashboard) -> None:
    uids = {each["uid"] for each in ALL}
    for panel in panels(dashboard):
        if panel["type"] in ("table", "heatmap"):
            continue
        *boards, last = [each["url"] for each in panel["fieldConfig"]["defaults"]["links"]]
        assert last == console()
        for url in boards:
            assert url.split("?")[0].removeprefix("/d/") in uids - {dashboard["uid"]}
            by_upstream = all("{{upstream}}" in target["legendFormat"] for target in panel["targets"])
            assert ("var-upstream=${__field.labels.upstream}" in url) is by_upstream, panel["title"]


def test_every_row_of_the_overview_leads_to_another_dashboard() -> None:
    for panel in panels(ALL[1]):
        assert len(panel["fieldConfig"]["defaults"]["links"]) == 2, panel["title"]


@each_dashboard
def test_lines_have_their_last_and_their_largest_value_beside_their_name(dashboard: Dashboard) -> None:
    for panel in panels(dashboard):
        if panel["type"] == "timeseries":
            legend = panel["options"]["legend"]
            assert (legend["displayMode"], legend["calcs"]) == ("table", ["lastNotNull", "max"])


@each_dashboard
def test_rows_of_features_that_are_off_are_closed_and_stand_below_the_others(dashboard: Dashboard) -> None:
    rows = [each for each in dashboard["panels"] if each["type"] == "row"]
    closed = [each["collapsed"] for each in rows]
    assert closed == sorted(closed)
    assert all(bool(each["panels"]) is each["collapsed"] for each in rows)
    assert len(shown(dashboard)) == len(panels(dashboard)) - sum(len(each["panels"]) for each in rows)


def test_calls_errors_and_their_duration_are_in_the_first_row() -> None:
    first = [panel.title for panel in BOARDS[0].rows[0].panels]
    assert {"Calls", "Error ratio", "Call duration, p95"} <= set(first)


@pytest.mark.parametrize("label", [ERROR, STATUS_CODE], ids=lambda label: label.name)
def test_every_code_of_a_label_has_words(label: Label) -> None:
    texts = set((label.values or {}).values())
    assert CODES[label.name].keys() == {text for text in texts if re.fullmatch(r"-?\d+", text)}


@pytest.mark.parametrize(
    ("legend", "name", "shown"),
    [
        ("{{error_type}}", "-32603", "-32603 no answer of the server"),
        ("{{upstream}} {{error_type}}", "reports 429", "reports 429 limit"),
        ("{{upstream}} {{error_type}}", "reports timeout", "reports timeout"),
        ("{{http_response_status_code}}", "401", "401 no valid token"),
        ("{{upstream}}", "429", "429"),
    ],
)
def test_a_code_in_a_legend_has_its_words_beside_it(legend: str, name: str, shown: str) -> None:
    for rename in renames(legend):
        name = re.sub(rename.pattern, rename.name.replace("$", "\\"), name)
    assert name == shown


# --- lines -------------------------------------------------------------------------------------------------------


def compared_with(expression: str) -> list[float]:
    """The numbers that an expression compares with; a product of numbers is one number."""
    compared = [node.rhs for node in nodes(expression) if isinstance(node, BinaryExpr) and str(node.op) in "><==>=<="]
    return [number for side in compared for number in _numbers(side)]


def _numbers(side: object) -> list[float]:
    if isinstance(side, NumberLiteral):
        return [side.val]
    if isinstance(side, BinaryExpr):
        left, right = _numbers(side.lhs), _numbers(side.rhs)
        both = isinstance(side.lhs, NumberLiteral) and isinstance(side.rhs, NumberLiteral)
        return [left[0] * right[0]] if both else left + right
    return []


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: bound.alert)
def test_a_line_is_drawn_where_its_alert_fires(bound: Bound) -> None:
    [alert] = [each for each in alerts() if each["alert"] == bound.alert]
    assert any(number == pytest.approx(bound.value) for number in compared_with(alert["expr"])), alert["expr"]


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: bound.alert)
def test_every_line_is_drawn_in_some_panel(bound: Bound) -> None:
    drawn = [panel.bound for board in BOARDS for row in board.rows for panel in row.panels]
    assert bound in drawn


def test_what_counts_as_an_error_is_the_same_in_panels_and_alerts() -> None:
    rules = {rule.get("record"): rule["expr"] for rule in all_rules()}
    assert OUR_ERRORS in rules["job:taskgate_call_errors:rate5m"]
    assert FAILED_TASKS in rules["job:taskgate_task_failures:rate5m"]
    assert EXPIRED_TASKS in rules["job:taskgate_task_failures:rate5m"]


def test_the_budgets_of_panels_and_alerts_are_those_of_the_recorded_objectives() -> None:
    """14.4 times the budget is a fast burn, 6 times a slow one."""
    rules = [rule for rule in all_rules() if rule.get("record") == "job:taskgate_error_budget:remaining_ratio30d"]
    budgets = {rule["labels"]["objective"]: float(rule["expr"].split("/")[-1]) for rule in rules}
    [burn] = [panel for row in BOARDS[0].rows for panel in row.panels if panel.title == "Error budget burn rate"]
    assert {ask.legend: float(ask.expr.split("/")[-1]) for ask in burn.asks} == budgets
    for kind, objective in (("Error", "calls"), ("Task", "tasks")):
        for pace, times in (("Fast", 14.4), ("Slow", 6)):
            [alert] = [each for each in alerts() if each["alert"] == f"Taskgate{kind}Budget{pace}Burn"]
            assert compared_with(alert["expr"])[:2] == pytest.approx([times * budgets[objective]] * 2)


@pytest.mark.parametrize(
    ("expression", "numbers"),
    [("a > 14.4 * 0.001", [0.0144]), ("a > 0.8 * b or rate(c[5m]) > 0", [0.8, 0]), ("a == 1", [1]), ("a / 2", [])],
)
def test_the_numbers_that_an_alert_compares_with_are_found(expression: str, numbers: list[float]) -> None:
    assert compared_with(expression) == pytest.approx(numbers)


# --- what panels ask ---------------------------------------------------------------------------------------------


@each_dashboard
def test_a_panel_asks_for_nothing_that_is_not_in_the_catalogue(dashboard: Dashboard) -> None:
    found = {str(target): set(strangers(expanded(target.expr), recorded())) - FOREIGN for target in targets(dashboard)}
    assert {target: names for target, names in found.items() if names} == {}


@each_dashboard
def test_a_panel_asks_for_the_chosen_upstreams_where_series_are_told_apart_by_them(dashboard: Dashboard) -> None:
    for target in targets(dashboard):
        for selector in selectors(expanded(target.expr, chosen={"upstream": "$upstream"})):
            family = family_of(selector.name or "")
            has = family is not None and "upstream" in [label.name for label in family.labels]
            held = [each.value for each in selector.matchers.matchers if each.name == "upstream"]
            assert (held[:1] == ["$upstream"]) is has, target


def test_every_family_of_the_catalogue_is_shown_somewhere() -> None:
    exprs = [expanded(target.expr) for dashboard in ALL for target in targets(dashboard)]
    shown = {family_of(selector.name or "") for expr in exprs for selector in selectors(expr)}
    assert [family.name for family in FAMILIES if family not in shown] == []


@each_dashboard
def test_a_variable_asks_for_nothing_that_is_not_in_the_catalogue(dashboard: Dashboard) -> None:
    for variable in variables(dashboard):
        if variable.series == SERIES:
            continue
        assert strangers(expanded(variable.series)) == []
        assert strangers(f"sum by ({variable.label}) ({expanded(variable.series)})") == []


def test_a_variable_of_grafana_that_nobody_knows_is_refused() -> None:
    with pytest.raises(KeyError):
        expanded("rate(up[$__interval])")


def test_a_dashboard_is_valid_json_that_repeats_no_key() -> None:
    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        assert len(pairs) == len(dict(pairs))
        return dict(pairs)

    for file in FOLDER.glob("*.json"):
        json.loads(file.read_text(encoding="utf-8"), object_pairs_hook=once)
