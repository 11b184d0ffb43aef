"""The dashboards keep the rules of Grafana's linter; each rule is seen to find what it is for."""

from collections.abc import Callable

import pytest
from grafana.src.reading import dashboards, panels

from helpers.dashboard_rules import (
    RULES,
    Dashboard,
    Rule,
    copy,
    panel_datasource,
    panel_targets,
    panel_units,
    panel_words,
    target_counters,
    target_job_and_instance,
    target_promql,
    target_rate_interval,
    template_datasource,
    template_job_and_instance,
    template_queries,
    uneditable,
)

ALL = dashboards()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("dashboard", ALL, ids=lambda one: one["uid"])
def test_a_dashboard_keeps_the_rule(dashboard: Dashboard, rule: Rule) -> None:
    assert list(rule(dashboard)) == []


# --- each rule can fail --------------------------------------------------------------------------------------------


def asks(expr: str) -> Callable[[Dashboard], None]:
    """Breaks a dashboard: its first panel asks that."""

    def change(dashboard: Dashboard) -> None:
        panels(dashboard)[0]["targets"][0]["expr"] = expr

    return change


def panel(**members: object) -> Callable[[Dashboard], None]:
    """Breaks a dashboard: its first panel has these members."""
    return lambda dashboard: panels(dashboard)[0].update(members)


def variable(place: int, **members: object) -> Callable[[Dashboard], None]:
    """Breaks a dashboard: that variable has these members."""
    return lambda dashboard: dashboard["templating"]["list"][place].update(members)


CHOSEN = 'job=~"$job", instance=~"$instance"'
ELSEWHERE = {"type": "prometheus", "uid": "abc"}
BROKEN = [
    (template_datasource, variable(0, name="source")),
    (template_datasource, lambda dashboard: dashboard["templating"]["list"].pop(0)),
    (template_job_and_instance, lambda dashboard: dashboard["templating"]["list"].pop(1)),
    (template_job_and_instance, variable(1, multi=False)),
    (template_job_and_instance, variable(2, allValue=".*")),
    (template_job_and_instance, variable(2, datasource=ELSEWHERE)),
    (template_queries, variable(3, query="label_names()")),
    (template_queries, variable(3, query="label_values(up{, upstream)")),
    (template_queries, variable(3, refresh=1)),
    (uneditable, lambda dashboard: dashboard.update(editable=True)),
    (panel_datasource, panel(datasource=ELSEWHERE)),
    (panel_datasource, lambda dashboard: panels(dashboard)[0]["targets"][0].update(datasource=ELSEWHERE)),
    (panel_datasource, lambda dashboard: dashboard["annotations"]["list"][0].update(datasource=ELSEWHERE)),
    (panel_words, panel(title="")),
    (panel_words, panel(description="")),
    (panel_units, panel(fieldConfig={"defaults": {}})),
    (panel_units, panel(fieldConfig={"defaults": {"unit": "seconds"}})),
    (panel_targets, panel(targets=[])),
    (target_promql, asks("rate(up[5m]")),
    (target_job_and_instance, asks('up{instance=~"$instance"}')),
    (target_job_and_instance, asks('up{job=~"$job"} / up{job=~"$job", instance=~"$instance"}')),
    (target_job_and_instance, asks('up{job="$job", instance=~"$instance"}')),
    (target_rate_interval, asks(f"rate(a_total{{{CHOSEN}}}[5m])")),
    (target_rate_interval, asks(f"rate(a_total{{{CHOSEN}}}[$__range])")),
    (target_rate_interval, asks(f"increase(a_total{{{CHOSEN}}}[1h])")),
    (target_counters, asks(f"sum (a_total{{{CHOSEN}}})")),
    (target_counters, asks(f"max_over_time(a_total{{{CHOSEN}}}[$__range])")),
]


@pytest.mark.parametrize(("rule", "change"), BROKEN, ids=lambda each: getattr(each, "__name__", ""))
def test_a_rule_finds_what_it_is_for(rule: Rule, change: Callable[[Dashboard], None]) -> None:
    dashboard = copy(ALL[0])
    change(dashboard)
    assert list(rule(dashboard))


def test_every_rule_is_seen_to_fail() -> None:
    assert {rule for rule, _ in BROKEN} == set(RULES)
