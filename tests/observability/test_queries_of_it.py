"""Whatever dashboards and alerts ask finds something in a Prometheus that has seen everything happen."""

import asyncio
from typing import Any
from xml.etree import ElementTree

import pytest
from grafana.src import preview
from grafana.src.reading import Target, Variable, dashboards, shown, targets, variables

from helpers.alert_rules import Rule, all_rules, recorded
from helpers.promql import selectors, strangers
from observability.drive import Run
from observability.reading import Archive
from taskgate.telemetry.metrics import labels

pytestmark = [pytest.mark.alone, pytest.mark.timeout(480), pytest.mark.asyncio(loop_scope="module")]

TARGETS = [target for dashboard in dashboards() for target in targets(dashboard)]
VARIABLES = [variable for dashboard in dashboards() for variable in variables(dashboard)]
RULES = list(all_rules())
OF_SUSPICIONS = {
    "enumeration_suspected": "TaskgateEnumerationSuspected",
    "cross_context_access": "TaskgateCrossContextAccess",
    "excessive_polling": "TaskgateExcessivePolling",
    "header_mismatch": "TaskgateHeaderMismatch",
    "auth_bruteforce": "TaskgateAuthBruteForce",
    "input_key_unknown": "TaskgateInputKeyUnknown",
}


def name_of(rule: Rule) -> str:
    """What a rule is called."""
    return str(rule.get("alert") or rule["record"])


@pytest.mark.parametrize("target", TARGETS, ids=str)
async def test_a_panel_has_something_to_show(archive: Archive, target: Target) -> None:
    assert await archive.found(target.expr)


@pytest.mark.parametrize("variable", VARIABLES, ids=lambda each: f"{each.dashboard} / {each.name}")
async def test_a_variable_has_something_to_choose(archive: Archive, variable: Variable) -> None:
    assert await archive.values(variable.series, variable.label)


@pytest.mark.parametrize("rule", RULES, ids=name_of)
async def test_a_rule_finds_what_it_asks_for(archive: Archive, rule: Rule) -> None:
    """What compares may well be empty while all is well; then everything that it compares must be there."""
    assert strangers(rule["expr"], recorded()) == []
    if not await archive.found(rule["expr"]):
        assert "alert" in rule, "what is recorded is always there"
        for selector in selectors(rule["expr"]):
            assert await archive.found(selector.prettify()), selector.prettify()


@pytest.mark.parametrize("kind", sorted(OF_SUSPICIONS))
async def test_a_suspicion_fires_its_alert(archive: Archive, kind: str) -> None:
    assert set(labels.SUSPICION.values or ()) == set(OF_SUSPICIONS)
    counted = await archive.found(f'taskgate_security_events_total{{type="{kind}"}} > 0')
    fired = await archive.found(f'ALERTS{{alertname="{OF_SUSPICIONS[kind]}", alertstate="firing"}}')
    assert (len(counted), len(fired)) == (1, 1)


async def test_what_did_not_happen_fires_nothing(archive: Archive) -> None:
    """Restarts are no loss of lines. What waits before it fires has not waited that long."""
    at_once = {name_of(rule) for rule in RULES if "alert" in rule and "for" not in rule}
    fired = {one["metric"]["alertname"] for one in await archive.found('ALERTS{alertstate="firing"}')}
    assert fired <= at_once - {"TaskgateAuditChainRewound"}
    assert fired >= {"TaskgateOrphanedTasks", "TaskgateAuditDropped", "TaskgateCardinalityOverflow"}


async def test_a_replica_that_lost_a_lease_and_one_that_took_tasks_over_fire_their_alert(archive: Archive) -> None:
    lost = await archive.found('ALERTS{alertname="TaskgateOrphanedTasks", alertstate="firing", kind="task"}')
    assert [one["metric"].get("upstream") for one in lost] == [None]
    taken = await archive.found('ALERTS{alertname="TaskgateOrphanedTasks", alertstate="firing", upstream="desk"}')
    by_replica = {one["metric"]["instance"] for one in taken} - await alone(archive)
    assert len(by_replica) == 1
    assert not by_replica & {one["metric"]["instance"] for one in lost}


async def alone(archive: Archive) -> set[str]:
    """The instances that shared their store with nobody."""
    return {one["metric"]["instance"] for one in await archive.found('taskgate_store_up{backend="sqlite"}')}


@pytest.mark.parametrize(
    "sign",
    [
        'taskgate_store_up{backend="redis"} == 0',
        'taskgate_ready == 0 and on (instance) taskgate_store_up{backend="redis"} == 0',
        'sum by (instance) (taskgate_rate_limit_decisions_total{decision="fail_local"}) > 0',
        'sum by (instance) (taskgate_store_operation_duration_seconds_count{operation="beat", result="error"}) > 0',
        'sum by (instance) (taskgate_store_operation_duration_seconds_count{operation="judge", result="error"}) > 0',
    ],
)
async def test_while_their_store_was_away_each_replica_showed_it_and_then_that_it_is_back(
    archive: Archive, sign: str
) -> None:
    replicas = {one["metric"]["instance"] for one in await archive.found('taskgate_store_up{backend="redis"}')}
    assert {one["metric"]["instance"] for one in await archive.found(sign)} == replicas
    ends = {one["values"][-1][1] for one in await archive.found('taskgate_store_up{backend="redis"}')}
    assert (len(replicas), ends) == (2, {"1"})


async def test_rules_are_evaluated_without_an_error(run: Run) -> None:
    assert run.wrong_rules == ()


# --- previews ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dashboard", dashboards(), ids=lambda one: one["uid"])
async def test_a_preview_shows_every_panel_of_an_open_row(archive: Archive, dashboard: dict[str, Any]) -> None:
    text = await asyncio.to_thread(preview.picture, dashboard, archive.in_preview, "a note")
    assert "nothing to show" not in text
    words = {"".join(each.itertext()) for each in ElementTree.fromstring(text).iter() if each.tag.endswith("text")}
    assert {panel["title"] for panel in shown(dashboard)} <= words
