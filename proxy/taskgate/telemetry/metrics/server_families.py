"""The families about servers, and what is sent to them; see `catalogue`."""

from typing import Final

from taskgate.protocol.vocabulary import INITIALIZE, TOOLS_CALL, TOOLS_LIST
from taskgate.telemetry.metrics import labels
from taskgate.telemetry.metrics.families import ALONE, SeriesRoom, counter, gauge, histogram

# The MCP conventions' own; a server may take as long as its timeout allows, so three more follow on its side.
_SERVER_SIDE = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
_TOKEN_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

# What goes well, and what goes wrong with calls, is shown by itself whatever else happens.
_GOOD_REQUESTS = frozenset((method, None) for method in (INITIALIZE, TOOLS_LIST, TOOLS_CALL))
_BAD_CALLS = frozenset((TOOLS_CALL, fault) for fault in ("tool_error", "timeout", "unreachable"))

CALLED = histogram(
    "mcp_client_operation_duration_seconds",
    "JSON-RPC requests to upstreams.",
    _SERVER_SIDE,
    labels.UPSTREAM,
    labels.METHOD,
    labels.ERROR,
    room=SeriesRoom(kept=_GOOD_REQUESTS | _BAD_CALLS, most=0, shared=16),
)
IN_FLIGHT = gauge(
    "taskgate_upstream_requests_in_flight", "Requests that an upstream has not answered yet.", labels.UPSTREAM
)
SESSIONS_LOST = counter(
    "taskgate_upstream_sessions_lost_total", "Sessions that an upstream ended.", labels.UPSTREAM, room=ALONE
)
UP = gauge(
    "taskgate_upstream_up", "1 if the upstream is thought to be well; absent while nobody knows.", labels.UPSTREAM
)
CIRCUIT_OPEN = gauge(
    "taskgate_upstream_circuit_open",
    "1 while the upstream is left alone, or is tried after that.",
    labels.UPSTREAM,
    room=ALONE,
)
HEALTH_CHECKS = counter(
    "taskgate_upstream_health_checks_total", "Checks of an upstream's health.", labels.UPSTREAM, labels.RESULT
)
RETRIES = counter(
    "taskgate_upstream_retries_total", "Further tries of what could not leave.", labels.UPSTREAM, labels.RETRY
)
RESTARTS = counter(
    "taskgate_upstream_restarts_total",
    "Programs of an upstream that were started after one that ended by itself.",
    labels.UPSTREAM,
    labels.RESTART,
)
PROCESSES = gauge("taskgate_upstream_processes", "Programs of an upstream that run, or are about to.", labels.UPSTREAM)
CREDENTIALS = histogram(
    "taskgate_token_exchange_duration_seconds",
    "Tokens asked for, to show to an upstream.",
    _TOKEN_SECONDS,
    labels.UPSTREAM,
    labels.RESULT,
    room=SeriesRoom(most=2),
)
EXTENSIONS_DENIED = counter(
    "taskgate_extensions_denied_total",
    "Declarations of extensions that do not cross, by hosts and by upstreams.",
    labels.UPSTREAM,
    labels.EXTENSION,
    room=SeriesRoom(most=3, shared=6),
)

OF_PROGRAMS: Final = (RESTARTS, PROCESSES)
"""Of upstreams alone that are programs of ours."""

SERVERS: Final = (
    CALLED,
    IN_FLIGHT,
    SESSIONS_LOST,
    UP,
    CIRCUIT_OPEN,
    HEALTH_CHECKS,
    RETRIES,
    RESTARTS,
    PROCESSES,
    CREDENTIALS,
    EXTENSIONS_DENIED,
)
