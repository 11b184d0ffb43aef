"""Upstreams, issuers and rate policies come and go while the gateway runs."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from helpers.emitting_metrics import EmittingMetrics
from taskgate.telemetry import events
from taskgate.telemetry.metrics.settings import MetricsConfig

Page = Callable[[], dict[tuple[str, tuple[tuple[str, str], ...]], float]]

GAUGES = [events.ConcurrencyChanged("m", 3, 32, 5), events.HealthChecked("m", True, True),
          events.CircuitChanged("m", "open"), events.ProgramsCounted("m", 3)]  # fmt: skip
SHOWN = {"taskgate_concurrency_in_use": 3, "taskgate_concurrency_limit": 32, "taskgate_queue_depth": 5,
         "taskgate_upstream_up": 1, "taskgate_upstream_circuit_open": 1, "taskgate_upstream_processes": 3}  # fmt: skip


def adopt(metrics: EmittingMetrics, *upstreams: str, issuers: str = "corp", policies: str = "calls") -> None:
    names = dict(pair.split("=") for pair in upstreams)
    metrics.adopt(
        MetricsConfig(backend="sqlite", upstreams=names, issuers=[issuers], policies=[policies], sinks=["file"])
    )


def of(samples: Page, upstream: str) -> dict[str, float]:
    return {name: value for (name, labels), value in samples().items() if ("upstream", upstream) in labels}


def record(metrics: EmittingMetrics, *emitted: events.Event) -> None:
    for event in emitted:
        metrics.emit(event)


def test_a_new_upstream_has_its_series_at_once_and_its_events_are_counted(
    metrics: EmittingMetrics, samples: Page
) -> None:
    metrics.emit(events.SessionLost("p"))
    adopt(metrics, "m=reports", "n=search", "p=prices")
    assert of(samples, "prices")["taskgate_upstream_sessions_lost_total"] == 0
    record(metrics, events.SessionLost("p"), events.ToolCalled("p", "sum", "task"))
    assert of(samples, "prices")["taskgate_upstream_sessions_lost_total"] == 1
    labels = (("disposition", "task"), ("tenant", ""), ("tool", "sum"), ("upstream", "prices"))
    assert samples()["taskgate_tool_calls_total", labels] == 1
    assert of(samples, "_OTHER")["taskgate_upstream_sessions_lost_total"] == 1


def test_of_an_upstream_that_has_gone_counters_stay_and_gauges_vanish(metrics: EmittingMetrics, samples: Page) -> None:
    record(metrics, *GAUGES, events.SessionLost("m"), events.UpstreamRetried("m", "connect"))
    assert {name: value for name, value in of(samples, "reports").items() if name in SHOWN} == SHOWN
    others = of(samples, "search")
    adopt(metrics, "n=search")
    left = of(samples, "reports")
    assert not left.keys() & SHOWN.keys()
    assert left["taskgate_upstream_sessions_lost_total"] == left["taskgate_upstream_retries_total"] == 1
    assert of(samples, "search") == others


def test_an_extension_has_a_label_once_it_is_named_and_keeps_what_was_counted(
    metrics: EmittingMetrics, samples: Page
) -> None:
    def counted(extension: str) -> float:
        return samples().get(
            ("taskgate_extensions_denied_total", (("extension", extension), ("upstream", "reports"))), 0
        )

    denied = events.ExtensionDenied("m", "com.example/widgets")
    metrics.emit(denied)
    assert (counted("_OTHER"), counted("com.example/widgets")) == (1, 0)
    named = MetricsConfig(backend="sqlite", upstreams={"m": "reports"}, extensions=["com.example/widgets"])
    metrics.adopt(named)
    metrics.emit(denied)
    assert (counted("_OTHER"), counted("com.example/widgets")) == (1, 1)
    metrics.adopt(replace(named, extensions=[]))
    assert counted("com.example/widgets") == 1


def test_a_method_has_a_label_once_an_extension_is_named_to_have_it(metrics: EmittingMetrics, samples: Page) -> None:
    def counted(method: str) -> float:
        labels = (("error_type", ""), ("mcp_method_name", method), ("upstream", "reports"))
        return samples().get(("mcp_client_operation_duration_seconds_count", labels), 0)

    answered = events.UpstreamAnswered("m", "widgets/list", 1.0, None)
    metrics.emit(answered)
    assert (counted("_OTHER"), counted("widgets/list")) == (1, 0)
    metrics.adopt(MetricsConfig(backend="sqlite", upstreams={"m": "reports"}, methods=["widgets/list"]))
    metrics.emit(answered)
    assert (counted("_OTHER"), counted("widgets/list")) == (1, 1)


def test_what_is_still_said_of_an_upstream_that_has_gone_counts_and_shows_nothing(
    metrics: EmittingMetrics, samples: Page
) -> None:
    record(metrics, *GAUGES, events.SessionLost("m"))
    adopt(metrics, "n=search")
    record(metrics, *GAUGES, events.SessionLost("m"))
    left = of(samples, "reports")
    assert not left.keys() & SHOWN.keys()
    assert left["taskgate_upstream_sessions_lost_total"] == 2
    assert not of(samples, "_OTHER")


def test_an_upstream_that_comes_back_begins_anew_but_for_its_counters(metrics: EmittingMetrics, samples: Page) -> None:
    record(metrics, *GAUGES, events.SessionLost("m"))
    adopt(metrics, "n=search")
    adopt(metrics, "m=reports")
    shown = of(samples, "reports")
    assert shown["taskgate_tasks_running"] == shown["taskgate_upstream_circuit_open"] == 0
    assert "taskgate_upstream_up" not in shown
    record(metrics, *GAUGES, events.SessionLost("m"))
    shown = of(samples, "reports")
    assert {name: shown[name] for name in SHOWN} == SHOWN
    assert shown["taskgate_upstream_sessions_lost_total"] == 2


@pytest.mark.parametrize("still", [True, False])
def test_keys_of_an_issuer_are_shown_for_as_long_as_it_is_configured(
    metrics: EmittingMetrics, samples: Page, still: bool
) -> None:
    metrics.emit(events.KeysFetched("partner", "ok", 3))
    adopt(metrics, "m=reports", issuers="partner" if still else "corp")
    metrics.emit(events.KeysFetched("partner", "ok", 4))
    shown = {labels: value for (name, labels), value in samples().items() if name == "taskgate_jwks_keys"}
    assert shown == ({(("issuer", "partner"),): 4} if still else {(("issuer", "corp"),): 0})


def test_a_rate_policy_has_its_name_from_the_moment_it_is_configured_and_keeps_it(
    metrics: EmittingMetrics, samples: Page
) -> None:
    def counted(policy: str) -> float:
        labels = (("decision", "rejected"), ("policy", policy), ("scope", "ip"))
        return samples().get(("taskgate_rate_limit_decisions_total", labels), 0)

    metrics.emit(events.RateLimitChecked("heavy", "ip", "rejected"))
    adopt(metrics, "m=reports", policies="heavy")
    record(
        metrics, events.RateLimitChecked("heavy", "ip", "rejected"), events.RateLimitChecked("calls", "ip", "rejected")
    )
    assert [counted(policy) for policy in ("heavy", "calls", "_OTHER")] == [1, 1, 1]
