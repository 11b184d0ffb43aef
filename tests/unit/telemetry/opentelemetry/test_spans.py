"""What a span says of what comes to be known while it lasts, and how it ends."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from helpers.manual_clock import EPOCH, ManualClock
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import Request
from taskgate.telemetry.opentelemetry.tracer import OpenTelemetryTracing
from taskgate.telemetry.request_context import RequestContext, in_request

Ended = Callable[[], list[ReadableSpan]]
Make = Callable[..., OpenTelemetryTracing]

PLACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
NANOSECONDS = 10**9


def begun(tracing: OpenTelemetryTracing) -> Any:
    message = parse(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add"}}', max_depth=64)
    assert isinstance(message, Request)
    return tracing.start_server_span(message, mount="reports", revision=None, fields=())


def test_it_lasts_as_long_as_the_stopwatch_says(make: Make, ended: Ended, clock: ManualClock) -> None:
    """The time of day may be set meanwhile; what was long stays long."""
    span = begun(make())
    clock.advance(timedelta(seconds=2.5))
    clock.set_wall(EPOCH)
    span.end()
    (span,) = ended()
    assert span.start_time == round(EPOCH.timestamp() * 1000) * 1_000_000
    assert span.end_time is not None
    assert span.end_time - span.start_time == 2.5 * NANOSECONDS


def test_it_tells_where_it_is_as_the_header_does(make: Make) -> None:
    span = begun(make())
    assert (len(span.trace_id), len(span.span_id), span.is_sampled) == (32, 16, True)
    # Kept, and random to its last bit.
    assert span.traceparent == f"00-{span.trace_id}-{span.span_id}-03"
    assert span.tracestate is None
    span.end()


def test_it_is_named_for_a_tool_that_is_listed(make: Make, ended: Ended) -> None:
    span = begun(make())
    span.set_tool("add")
    span.set_attribute("taskgate.disposition", "direct")
    span.end()
    (span,) = ended()
    assert span.name == "tools/call add"
    assert (span.attributes or {})["gen_ai.tool.name"] == "add"
    assert (span.attributes or {})["taskgate.disposition"] == "direct"


def test_a_task_is_told_in_a_form_that_nobody_can_use(make: Make, ended: Ended) -> None:
    for task_ref in (lambda task: f"t_{len(task)}", None):
        span = begun(make(task_ref=task_ref))
        span.set_task("secret")
        span.end()
    told = [(span.attributes or {}).get("taskgate.task.ref") for span in ended()]
    assert told == ["t_6", None]


def test_it_points_at_what_is_a_place(make: Make, ended: Ended) -> None:
    span = begun(make())
    span.add_link(PLACE)
    span.add_link("no place")
    span.end()
    assert [f"{link.context.span_id:016x}" for link in ended()[0].links] == [PLACE[36:52]]


@pytest.mark.parametrize(
    ("error", "code"),
    [("-32603", "-32603"), ("429", "429"), ("tool_error", None), ("timeout", None)],
)
def test_an_error_is_told_by_its_kind(make: Make, ended: Ended, error: str, code: str | None) -> None:
    begun(make()).end(error)
    (span,) = ended()
    attributes = span.attributes or {}
    assert (span.status.status_code, attributes["error.type"]) == (StatusCode.ERROR, error)
    assert attributes.get("rpc.response.status_code") == code


def test_what_went_well_has_no_status(make: Make, ended: Ended) -> None:
    begun(make()).end()
    (span,) = ended()
    assert span.status.status_code is StatusCode.UNSET
    assert "error.type" not in (span.attributes or {})


def test_at_its_end_it_tells_what_its_request_knows(make: Make, ended: Ended) -> None:
    request_context = RequestContext("v", "127.0.0.1", "POST", "/")
    with in_request(request_context):
        request_context.span = begun(make())
        request_context.revision, request_context.refusal = "2026-07-28", "rate"
        request_context.span.end("429")
    attributes = ended()[0].attributes or {}
    assert (attributes["mcp.protocol.version"], attributes["taskgate.refusal"]) == ("2026-07-28", "rate")


def test_and_nothing_that_another_request_knows(make: Make, ended: Ended) -> None:
    request_context = RequestContext("v", "127.0.0.1", "POST", "/")
    request_context.revision, request_context.refusal = "2026-07-28", "rate"
    with in_request(request_context):
        begun(make()).end()
    request_context.revision = "made up"
    with in_request(request_context):
        request_context.span = begun(make())
        request_context.span.end()
    for span in ended():
        assert "mcp.protocol.version" not in (span.attributes or {})


def test_of_one_that_is_over_nothing_more_is_said(make: Make, ended: Ended, caplog: pytest.LogCaptureFixture) -> None:
    """The call of a task goes on behind the request that made it, and with it what is said there."""
    span = begun(make(task_ref=str))
    span.end()
    span.set_tool("add")
    span.set_attribute("a", 1)
    span.set_task("task")
    span.add_link(PLACE)
    span.end("timeout")
    (only,) = ended()
    assert (only.name, only.links, only.status.status_code) == ("tools/call", (), StatusCode.UNSET)
    assert caplog.records == []
