"""What peers choose never makes a series of its own."""

from collections.abc import Callable
from datetime import timedelta
from math import prod

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from taskgate.telemetry import audit, catalogue, labels
from taskgate.telemetry.catalogue import FAMILIES, Family
from taskgate.telemetry.labels import MAX_TOOLS, Label
from taskgate.telemetry.metrics import PrometheusAudit
from taskgate.telemetry.series import Registry

Moved = Callable[[], dict[str, float]]
Page = Callable[[], dict[tuple[str, tuple[tuple[str, str], ...]], float]]

STRANGE = [
    (audit.HttpAnswered("/x", "BREW", 799, 0.0), {"http_route", "http_request_method", "http_response_status_code"}),
    (audit.HttpRefused("because"), {"reason"}),
    (audit.StreamOpened("sideways", "post"), {"side", "kind"}),
    (audit.RpcAnswered("m", "evil/method", "2031-01-01", 0.0, "-1"),
     {"mcp_method_name", "mcp_protocol_version", "error_type"}),
    (audit.UpstreamAnswered("gone", "tools/call", 0.0, None), {"upstream"}),
    (audit.ToolCalled("gone", "sum", "lost"), {"upstream", "disposition"}),
    (audit.TaskCreated("m", timedelta(), "halved"), {"action"}),
    (audit.TaskExpired("m", "asleep"), {"phase"}),
    (audit.TaskCancelAsked("m", "ignored"), {"outcome"}),
    (audit.TaskRecovered("m", "buried"), {"outcome"}),
    (audit.TaskDenied("m", "tasks/steal"), {"mcp_method_name"}),
    (audit.StoreUsed("drop table", 0.0, True), {"operation"}),
    (audit.TokenJudged("https://evil.example", "ok"), {"issuer"}),
    (audit.TokenJudged("corp", "mood"), {"reason"}),
    (audit.TokenJudged("corp", ""), {"reason"}),
    (audit.KeysFetched("gone", "ok", 1), {"issuer"}),
    (audit.KeysFetched("corp", "late", 1), {"result"}),
    (audit.AccessRefused("gone", "tools/steal", True), {"upstream", "mcp_method_name"}),
    (audit.RateJudged("mine", "galaxy", "maybe"), {"policy", "scope", "decision"}),
    (audit.CapRefused("calls", "ip"), {"policy", "scope"}),
    (audit.CallJoined("m", "luck"), {"how"}),
    (audit.SlotsUsed("gone", 1, 2, 3), {"upstream"}),
    (audit.QueueRefused("m", "mood"), {"reason"}),
    (audit.TaskPolled("m", "late"), {"result"}),
    (audit.UpstreamRetried("m", "mood"), {"reason"}),
    (audit.CircuitMoved("gone", "open"), {"upstream"}),
    (audit.ConfigReloaded("odd", 1), {"result"}),
]  # fmt: skip


@pytest.mark.parametrize(("fact", "folded"), STRANGE, ids=lambda each: repr(each)[:40])
def test_a_value_outside_its_set_is_other_and_is_counted(
    metrics: PrometheusAudit, moved: Moved, fact: audit.Fact, folded: set[str]
) -> None:
    metrics.record(fact)
    changed = moved()
    overflows = {name for name in changed if name.startswith("taskgate_metrics_label_overflows_total")}
    assert overflows == {f"taskgate_metrics_label_overflows_total{{label={label}}}" for label in folded}
    assert {label for name in changed for label in folded if f"{label}=_OTHER" in name} == folded


def test_a_strange_value_is_counted_every_time(metrics: PrometheusAudit, moved: Moved) -> None:
    for number in range(100):
        metrics.record(audit.HttpRefused(f"because {number}"))
    assert moved() == {
        "taskgate_http_rejections_total{reason=_OTHER}": 100,
        "taskgate_metrics_label_overflows_total{label=reason}": 100,
    }


def test_a_token_of_no_issuer_is_nothing_strange(metrics: PrometheusAudit, moved: Moved) -> None:
    metrics.record(audit.TokenJudged("_OTHER", "missing"))
    assert moved() == {"taskgate_auth_requests_total{issuer=_OTHER,reason=missing,result=rejected}": 1}


def test_a_strange_value_is_not_remembered() -> None:
    series = Registry().counter(catalogue.REJECTIONS)
    for reason in ("bad_host", *map(str, range(100))):
        series[reason,].inc()
    assert set(series) == {("bad_host",)}


