"""What an operator wants counted is counted, from the moment the configuration says so."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import orjson
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from helpers.emitting_metrics import EmittingMetrics
from helpers.ended_requests import rpc_answered
from helpers.records import new_record
from taskgate.auth.context import ANONYMOUS, AuthContext, Identity
from taskgate.domain.record import OwnerKey
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.vocabulary import METHODS_OF_HOSTS
from taskgate.telemetry import events, request_context
from taskgate.telemetry.metrics.settings import MetricsConfig
from taskgate.telemetry.metrics.tasks import RUNNING

Moved = Callable[[], dict[str, float]]
Page = Callable[[], dict[tuple[str, tuple[tuple[str, str], ...]], float]]

OPENMETRICS = "application/openmetrics-text;version=1.0.0"
SERVED = "mcp_server_operation_duration_seconds"
TIMES = "taskgate_task_queue_wait_seconds"


@dataclass
class StubSpan:
    """As much of a span as an exemplar needs."""

    is_sampled: bool = True
    trace_id: str = "4bf92f3577b34da6a3ce929d0e0e4736"
    span_id: str = "00f067aa0ba902b7"


def visited(tool: str | None = None, tenant: str | None = None, span: Any = None) -> request_context.RequestContext:
    """The context of a request of a caller of that tenant, who calls that tool."""
    here = request_context.RequestContext("id", "192.0.2.7", "POST", "/m")
    identity = Identity(
        issuer_name="corp", issuer="i", subject="s", client_id=None, tenant=tenant, scopes=frozenset(),
        expires_at=new_record().created_at, claims={},
    )  # fmt: skip
    here.caller, here.span = AuthContext(key="c", identity=identity), span
    params = {} if tool is None else {"name": tool}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    here.message = parse(orjson.dumps(message), max_depth=9)
    return here


def wanted(configured: MetricsConfig, **changes: Any) -> MetricsConfig:
    return replace(configured, settings=replace(configured.settings, **changes))


def call(
    metrics: EmittingMetrics, here: request_context.RequestContext, listed: str | None, error: str | None = None
) -> None:
    """A call of a tool, from its beginning to its answer."""
    with request_context.in_request(here):
        metrics.emit(events.ToolCalled("m", listed, "direct"))
        answered = rpc_answered("m", "tools/call", "2025-11-25", 0.25, error)
        metrics.emit(replace(answered, message=here.message, caller=here.caller, span=here.span))


def calls(samples: Page) -> dict[tuple[str, str], float]:
    """Calls by tool and tenant."""
    found = {labels: value for (name, labels), value in samples().items() if name == "taskgate_tool_calls_total"}
    return {(dict(labels)["tool"], dict(labels)["tenant"]): value for labels, value in found.items()}


def timed(samples: Page) -> dict[str, float]:
    """Calls by the tool that their time was counted under."""
    found = {labels: value for (name, labels), value in samples().items() if name == f"{SERVED}_count"}
    return {dict(labels)["gen_ai_tool_name"]: value for labels, value in found.items()}


# --- tools ------------------------------------------------------------------------------------------------------------


def test_without_a_label_for_tools_calls_are_counted_all_the_same(
    metrics: EmittingMetrics, configured: MetricsConfig, samples: Page, moved: Moved
) -> None:
    metrics.adopt(wanted(configured, tool_label=False))
    for tool in ("sum", "sub", "a" * 129, None):
        call(metrics, visited(tool), tool)
    assert calls(samples) == {("", ""): 4}
    assert not [name for name in moved() if "overflows" in name]


def test_times_name_a_tool_where_that_is_wanted_and_a_list_named_it(
    metrics: EmittingMetrics, configured: MetricsConfig, samples: Page
) -> None:
    metrics.adopt(wanted(configured, tool_histograms=True))
    call(metrics, visited("sum"), "sum")
    call(metrics, visited("sum"), "sum", error="tool_error")
    call(metrics, visited("made-up"), None)
    metrics.emit(rpc_answered("m", "tools/list", "2025-11-25", 0.25, None))
    assert timed(samples) == {"sum": 1, "_OTHER": 1, "": 1}, "of the two of `sum` the last one found is shown"
    assert calls(samples) == {("sum", ""): 2, ("_OTHER", ""): 1}


def test_times_name_no_tool_as_it_comes(metrics: EmittingMetrics, samples: Page) -> None:
    call(metrics, visited("sum"), "sum")
    assert timed(samples) == {"": 1}


def test_times_may_name_tools_that_counters_do_not(
    metrics: EmittingMetrics, configured: MetricsConfig, samples: Page
) -> None:
    metrics.adopt(wanted(configured, tool_histograms=True, tool_label=False))
    call(metrics, visited("sum"), "sum")
    assert (timed(samples), calls(samples)) == ({"sum": 1}, {("", ""): 1})


def test_a_message_that_names_no_tool_is_a_call_of_another(
    metrics: EmittingMetrics, configured: MetricsConfig, samples: Page
) -> None:
    metrics.adopt(wanted(configured, tool_histograms=True))
    here = visited()
    here.message = None
    call(metrics, here, None)
    here.message = parse(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}}', max_depth=9)
    call(metrics, here, None)
    metrics.emit(rpc_answered("m", "tools/call", "2025-11-25", 0.25, None))
    assert timed(samples) == {"_OTHER": 3}


def test_more_tools_go_on_where_they_were_and_fewer_begin_again(
    metrics: EmittingMetrics, configured: MetricsConfig, samples: Page
) -> None:
    metrics.adopt(wanted(configured, max_tools=1))
    for tool in ("a", "b"):
        call(metrics, visited(tool), tool)
    metrics.adopt(wanted(configured, max_tools=2))
    for tool in ("a", "b", "c"):
        call(metrics, visited(tool), tool)
    assert calls(samples) == {("a", ""): 2, ("b", ""): 1, ("_OTHER", ""): 2}
    metrics.adopt(wanted(configured, max_tools=1))
    assert calls(samples) == {}
    for tool in ("b", "a"):
        call(metrics, visited(tool), tool)
    assert calls(samples) == {("b", ""): 1, ("_OTHER", ""): 1}


# --- tenants ----------------------------------------------------------------------------------------------------------


def test_listed_tenants_are_named_and_no_other(
    metrics: EmittingMetrics, configured: MetricsConfig, samples: Page, moved: Moved
) -> None:
    metrics.adopt(wanted(configured, tenants=frozenset({"acme"})))
    nobody = visited("sum")
    nobody.caller = ANONYMOUS
    for here in (visited("sum", "acme"), visited("sum", "evil"), visited("sum", None), nobody):
        call(metrics, here, "sum")
    metrics.emit(events.ToolCalled("m", "sum", "direct"))
    assert calls(samples) == {("sum", "acme"): 1, ("sum", "_OTHER"): 1, ("sum", ""): 3}
    assert not [name for name in moved() if "overflows" in name], "what the operator left out is nothing strange"


def test_tasks_are_counted_by_tenant_too(metrics: EmittingMetrics, configured: MetricsConfig, samples: Page) -> None:
    metrics.adopt(wanted(configured, tenants=frozenset({"acme"})))
    with request_context.in_request(visited("sum", "acme").for_background()):
        metrics.emit(events.TaskCreated(new_record(owner=OwnerKey("c", "m")), None))
    assert samples()["taskgate_tasks_started_total", (("tenant", "acme"), ("upstream", "reports"))] == 1


def test_a_tenant_that_is_not_listed_any_more_is_not_shown_any_more(
    metrics: EmittingMetrics, configured: MetricsConfig, samples: Page
) -> None:
    metrics.adopt(wanted(configured, tenants=frozenset({"acme", "umbrella"})))
    call(metrics, visited("sum", "umbrella"), "sum")
    metrics.adopt(wanted(configured, tenants=frozenset({"acme"})))
    assert calls(samples) == {}
    call(metrics, visited("sum", "umbrella"), "sum")
    assert calls(samples) == {("sum", "_OTHER"): 1}
    assert samples()["taskgate_tasks_started_total", (("tenant", ""), ("upstream", "reports"))] == 0


# --- buckets ----------------------------------------------------------------------------------------------------------


def test_other_buckets_begin_again_and_leave_every_other_family(
    metrics: EmittingMetrics, configured: MetricsConfig, samples: Page
) -> None:
    def buckets() -> dict[str, float]:
        return {dict(labels)["le"]: value for (name, labels), value in samples().items()
                if name == f"{TIMES}_bucket" and ("upstream", "reports") in labels}  # fmt: skip

    task = new_record(owner=OwnerKey("c", "m"))
    metrics.emit(events.TaskDispatched(task, task.ttl))
    metrics.emit(events.SessionLost("m"))
    metrics.adopt(wanted(configured, buckets={TIMES: (1.0, 5000.0)}))
    assert buckets() == {"1.0": 0, "5000.0": 0, "+Inf": 0}
    metrics.emit(events.TaskDispatched(task, task.ttl))
    assert buckets() == {"1.0": 0, "5000.0": 1, "+Inf": 1}
    metrics.adopt(wanted(configured, buckets={TIMES: (1.0, 5000.0)}))
    assert buckets() == {"1.0": 0, "5000.0": 1, "+Inf": 1}, "the same again changes nothing"
    assert samples()["taskgate_upstream_sessions_lost_total", (("upstream", "reports"),)] == 1


def test_what_begins_again_has_all_its_room_again(
    metrics: EmittingMetrics, configured: MetricsConfig, samples: Page
) -> None:
    def methods() -> set[str]:
        return {dict(labels)["mcp_method_name"] for name, labels in samples() if name == f"{SERVED}_count"}

    for error in ("-32602", "-32601"):
        for method in sorted(METHODS_OF_HOSTS):
            metrics.emit(rpc_answered("m", method, "2025-11-25", 1.0, error))
    assert "_OTHER" in methods()
    metrics.adopt(wanted(configured, buckets={SERVED: (1.0,)}))
    assert methods() == set()
    metrics.emit(rpc_answered("m", "tools/list", "2025-11-25", 1.0, "-32602"))
    assert methods() == {"tools/list"}


def test_buckets_of_the_lag_change_under_its_ticker(
    metrics: EmittingMetrics, configured: MetricsConfig, samples: Page
) -> None:
    metrics.adopt(wanted(configured, buckets={"taskgate_event_loop_lag_seconds": (1.0,)}))
    metrics.observe_lag(0.5)
    assert samples()["taskgate_event_loop_lag_seconds_bucket", (("le", "1.0"),)] == 1


# --- exemplars --------------------------------------------------------------------------------------------------------


def exemplars(metrics: EmittingMetrics) -> list[dict[str, str]]:
    page = metrics.render(OPENMETRICS)[0].decode()
    return [sample.exemplar.labels for family in parse_openmetrics(page) for sample in family.samples
            if sample.exemplar is not None]  # fmt: skip


def test_a_time_points_at_the_trace_that_it_was_taken_in(metrics: EmittingMetrics) -> None:
    span = StubSpan()
    call(metrics, visited("sum", span=span), "sum")
    with request_context.in_request(visited("sum", span=span)):
        metrics.emit(events.UpstreamAnswered("m", "tools/call", 0.1, None))
    assert exemplars(metrics) == [{"trace_id": span.trace_id, "span_id": span.span_id}] * 2


@pytest.mark.parametrize(
    ("span", "are_wanted"), [(None, True), (StubSpan(is_sampled=False), True), (StubSpan(), False)], ids=str
)
def test_there_is_nothing_to_point_at_where_nothing_is_kept(
    metrics: EmittingMetrics, configured: MetricsConfig, span: StubSpan | None, are_wanted: bool
) -> None:
    metrics.adopt(wanted(configured, exemplars=are_wanted))
    call(metrics, visited("sum", span=span), "sum")
    metrics.emit(rpc_answered("m", "tools/call", "2025-11-25", 0.25, None))
    assert exemplars(metrics) == []


def test_once_none_are_wanted_what_was_taken_before_points_at_nothing_either(
    metrics: EmittingMetrics, configured: MetricsConfig
) -> None:
    call(metrics, visited("sum", span=StubSpan()), "sum")
    assert len(exemplars(metrics)) == 1
    metrics.adopt(wanted(configured, exemplars=False))
    assert exemplars(metrics) == []


# --- none at all ------------------------------------------------------------------------------------------------------


def test_switched_off_only_what_is_so_at_the_moment_is_kept(
    metrics: EmittingMetrics, configured: MetricsConfig, samples: Page
) -> None:
    metrics.adopt(wanted(configured, enabled=False))
    assert metrics.path is None
    metrics.emit(events.StreamOpened("upstream", "get"))
    metrics.watch(RUNNING, lambda: {("m",): 3})
    call(metrics, visited("sum"), "sum")
    metrics.adopt(configured)
    assert metrics.path == "/metrics"
    shown = samples()
    assert shown["taskgate_streams", (("kind", "get"), ("side", "upstream"))] == 1
    assert shown["taskgate_tasks_running", (("upstream", "reports"),)] == 3
    assert (calls(samples), timed(samples)) == ({}, {})
    call(metrics, visited("sum"), "sum")
    assert calls(samples) == {("sum", ""): 1}


def test_the_page_is_where_the_operator_wants_it(metrics: EmittingMetrics, configured: MetricsConfig) -> None:
    metrics.adopt(wanted(configured, path="/prometheus/taskgate"))
    assert metrics.path == "/prometheus/taskgate"
