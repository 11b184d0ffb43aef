"""The page that is scraped: both formats, names, kinds, and what is there before anything happened."""

import platform
import re
from collections.abc import Callable

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from helpers.emitting_metrics import EmittingMetrics
from taskgate import __version__
from taskgate.telemetry.metrics.admission import PENALIZED
from taskgate.telemetry.metrics.catalogue import FAMILIES, Family, FamilyKind
from taskgate.telemetry.metrics.labels import LABEL
from taskgate.telemetry.metrics.settings import MetricsConfig
from taskgate.telemetry.metrics.tasks import RUNNING
from taskgate.telemetry.metrics.upstreams import IN_FLIGHT
from unit.telemetry.metrics.event_table import SUSPICIONS

Moved = Callable[[], dict[str, float]]
Page = Callable[[], dict[tuple[str, tuple[tuple[str, str], ...]], float]]

OPENMETRICS = "application/openmetrics-text"
PROMETHEUS = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1"


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (None, "text/plain; version=0.0.4"),
        ("", "text/plain; version=0.0.4"),
        ("text/plain", "text/plain; version=0.0.4"),
        ("*/*", "text/plain; version=0.0.4"),
        ("text/html", "text/plain; version=0.0.4"),
        (f"{OPENMETRICS};version=1.0.0", f"{OPENMETRICS}; version=1.0.0"),
        (PROMETHEUS, f"{OPENMETRICS}; version=1.0.0"),
        (f"{OPENMETRICS};version=one", "text/plain; version=0.0.4"),
        (";;;=,", "text/plain; version=0.0.4"),
    ],
)
def test_a_scraper_gets_a_format_that_it_accepts(metrics: EmittingMetrics, accept: str | None, kind: str) -> None:
    page, content_type = metrics.render(accept)
    assert content_type.startswith(kind)
    parse = parse_openmetrics if kind.startswith(OPENMETRICS) else parse_text
    assert "taskgate_build_info" in {sample.name for family in parse(page.decode()) for sample in family.samples}


def test_every_family_of_the_catalogue_is_on_the_page_with_its_kind_and_meaning(metrics: EmittingMetrics) -> None:
    found = {
        family.name: family for family in parse_openmetrics(metrics.render(f"{OPENMETRICS};version=1.0.0")[0].decode())
    }
    ours = {name for name in found if not name.startswith(("python_", "process_"))}
    assert ours == {family.name.removesuffix("_total") for family in FAMILIES}
    for family in FAMILIES:
        shown = found[family.name.removesuffix("_total")]
        assert (shown.type, shown.documentation) == (family.kind, family.meaning)


def test_the_process_and_the_interpreter_are_on_the_page(metrics: EmittingMetrics) -> None:
    page = metrics.render(None)[0].decode()
    for name in ("process_cpu_seconds_total", "python_info", "python_gc_collections_total"):
        assert f"\n# TYPE {name} " in page


def test_no_sample_tells_when_it_was_made(metrics: EmittingMetrics) -> None:
    assert "_created" not in metrics.render(f"{OPENMETRICS};version=1.0.0")[0].decode()


def test_the_build_is_shown(samples: Page) -> None:
    labels = (("python_version", platform.python_version()), ("revision", "abc123"), ("version", __version__))
    assert samples()["taskgate_build_info", labels] == 1


def test_series_of_each_upstream_are_there_before_their_first_event(samples: Page) -> None:
    shown = samples()
    for upstream in ("reports", "search"):
        for name in ("taskgate_task_late_answers_total", "taskgate_tasks_running"):
            assert shown[name, (("upstream", upstream),)] == 0
        assert shown["taskgate_tasks_started_total", (("tenant", ""), ("upstream", upstream))] == 0


def test_series_of_each_issuer_are_there_before_its_keys_are(samples: Page) -> None:
    shown = samples()
    for name in ("taskgate_jwks_keys", "taskgate_jwks_last_success_timestamp_seconds"):
        found = {labels: value for (one, labels), value in shown.items() if one == name}
        assert found == {(("issuer", "corp"),): 0, (("issuer", "partner"),): 0}


def test_security_events_are_there_before_their_first(samples: Page) -> None:
    shown = samples()
    for kind in SUSPICIONS:
        assert shown["taskgate_security_events_total", (("type", kind),)] == 0


