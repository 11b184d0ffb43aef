"""A real Prometheus answers whatever the dashboards ask, and the previews are drawn from what it says.

The numbers are made up, so this shows that expressions are right by the catalogue, not that the gateway counts right.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
import pytest_asyncio
from grafana.src import preview
from grafana.src.reading import dashboards, expanded, shown, targets, variables

from helpers.dashboard_rules import Dashboard
from helpers.made_up_metrics import MadeUpMetrics
from helpers.prometheus_server import PrometheusServer, require_prometheus

ALL = dashboards()
EVERY = pytest.mark.parametrize("dashboard", ALL, ids=lambda one: one["uid"])

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def prometheus(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PrometheusServer]:
    """One that has scraped the made-up numbers until their configuration changed, and a little longer."""
    require_prometheus()
    folder: Path = tmp_path_factory.mktemp("prometheus")
    async with (
        MadeUpMetrics() as exporter,
        PrometheusServer(folder, exporter.target, interval="250ms") as server,
    ):
        await server.until("changes(taskgate_config_hash[1m]) > 0")
        await server.until('ALERTS{alertstate="firing"}')
        await server.until("count by (job) (job:taskgate_error_budget:remaining_ratio30d) == 2")
        for _ in range(3):
            await server.has_seen_all()
        yield server


@EVERY
async def test_every_query_finds_something(dashboard: Dashboard, prometheus: PrometheusServer) -> None:
    for target in targets(dashboard):
        series = await prometheus.query_range(expanded(target.expr, window="2s", span="10s"), seconds=60, step=0.2)
        assert series, target
        assert any(value != "NaN" for one in series for _, value in one["values"]), target


@EVERY
async def test_series_are_named_by_the_labels_that_they_have(
    dashboard: Dashboard, prometheus: PrometheusServer
) -> None:
    """So no two series of a panel have one name. An empty label is none."""
    for target in targets(dashboard):
        if target.panel != "annotations" and not target.instant:
            named = set(re.findall(r"\{\{(\w+)\}\}", target.legend))
            series = await prometheus.query_range(expanded(target.expr, window="2s", span="10s"), seconds=4)
            assert set().union(*(one["metric"] for one in series)) == named, target


@EVERY
async def test_every_variable_has_something_to_choose(dashboard: Dashboard, prometheus: PrometheusServer) -> None:
    for variable in variables(dashboard):
        path, asked = f"/api/v1/label/{variable.label}/values", {"match[]": expanded(variable.series)}
        assert await prometheus.get(path, **asked), variable


async def test_choosing_one_upstream_leaves_the_others_out(prometheus: PrometheusServer) -> None:
    [target, *_] = [each for each in targets(ALL[1]) if "by (upstream)" in each.expr]
    series = await prometheus.query_range(expanded(target.expr, window="2s", chosen={"upstream": "search"}))
    assert [one["metric"] for one in series] == [{"upstream": "search"}]


# --- previews ----------------------------------------------------------------------------------------------------


@EVERY
async def test_a_preview_shows_every_panel_and_says_what_it_is(
    dashboard: Dashboard, prometheus: PrometheusServer
) -> None:
    [now] = await prometheus.query("time()")
    asked = preview.Prometheus(url=prometheus.url, end=now.value, seconds=4, window="2s")
    text = await asyncio.to_thread(preview.picture, dashboard, asked, "numbers made up")
    assert "preview, drawn without Grafana; numbers made up" in text
    assert "nothing to show" not in text
    words = ["".join(each.itertext()) for each in ElementTree.fromstring(text).iter() if each.tag.endswith("text")]
    assert {panel["title"] for panel in shown(dashboard)} <= set(words)


async def test_previews_are_written_by_a_command(prometheus: PrometheusServer, tmp_path: Path) -> None:
    arguments = [prometheus.url, "--into", str(tmp_path), "--seconds", "4", "--window", "2s"]
    await asyncio.to_thread(preview.main, arguments)
    assert {file.name for file in tmp_path.iterdir()} == {f"{dashboard['uid']}.svg" for dashboard in ALL}
