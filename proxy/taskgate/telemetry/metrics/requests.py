"""Metrics of the requests of hosts, HTTP and JSON-RPC: families and recorders."""

from typing import Final

from taskgate.protocol.messages import Request
from taskgate.protocol.vocabulary import (
    INITIALIZE,
    TASKS_CANCEL,
    TASKS_GET,
    TASKS_RESULT,
    TASKS_UPDATE,
    TOOLS_CALL,
    TOOLS_LIST,
)
from taskgate.telemetry import events
from taskgate.telemetry.metrics import labels
from taskgate.telemetry.metrics.admission import ActiveCallers
from taskgate.telemetry.metrics.families import SeriesLimits, counter, gauge, histogram
from taskgate.telemetry.metrics.registry import Recorders, Registry
from taskgate.telemetry.request_context import RequestContext
from taskgate.telemetry.ring import EventRing

# --- families --------------------------------------------------------------------------------------------------------

# The buckets of the HTTP conventions, and two for blocking calls and streams, which last longer.
_HTTP_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 60.0, 300.0)
# The buckets of the MCP conventions.
_OPERATION_SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)

# Usual answers and the failures of calls have series of their own, whatever else hosts send: an attacker cannot fold
# them into `_OTHER`.
_USUAL_ANSWERS = frozenset({("GET", 200), *(("POST", code) for code in (200, 202, 401, 429, 503))})
_USUAL_METHODS = (INITIALIZE, TOOLS_LIST, TOOLS_CALL, TASKS_GET, TASKS_RESULT, TASKS_CANCEL, TASKS_UPDATE)
_USUAL_SUCCESSES = frozenset((method, "", None) for method in _USUAL_METHODS)
# Any failure of a server is -32603 for the host.
_CALL_FAILURES = frozenset((TOOLS_CALL, "", error) for error in ("tool_error", "-32603", "429", "503"))

_VERBS = ("POST", "GET", "DELETE")
# Those of MCP; what is sent by others is refused.

HTTP_REQUESTS = histogram(
    "http_server_request_duration_seconds",
    "Requests of hosts, to the end of the answer.",
    _HTTP_SECONDS,
    labels.ROUTE,
    labels.HTTP_METHOD,
    labels.STATUS_CODE,
    limits=SeriesLimits(reserved=_USUAL_ANSWERS, own=0, shared=11),
)
ACTIVE_REQUESTS = gauge("http_server_active_requests", "Requests of hosts that are being answered now.", labels.ROUTE)
REJECTIONS = counter("taskgate_http_rejections_total", "Requests refused before they were JSON-RPC.", labels.REJECTION)
STREAMS = gauge("taskgate_streams", "Event streams open now.", labels.SIDE, labels.STREAM_KIND)
SERVER_OPERATIONS = histogram(
    "mcp_server_operation_duration_seconds",
    "JSON-RPC requests of hosts, without the time that a poll waits for the end of a new task.",
    _OPERATION_SECONDS,
    labels.UPSTREAM,
    labels.METHOD,
    labels.HISTOGRAM_TOOL,
    labels.ERROR,
    limits=SeriesLimits(reserved=_USUAL_SUCCESSES | _CALL_FAILURES, own=2, own_per_tool=2, shared=19),
)
REQUESTS_BY_PROTOCOL = counter(
    "taskgate_requests_by_protocol_total", "JSON-RPC requests of hosts, by revision.", labels.PROTOCOL
)
TOOL_CALLS = counter(
    "taskgate_tool_calls_total",
    "Tool calls by what became of them; `_OTHER` is a tool that is not listed.",
    labels.UPSTREAM,
    labels.TOOL,
    labels.TENANT,
    labels.DISPOSITION,
    limits=SeriesLimits(own=4, own_per_tool=1, shared_per_tool=3),
)
COALESCED_CALLS = counter(
    "taskgate_calls_joined_total", "Calls that got the answer of an earlier one.", labels.UPSTREAM, labels.COALESCED_BY
)

FAMILIES: Final = (
    HTTP_REQUESTS, ACTIVE_REQUESTS, REJECTIONS, STREAMS, SERVER_OPERATIONS, REQUESTS_BY_PROTOCOL, TOOL_CALLS,
    COALESCED_CALLS,
)  # fmt: skip

# --- recorders -------------------------------------------------------------------------------------------------------


def request_recorders(registry: Registry, callers: ActiveCallers, ring: EventRing) -> Recorders:
    """The recorders of the requests of hosts, of tool calls, and of event streams."""
    requests = registry.histogram(HTTP_REQUESTS)
    rejections = registry.counter(REJECTIONS)
    streams = registry.gauge(STREAMS)
    server_operations = registry.histogram(SERVER_OPERATIONS)
    protocols = registry.counter(REQUESTS_BY_PROTOCOL)
    tool_calls = registry.counter(TOOL_CALLS)
    coalesced = registry.counter(COALESCED_CALLS)
    tools, tenants, exemplars = registry.tools, registry.tenants, registry.exemplars

    def request_ended(request: RequestContext) -> None:
        method = request.method
        if method is not None:
            tool, error, span = "", request.error, request.span
            if method == TOOLS_CALL:
                if tools.has_histograms:
                    tool = tools.histogram_text(request.mount or "", _requested_tool(request))
            elif method == INITIALIZE and error is None and request.caller is not None:
                callers.session_opened(request.caller.key)
            exemplar = None if span is None else exemplars.of(span, request.rpc_seconds, ring.now)
            server_operations[request.mount, method, tool, error].observe(request.rpc_seconds, exemplar)
            protocols[request.rpc_revision,].value += 1
        if request.route is not None and request.seconds is not None:
            verb = request.verb if request.verb in _VERBS else labels.OTHER
            requests[request.route, verb, request.status or 0].observe(request.seconds)
            if request.caller is not None:
                callers.add(request.caller.key)

    def http_refused(event: events.HttpRefused) -> None:
        rejections[event.reason,].value += 1

    def stream_opened(event: events.StreamOpened) -> None:
        streams[event.side, event.kind].value += 1

    def stream_ended(event: events.StreamEnded) -> None:
        streams[event.side, event.kind].value -= 1

    def tool_called(event: events.ToolCalled, times: int = 1) -> None:
        mount, tool, disposition = event
        tenant = "" if tenants.listed is None else tenants.text()
        tool_calls.count((mount, tools.text(mount, tool, times), tenant, disposition), times)

    def call_coalesced(event: events.CallCoalesced) -> None:
        coalesced[event.mount, event.how].value += 1

    return {
        RequestContext: request_ended,
        events.HttpRefused: http_refused,
        events.StreamOpened: stream_opened,
        events.StreamEnded: stream_ended,
        events.ToolCalled: tool_called,
        events.CallCoalesced: call_coalesced,
    }


def _requested_tool(request: RequestContext) -> str:
    """The tool that the host names; a label only if `ToolLabels.text` has seen it as a listed one."""
    if not isinstance(request.message, Request):
        return ""
    name = request.message.params.get("name")
    return name.value if name is not None and isinstance(name.value, str) else ""
