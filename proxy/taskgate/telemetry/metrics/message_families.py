"""The families about the process, its configuration, and the requests of hosts; see `catalogue`."""

from typing import Final

from taskgate.protocol.vocabulary import (
    INITIALIZE,
    TASKS_CANCEL,
    TASKS_GET,
    TASKS_RESULT,
    TASKS_UPDATE,
    TOOLS_CALL,
    TOOLS_LIST,
)
from taskgate.telemetry.metrics import labels
from taskgate.telemetry.metrics.families import SeriesRoom, beginning, counter, gauge, histogram

# The HTTP conventions' own; a blocking call and a stream outlast their last bound, so two more follow.
_HTTP_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 60.0, 300.0)
# The MCP conventions' own.
_HOST_SIDE = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_LAG_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)

_MAIN = (INITIALIZE, TOOLS_LIST, TOOLS_CALL, TASKS_GET, TASKS_RESULT, TASKS_CANCEL, TASKS_UPDATE)
# What goes well, and what goes wrong with calls, is shown by itself whatever hosts send: no stranger is to hide it.
_ANSWERS = frozenset({("GET", 200), *(("POST", code) for code in (200, 202, 401, 429, 503))})
_GOOD_REQUESTS = frozenset((method, "", None) for method in _MAIN)
# A failure of its server is -32603 to a host, whatever it was.
_FAULTS = ("tool_error", "-32603", "429", "503")
_BAD_CALLS = frozenset((TOOLS_CALL, "", fault) for fault in _FAULTS)

# --- the process -----------------------------------------------------------------------------------------------------

BUILD = gauge("taskgate_build_info", "What is running; always 1.", labels.VERSION, labels.REVISION, labels.PYTHON)
READY = gauge("taskgate_ready", "1 if the gateway last said that it is ready, to a probe or at a scrape.")
DRAINING = gauge("taskgate_draining", "1 from the moment the gateway begins to shut down.")
LAG = histogram("taskgate_event_loop_lag_seconds", "How late a ticker of 250 ms came.", _LAG_SECONDS)
OVERFLOWS = counter(
    "taskgate_metrics_label_overflows_total",
    "Values that became `_OTHER`, by label.",
    labels.FOLDED,
    room=beginning(()),
)

CONFIG_LOADED = gauge(
    "taskgate_config_last_reload_successful", "1 if the configuration was taken over when it was last read."
)
CONFIG_LOADED_AT = gauge(
    "taskgate_config_last_reload_success_timestamp_seconds", "When that was last so; 0 before the first."
)
CONFIG_HASH = gauge("taskgate_config_hash", "A number of 48 bits that is the same for the same configuration in force.")
CONFIG_RELOADS = counter("taskgate_config_reloads_total", "Times that the configuration was read again.", labels.RELOAD)

PROCESS: Final = (
    BUILD,
    READY,
    DRAINING,
    LAG,
    OVERFLOWS,
    CONFIG_LOADED,
    CONFIG_LOADED_AT,
    CONFIG_HASH,
    CONFIG_RELOADS,
)

# --- messages --------------------------------------------------------------------------------------------------------

HTTP = histogram(
    "http_server_request_duration_seconds",
    "Requests of hosts, each to the end of its answer.",
    _HTTP_SECONDS,
    labels.ROUTE,
    labels.VERB,
    labels.CODE,
    room=SeriesRoom(kept=_ANSWERS, most=0, shared=11),
)
ACTIVE_REQUESTS = gauge("http_server_active_requests", "Requests of hosts that are being answered now.", labels.ROUTE)
REJECTIONS = counter("taskgate_http_rejections_total", "Requests refused before they were JSON-RPC.", labels.REJECTION)
STREAMS = gauge("taskgate_streams", "Event streams open now.", labels.SIDE, labels.STREAM)
SERVED = histogram(
    "mcp_server_operation_duration_seconds",
    "JSON-RPC requests of hosts.",
    _HOST_SIDE,
    labels.UPSTREAM,
    labels.METHOD,
    labels.TIMED_TOOL,
    labels.ERROR,
    room=SeriesRoom(kept=_GOOD_REQUESTS | _BAD_CALLS, most=2, per_tool=2, shared=19),
)
PROTOCOLS = counter("taskgate_requests_by_protocol_total", "JSON-RPC requests of hosts, by revision.", labels.PROTOCOL)
TOOL_CALLS = counter(
    "taskgate_tool_calls_total",
    "What became of calls of tools; `_OTHER` is a tool not listed.",
    labels.UPSTREAM,
    labels.TOOL,
    labels.TENANT,
    labels.DISPOSITION,
    room=SeriesRoom(most=4, per_tool=1, shared_per_tool=3),
)
JOINED = counter(
    "taskgate_calls_joined_total", "Calls that were answered by an earlier one.", labels.UPSTREAM, labels.JOIN
)

MESSAGES: Final = (HTTP, ACTIVE_REQUESTS, REJECTIONS, STREAMS, SERVED, PROTOCOLS, TOOL_CALLS, JOINED)