def test_the_first_tools_of_each_upstream_have_labels_of_their_own(metrics: PrometheusAudit, moved: Moved) -> None:
    for mount in ("m", "n"):
        for number in range(MAX_TOOLS + 5):
            metrics.record(audit.ToolCalled(mount, f"{mount}{number}", "direct"))
        metrics.record(audit.ToolCalled(mount, f"{mount}0", "direct"))
    changed = moved()
    assert changed["taskgate_metrics_label_overflows_total{label=tool}"] == 10
    for mount, upstream in (("m", "reports"), ("n", "search")):
        name = "taskgate_tool_calls_total{{disposition=direct,tool={},upstream={}}}".format
        assert changed[name(f"{mount}0", upstream)] == 2
        assert changed[name(f"{mount}{MAX_TOOLS - 1}", upstream)] == 1
        assert changed[name("_OTHER", upstream)] == 5
        assert name(f"{mount}{MAX_TOOLS}", upstream) not in changed


@pytest.mark.parametrize("tool", ["a" * 129, "a\nb", "\x1b[31m", "\ud800"], ids=ascii)
def test_a_tool_with_an_unfit_name_has_no_label(metrics: PrometheusAudit, moved: Moved, tool: str) -> None:
    metrics.record(audit.ToolCalled("m", tool, "direct"))
    assert moved() == {
        "taskgate_tool_calls_total{disposition=direct,tool=_OTHER,upstream=reports}": 1,
        "taskgate_metrics_label_overflows_total{label=tool}": 1,
    }


def _bound(family: Family) -> int:
    """How many children it may have: closed sets and `_OTHER`, two upstreams, issuers and rates, the tools of each."""

    def values(label: Label) -> int:
        if label in (labels.UPSTREAM, labels.ISSUER, labels.POLICY):
            return 3
        if label is labels.TOOL:
            return 2 * MAX_TOOLS + 1
        if label is labels.FOLDED:
            return len({each.name for one in FAMILIES for each in one.labels})
        return 1 if label.values is None else len(label.values) + 1

    return prod(values(label) for label in family.labels) * max(1, len(family.buckets) + 3 if family.buckets else 1)


_KNOWN = [
    "m",
    "n",
    "calls",
    "mcp",
    "other",
    "tools/call",
    "task",
    "-32602",
    "response",
    "corp",
    "_OTHER",
    "ok",
    "alg",
    "stale",
]
_text = st.text(max_size=8) | st.sampled_from(_KNOWN)
_length = st.timedeltas(timedelta(), timedelta(days=400))
_facts = st.one_of(
    st.builds(audit.HttpAnswered, _text, _text, st.integers(), st.floats(0, 1e9)),
    st.builds(audit.HttpRefused, _text),
    st.builds(audit.StreamOpened, _text, _text),
    st.builds(audit.RpcAnswered, _text, _text, _text, st.floats(0, 1e9), st.none() | _text),
    st.builds(audit.UpstreamAnswered, _text, _text, st.floats(0, 1e9), st.none() | _text),
    st.builds(audit.ToolCalled, _text, st.none() | _text, _text),
    st.builds(audit.TaskCreated, _text, _length, st.none() | _text),
    st.builds(audit.TaskDenied, _text, _text),
    st.builds(audit.TokenJudged, _text, _text),
    st.builds(audit.KeysFetched, _text, _text, st.integers(0, 99)),
    st.builds(audit.AccessRefused, _text, _text, st.booleans()),
    st.builds(audit.EnumerationSuspected, _text),
    st.builds(audit.StoreUsed, _text, st.floats(0, 1e9), st.booleans()),
    st.builds(audit.RateJudged, _text, _text, _text),
    st.builds(audit.CapRefused, _text, _text),
    st.builds(audit.SlotsUsed, _text, st.integers(0, 99), st.integers(0, 99), st.integers(0, 99)),
    st.builds(audit.TaskPolled, _text, _text),
    st.builds(audit.PollAdvised, _text, _length),
    st.builds(audit.HealthChecked, _text, st.booleans(), st.none() | st.booleans()),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(st.lists(_facts, max_size=60))
def test_no_stream_of_facts_makes_more_series_than_the_sets_allow(
    metrics: PrometheusAudit, samples: Page, caplog: pytest.LogCaptureFixture, facts: list[audit.Fact]
) -> None:
    for fact in facts:
        metrics.record(fact)
    found: dict[str, int] = {}
    for name, _ in samples():
        family = next(each.name for each in FAMILIES if name.startswith(each.name))
        found[family] = found.get(family, 0) + 1
    assert {family.name: found.get(family.name, 0) > _bound(family) for family in FAMILIES} == dict.fromkeys(
        (family.name for family in FAMILIES), False
    )
    assert not caplog.records


def test_no_label_of_the_catalogue_is_open_but_those_that_the_gateway_itself_bounds() -> None:
    open_labels = {label.name for family in FAMILIES for label in family.labels if label.values is None}
    configured = {"upstream", "issuer", "policy", "backend"}
    assert open_labels == configured | {"version", "revision", "python_version", "tool", "label"}