def test_what_an_alert_waits_for_is_there_before_the_first_time(samples: Page) -> None:
    """A counter that begins with 1 has never increased."""
    shown = samples()
    begun = {
        "taskgate_task_access_denials_total": 2 * 4 * 4,
        "taskgate_audit_dropped_total": 3,
        "taskgate_jwks_refreshes_total": 2 * 3,
        "taskgate_metrics_label_overflows_total": len(LABEL.values or ()),
        "taskgate_task_recoveries_total": 2 * 2,
        "taskgate_queue_rejections_total": 2 * 2,
        "taskgate_task_expirations_total": 2 * 3,
        "taskgate_tasks_undelivered_total": 2 * 2,
    }
    for family, series in begun.items():
        assert [value for (name, _), value in shown.items() if name == family] == [0] * series


def test_what_somebody_else_counts_is_asked_for_at_every_render(metrics: EmittingMetrics, samples: Page) -> None:
    counts = [0, 2, 3]
    assert samples()["taskgate_penalized_contexts", ()] == 0
    metrics.watch(PENALIZED, lambda: {(): counts.pop()})
    assert [samples()["taskgate_penalized_contexts", ()] for _ in range(3)] == [3, 2, 0]


def test_of_what_is_asked_for_only_what_was_told_is_shown(metrics: EmittingMetrics, samples: Page) -> None:
    def shown() -> dict[tuple[tuple[str, str], ...], float]:
        return {labels: value for (name, labels), value in samples().items() if name == IN_FLIGHT.name}

    told = [{("m",): 5, ("gone",): 1}, {("n",): 2}, {}]
    metrics.watch(IN_FLIGHT, lambda: told.pop(0))
    assert [shown() for _ in range(3)] == [{(("upstream", "reports"),): 5}, {(("upstream", "search"),): 2}, {}]


def test_of_what_is_asked_for_the_series_that_are_there_from_the_start_stay(
    metrics: EmittingMetrics, samples: Page
) -> None:
    def shown() -> dict[tuple[tuple[str, str], ...], float]:
        return {labels: value for (name, labels), value in samples().items() if name == RUNNING.name}

    told = [{("m",): 5, ("gone",): 1}, {("n",): 2}]
    metrics.watch(RUNNING, lambda: told.pop(0))
    reports, search = (("upstream", "reports"),), (("upstream", "search"),)
    assert [shown() for _ in range(2)] == [{reports: 5, search: 0}, {reports: 0, search: 2}]


def test_what_cannot_be_asked_for_leaves_the_rest_of_the_page(
    metrics: EmittingMetrics, samples: Page, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> dict[tuple[str], float]:
        raise OSError("secret")

    metrics.watch(IN_FLIGHT, broken)
    assert samples()["taskgate_ready", ()] == 0
    assert [(record.message, record.family) for record in caplog.records] == [("a gauge was not read", IN_FLIGHT.name)]


def test_readiness_and_draining_are_shown(metrics: EmittingMetrics, moved: Moved) -> None:
    assert moved() == {}
    metrics.show_ready(True)
    assert moved() == {"taskgate_ready{}": 1}
    metrics.show_draining()
    assert moved() == {"taskgate_draining{}": 1}


def test_lag_is_counted(metrics: EmittingMetrics, moved: Moved) -> None:
    metrics.observe_lag(0.25)
    assert moved() == {"taskgate_event_loop_lag_seconds_count{}": 1, "taskgate_event_loop_lag_seconds_sum{}": 0.25}


def test_two_gateways_in_one_process_count_apart(metrics: EmittingMetrics, moved: Moved) -> None:
    other = EmittingMetrics(MetricsConfig(backend="memory"))
    other.show_ready(True)
    assert moved() == {}
    assert 'revision="unknown"' in other.render(None)[0].decode()


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_family_is_named_by_the_rules_of_the_format(family: Family) -> None:
    assert re.fullmatch(r"(taskgate|http_server|mcp_server|mcp_client)(_[a-z0-9]+)+", family.name)
    assert family.name.endswith("_total") is (family.kind is FamilyKind.COUNTER)
    assert not family.name.endswith(("_created", "_bucket", "_count", "_sum"))
    if family.kind is FamilyKind.HISTOGRAM:
        assert family.name.endswith(("_seconds", "_bytes", "_polls_per_task"))
        assert list(family.buckets) == sorted(set(family.buckets))
    else:
        assert family.buckets == ()
    assert family.meaning.endswith(".")
    assert len({label.name for label in family.labels}) == len(family.labels)
    assert not {label.name for label in family.labels} & {"le", "quantile", "sub", "client_id", "task_id", "session_id"}


def test_no_family_is_named_twice() -> None:
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
