"""What peers choose never makes a series of its own."""

from collections.abc import Callable
from functools import partial

import pytest

from helpers.emitting_metrics import EmittingMetrics
from helpers.ended_requests import http_answered, rpc_answered
from taskgate.protocol.vocabulary import METHODS_OF_HOSTS
from taskgate.telemetry import events
from taskgate.telemetry.metrics.catalogue import FAMILIES
from taskgate.telemetry.metrics.families import UNKNOWN_BUDGET
from taskgate.telemetry.metrics.labels import STORE_OPERATION
from taskgate.telemetry.metrics.registry import Registry
from taskgate.telemetry.metrics.requests import REJECTIONS, SERVER_OPERATIONS
from taskgate.telemetry.metrics.settings import MetricsConfig
from taskgate.wiring.measured_stores import MeasuredLeases, MeasuredRates, MeasuredStore
from unit.telemetry.metrics.event_table import TASK

Moved = Callable[[], dict[str, float]]

STRANGERS = [
    (http_answered("/x", "BREW", 799, 0.0), {"http_route", "http_request_method", "http_response_status_code"}),
    (events.HttpRefused("because"), {"reason"}),
    (events.StreamOpened("sideways", "post"), {"side", "kind"}),
    (rpc_answered("m", "evil/method", "2031-01-01", 0.0, "-1"),
     {"mcp_method_name", "mcp_protocol_version", "error_type"}),
    (events.UpstreamAnswered("gone", "tools/call", 0.0, None), {"upstream"}),
    (events.ToolCalled("gone", "sum", "lost"), {"upstream", "disposition"}),
    (events.TaskCreated(TASK, "halved"), {"action"}),
    (events.TaskExpired(TASK, "asleep"), {"phase"}),
    (events.TaskCancelRequested(TASK, "ignored"), {"outcome"}),
    (events.TaskRecovered(TASK, "buried"), {"outcome"}),
    (events.TaskDenied("m", "tasks/steal", "mood", "id", None), {"mcp_method_name", "reason"}),
    (events.InputSettled(TASK, "key", "poem", "burnt"), {"kind", "outcome"}),
    (events.SuspicionRaised("mood", "m"), {"type"}),
    (events.AuditEventRecorded("gateway.sang", "applause"), {"event", "outcome"}),
    (events.AuditLinesDropped("gone", "queue_full", 1), {"sink"}),
    (events.AuditLinesDropped("file", "mood", 1), {"reason"}),
    (events.StoreUsed("drop table", 0.0, True), {"operation"}),
    (events.TokenChecked("https://evil.example", "ok"), {"issuer"}),
    (events.TokenRecognized("https://evil.example"), {"issuer"}),
    (events.TokenChecked("corp", "mood"), {"reason"}),
    (events.TokenChecked("corp", ""), {"reason"}),
    (events.KeysFetched("gone", "ok", 1), {"issuer"}),
    (events.KeysFetched("corp", "late", 1), {"result"}),
    (events.AccessRefused("gone", "tools/steal", True), {"upstream", "mcp_method_name"}),
    (events.RateLimitChecked("mine", "galaxy", "maybe"), {"policy", "scope", "decision"}),
    (events.RateLimitAllowed("mine", "galaxy"), {"policy", "scope"}),
    (events.CapRefused("calls", "ip"), {"policy", "scope"}),
    (events.CallCoalesced("m", "luck"), {"how"}),
    (events.ConcurrencyChanged("gone", 1, 2, 3), {"upstream"}),
    (events.QueueRefused("m", "mood"), {"reason"}),
    (events.TaskPolled("m", "late"), {"result"}),
    (events.UpstreamRetried("m", "mood"), {"reason"}),
    (events.ProgramRestarted("m", "mood"), {"reason"}),
    (events.ExtensionDenied("m", "com.example/mood"), {"extension"}),
    (events.CircuitChanged("gone", "open"), {"upstream"}),
    (events.ConfigReloaded("odd", 1), {"result"}),
]  # fmt: skip


def named(each: events.Event | set[str]) -> str:
    """The same in every process, whatever order a set has there."""
    return repr(sorted(each) if isinstance(each, set) else each)[:40]


