"""The story of the previews: made of what the catalogue has, the same each time, and judged by the real rules."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from example import prometheus
from grafana.src.story.archive import Moments, archived
from grafana.src.story.ledger import Ledger
from grafana.src.story.traffic import Incident, Traffic

from helpers.prometheus_server import require_prometheus

NOON = 1_791_979_200.0
INCIDENT = Incident(upstream="reports", begin=NOON + 600, end=NOON + 1200)
MOMENTS = Moments(begin=NOON, end=NOON + 1500, every=15)


def pages(seed: int = 3, incident: Incident | None = INCIDENT) -> Iterator[Iterator[str]]:
    """Twenty-five minutes, with an incident in the middle."""
    traffic = Traffic(MOMENTS.begin, seed=seed, incident=incident, day=lambda _: 1.0)
    return traffic.pages(MOMENTS.every, MOMENTS.end)


@pytest.mark.parametrize(
    ("name", "labels"), [("taskgate_no_such_total", {}), ("taskgate_tasks_started_total", {"tool": "a"})]
)
def test_a_story_tells_of_nothing_that_is_not_in_the_catalogue(name: str, labels: dict[str, str]) -> None:
    with pytest.raises(KeyError):
        Ledger().count(name, 1, **labels)


def test_a_gauge_is_not_counted() -> None:
    with pytest.raises(KeyError):
        Ledger().count("taskgate_ready")


def test_a_histogram_of_a_story_is_cumulative() -> None:
    ledger = Ledger()
    for value in (0.0005, 0.3, 99):
        ledger.observe("taskgate_event_loop_lag_seconds", value)
    page = [line.rsplit(" ", 1)[0] for line in ledger.page(NOON)]
    counts = [float(line.rsplit(" ", 1)[1]) for line in page if "_bucket" in line]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (1, 3)
    assert any("_count" in line and line.endswith(" 3") for line in page)


def test_a_story_is_the_same_each_time_it_is_told() -> None:
    one, other, another = (["".join(page) for page in pages(seed)][-1] for seed in (3, 3, 4))
    assert one == other != another


async def test_the_incident_of_a_story_is_in_prometheus_and_fires_the_alerts_of_the_project(tmp_path: Path) -> None:
    require_prometheus()
    async with archived(tmp_path, pages(), MOMENTS) as address:

        async def moments(expression: str) -> list[float]:
            times = {"start": f"{NOON}", "end": f"{MOMENTS.end}", "step": "15"}
            found = await prometheus.get(address, "/api/v1/query_range", query=expression, **times)
            return [float(moment) - NOON for one in found["result"] for moment, _ in one["values"]]

        down = await moments('taskgate_upstream_state{upstream="reports",state="down"} == 1')
        fires = await moments('ALERTS{alertname="TaskgateUpstreamDown", alertstate="firing"}')
        burns = await moments("job:taskgate_call_errors:ratio_rate5m > 0.0144")
        assert (600 <= min(down) <= 630, 1185 <= max(down) <= 1215) == (True, True)
        assert min(fires) == min(down) + 15
        # Nothing marks the end of a series that was written at once: it is seen for five minutes more.
        assert max(down) <= max(fires) <= max(down) + 300
        assert burns


async def test_what_was_before_a_story_counts_in_what_is_left_of_a_budget(tmp_path: Path) -> None:
    require_prometheus()
    rates = {"up": 1.0, "job:taskgate_calls:rate5m": 5.0, "job:taskgate_call_errors:rate5m": 0.0025}
    moments = replace(MOMENTS, begin=MOMENTS.end - 600, every=60, history=rates)
    traffic = Traffic(moments.begin, seed=3, incident=None, day=lambda _: 1.0)
    async with archived(tmp_path, traffic.pages(60, moments.end), moments) as address:
        left = 'job:taskgate_error_budget:remaining_ratio30d{objective="calls"}'
        found = await prometheus.get(address, "/api/v1/query", query=left, time=f"{moments.end}")
        assert [float(one["value"][1]) for one in found["result"]] == [pytest.approx(0.5, abs=0.01)]


async def test_a_story_without_an_incident_fires_nothing(tmp_path: Path) -> None:
    require_prometheus()
    async with archived(tmp_path, pages(incident=None), MOMENTS) as address:
        found = await prometheus.get(address, "/api/v1/series", **{"match[]": "ALERTS", "start": f"{NOON}"})
        assert found == []