@pytest.mark.parametrize(("event", "folded"), STRANGERS, ids=named)
def test_a_value_outside_its_set_is_other_and_is_counted(
    metrics: EmittingMetrics, moved: Moved, event: events.Event, folded: set[str]
) -> None:
    metrics.emit(event)
    changed = moved()
    overflows = {name for name in changed if name.startswith("taskgate_metrics_label_overflows_total")}
    assert overflows == {f"taskgate_metrics_label_overflows_total{{label={label}}}" for label in folded}
    assert {label for name in changed for label in folded if f"{label}=_OTHER" in name} == folded


def test_a_strange_value_is_counted_every_time(metrics: EmittingMetrics, moved: Moved) -> None:
    for number in range(100):
        metrics.emit(events.HttpRefused(f"because {number}"))
    assert moved() == {
        "taskgate_http_rejections_total{reason=_OTHER}": 100,
        "taskgate_metrics_label_overflows_total{label=reason}": 100,
    }


@pytest.mark.parametrize(
    ("event", "label"),
    [
        (events.RateLimitAllowed("gone", "context"), "policy"),
        (events.TaskPolled("gone", "changed"), "upstream"),
        (events.ToolCalled("m", "a" * 129, "direct"), "tool"),
        (events.AuditEventRecorded("gone", "success"), "event"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_strange_value_of_equal_events_is_counted_every_time(
    metrics: EmittingMetrics, moved: Moved, event: events.Event, label: str
) -> None:
    for _ in range(3):
        metrics.emit(event)
    assert moved()[f"taskgate_metrics_label_overflows_total{{label={label}}}"] == 3


def test_a_token_of_no_issuer_is_nothing_strange(metrics: EmittingMetrics, moved: Moved) -> None:
    metrics.emit(events.TokenChecked("_OTHER", "missing"))
    assert moved() == {"taskgate_auth_requests_total{issuer=_OTHER,reason=missing,result=rejected}": 1}


def test_a_strange_value_is_not_remembered() -> None:
    series = Registry(()).counter(REJECTIONS)
    for reason in ("bad_host", *map(str, range(100))):
        series[reason,].value += 1
    assert set(series) == {("bad_host",)}


def test_the_first_tools_of_each_upstream_have_labels_of_their_own(
    metrics: EmittingMetrics, moved: Moved, configured: MetricsConfig
) -> None:
    most = configured.settings.max_tools
    for mount in ("m", "n"):
        for number in range(most + 5):
            metrics.emit(events.ToolCalled(mount, f"{mount}{number}", "direct"))
        metrics.emit(events.ToolCalled(mount, f"{mount}0", "direct"))
    changed = moved()
    assert changed["taskgate_metrics_label_overflows_total{label=tool}"] == 10
    for mount, upstream in (("m", "reports"), ("n", "search")):
        name = "taskgate_tool_calls_total{{disposition=direct,tenant=,tool={},upstream={}}}".format
        assert changed[name(f"{mount}0", upstream)] == 2
        assert changed[name(f"{mount}{most - 1}", upstream)] == 1
        assert changed[name("_OTHER", upstream)] == 5
        assert name(f"{mount}{most}", upstream) not in changed


@pytest.mark.parametrize("tool", ["a" * 129, "a\nb", "\x1b[31m", "\ud800"], ids=ascii)
def test_a_tool_with_an_unfit_name_has_no_label(metrics: EmittingMetrics, moved: Moved, tool: str) -> None:
    metrics.emit(events.ToolCalled("m", tool, "direct"))
    assert moved() == {
        "taskgate_tool_calls_total{disposition=direct,tenant=,tool=_OTHER,upstream=reports}": 1,
        "taskgate_metrics_label_overflows_total{label=tool}": 1,
    }


def test_of_names_that_nobody_configured_there_are_few_series(metrics: EmittingMetrics, moved: Moved) -> None:
    for method in sorted(METHODS_OF_HOSTS):
        metrics.emit(events.UpstreamAnswered("gone", method, 1.0, None))
    name = "mcp_client_operation_duration_seconds_count"
    counts = {key: value for key, value in moved().items() if key.startswith(name)}
    others = "error_type=,mcp_method_name=_OTHER,upstream=_OTHER"
    assert (len(counts), counts[f"{name}{{{others}}}"]) == (
        UNKNOWN_BUDGET.own + 1,
        len(METHODS_OF_HOSTS) - UNKNOWN_BUDGET.own,
    )


def test_faults_that_are_too_many_for_their_upstream_are_one_and_successes_stay(
    metrics: EmittingMetrics, moved: Moved
) -> None:
    """Whoever provokes every error that there is hides neither how long calls take nor why they fail."""
    for method in sorted(METHODS_OF_HOSTS):
        for error in ("-32600", "-32601", "-32602", "403"):
            metrics.emit(rpc_answered("m", method, "2025-11-25", 1.0, error))
    metrics.emit(rpc_answered("m", "tasks/get", "2025-11-25", 1.0, None))
    metrics.emit(rpc_answered("m", "tools/call", "2025-11-25", 1.0, "-32603"))
    metrics.emit(rpc_answered("n", "tasks/get", "2025-11-25", 1.0, "429"))
    name = "mcp_server_operation_duration_seconds_count"
    counts = {key: value for key, value in moved().items() if key.startswith(name)}
    reports = [value for key, value in counts.items() if "upstream=reports" in key]
    own, shared = SERVER_OPERATIONS.limits.own or 0, SERVER_OPERATIONS.limits.shared
    # What is for all upstreams together is used up by whoever comes first.
    most = own + shared
    assert (len(reports), sum(reports)) == (most + 3, 4 * len(METHODS_OF_HOSTS) + 2)
    labels = "error_type={},gen_ai_tool_name=,mcp_method_name={},upstream={}".format
    for shown in (("", "tasks/get", "reports"), ("-32603", "tools/call", "reports"), ("429", "tasks/get", "search")):
        assert counts[f"{name}{{{labels(*shown)}}}"] == 1
    assert moved()["taskgate_metrics_label_overflows_total{label=error_type}"] == sum(reports) - most - 2


@pytest.mark.parametrize(
    ("name", "event"),
    [
        ("mcp_server_operation_duration_seconds", partial(rpc_answered, "m", revision=None)),
        ("mcp_client_operation_duration_seconds", partial(events.UpstreamAnswered, "m")),
    ],
    ids=["hosts", "servers"],
)
def test_what_went_well_is_no_error_though_there_is_no_room_for_it(
    metrics: EmittingMetrics, moved: Moved, name: str, event: Callable[..., events.Event]
) -> None:
    """Else whoever uses the room up makes alerts of errors fire, and nothing was wrong."""
    for method in sorted(METHODS_OF_HOSTS):
        for error in ("-32600", "-32601", "-32602", "403"):
            metrics.emit(event(method=method, seconds=1.0, error=error))
    before = moved()
    for method in sorted(METHODS_OF_HOSTS):
        metrics.emit(event(method=method, seconds=1.0, error=None))
    new = {key: value - before.get(key, 0) for key, value in moved().items() if key.startswith(f"{name}_count")}
    assert sum(value for key, value in new.items() if "error_type=," in key) == len(METHODS_OF_HOSTS)
    assert not any(value for key, value in new.items() if "error_type=," not in key)


def test_whoever_leaves_before_an_answer_has_no_status_and_is_no_overflow(
    metrics: EmittingMetrics, moved: Moved
) -> None:
    metrics.emit(http_answered("mcp", "POST", 0, 0.1))
    labels = "http_request_method=POST,http_response_status_code=,http_route=mcp"
    assert moved()[f"http_server_request_duration_seconds_count{{{labels}}}"] == 1
    assert not any("overflows" in key for key in moved())


def test_every_operation_of_a_store_that_is_timed_has_a_label() -> None:
    """`changed` waits on purpose; some count as others; the rest ends it."""
    verbs = {**vars(MeasuredStore), **vars(MeasuredRates), **vars(MeasuredLeases)}
    does = {name for name, verb in verbs.items() if not name.startswith("_") and callable(verb)}
    counted_as_others = {"recall", "referred", "transitions", "scan", "verify"}
    assert set(STORE_OPERATION.values or ()) == does - counted_as_others - {"changed", "close", "part"}


def test_no_label_of_the_catalogue_is_open_but_those_that_the_gateway_itself_bounds() -> None:
    open_labels = {label.name for family in FAMILIES for label in family.labels if label.values is None}
    configured = {"upstream", "issuer", "policy", "backend", "sink", "tenant"}
    assert open_labels == configured | {"version", "revision", "python_version", "tool", "gen_ai_tool_name"}
