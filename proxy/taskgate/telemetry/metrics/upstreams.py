"""Metrics of upstreams: the requests to servers, their health and programs; families and recorders."""

from typing import Final

from taskgate.protocol.vocabulary import INITIALIZE, TOOLS_CALL, TOOLS_LIST
from taskgate.telemetry import events, request_context
from taskgate.telemetry.metrics import labels
from taskgate.telemetry.metrics.families import FROM_START, SeriesLimits, counter, gauge, histogram
from taskgate.telemetry.metrics.registry import Recorders, Registry
from taskgate.telemetry.ring import EventRing

# --- families --------------------------------------------------------------------------------------------------------

# The buckets of the MCP conventions, and three for servers with a long timeout.
_OPERATION_SECONDS = (
    0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0,
)  # fmt: skip
_TOKEN_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

# Usual successes and the failures of calls have series of their own, whatever else happens.
_USUAL_SUCCESSES = frozenset((method, None) for method in (INITIALIZE, TOOLS_LIST, TOOLS_CALL))
_CALL_FAILURES = frozenset((TOOLS_CALL, error) for error in ("tool_error", "timeout", "unreachable"))

CLIENT_OPERATIONS = histogram(
    "mcp_client_operation_duration_seconds",
    "JSON-RPC requests to upstreams.",
    _OPERATION_SECONDS,
    labels.UPSTREAM,
    labels.METHOD,
    labels.ERROR,
    limits=SeriesLimits(reserved=_USUAL_SUCCESSES | _CALL_FAILURES, own=0, shared=16),
)
IN_FLIGHT = gauge(
    "taskgate_upstream_requests_in_flight", "Requests that an upstream has not answered yet.", labels.UPSTREAM
)
SESSIONS_LOST = counter(
    "taskgate_upstream_sessions_lost_total", "Sessions that an upstream ended.", labels.UPSTREAM, limits=FROM_START
)
UP = gauge(
    "taskgate_upstream_up",
    "1 if the upstream is healthy by its checks or its programs; absent while unknown.",
    labels.UPSTREAM,
)
STATE = gauge(
    "taskgate_upstream_state",
    "1 for the state of the upstream, from its calls and checks; 0 for the others.",
    labels.UPSTREAM,
    labels.UPSTREAM_STATE,
)
CIRCUIT_OPEN = gauge(
    "taskgate_upstream_circuit_open",
    "1 while the circuit breaker of the upstream is open or half open.",
    labels.UPSTREAM,
    limits=FROM_START,
)
HEALTH_CHECKS = counter(
    "taskgate_upstream_health_checks_total", "Checks of an upstream's health.", labels.UPSTREAM, labels.RESULT
)
RETRIES = counter(
    "taskgate_upstream_retries_total",
    "Retries of requests that could not be sent.",
    labels.UPSTREAM,
    labels.RETRY_REASON,
)
RESTARTS = counter(
    "taskgate_upstream_restarts_total",
    "Programs of an upstream that replaced one which ended by itself.",
    labels.UPSTREAM,
    labels.RESTART_CAUSE,
)
PROCESSES = gauge("taskgate_upstream_processes", "Programs of an upstream that run, or are about to.", labels.UPSTREAM)
CREDENTIALS = histogram(
    "taskgate_token_exchange_duration_seconds",
    "Token exchanges for an upstream.",
    _TOKEN_SECONDS,
    labels.UPSTREAM,
    labels.RESULT,
    limits=SeriesLimits(own=2),
)
EXTENSIONS_DENIED = counter(
    "taskgate_extensions_denied_total",
    "Declared extensions that are not forwarded, of hosts and of upstreams.",
    labels.UPSTREAM,
    labels.EXTENSION,
    limits=SeriesLimits(own=3, shared=6),
)

PROGRAM_FAMILIES: Final = (RESTARTS, PROCESSES)
"""The families of stdio upstreams alone."""

FAMILIES: Final = (
    CLIENT_OPERATIONS, IN_FLIGHT, SESSIONS_LOST, UP, STATE, CIRCUIT_OPEN, HEALTH_CHECKS, RETRIES, RESTARTS, PROCESSES,
    CREDENTIALS, EXTENSIONS_DENIED,
)  # fmt: skip

# --- recorders -------------------------------------------------------------------------------------------------------


def upstream_recorders(registry: Registry, ring: EventRing) -> Recorders:
    """The recorders of upstreams."""
    client_operations, exemplars = registry.histogram(CLIENT_OPERATIONS), registry.exemplars
    retries = registry.counter(RETRIES)
    restarts = registry.counter(RESTARTS)
    processes = registry.gauge(PROCESSES)
    sessions_lost = registry.counter(SESSIONS_LOST)
    credentials = registry.histogram(CREDENTIALS)
    denied = registry.counter(EXTENSIONS_DENIED)

    def upstream_answered(event: events.UpstreamAnswered) -> None:
        mount, method, seconds, error, _, _ = event
        here = request_context.current()
        span = None if here is None else here.span
        exemplar = None if span is None else exemplars.of(span, seconds, ring.now)
        client_operations[mount, method, error].observe(seconds, exemplar)

    def upstream_retried(event: events.UpstreamRetried) -> None:
        retries[event.mount, event.reason].value += 1

    def program_restarted(event: events.ProgramRestarted) -> None:
        restarts[event.mount, event.cause].value += 1

    def programs_counted(event: events.ProgramsCounted) -> None:
        processes[event.mount,].value = event.count

    def session_lost(event: events.SessionLost) -> None:
        sessions_lost[event.mount,].value += 1

    def credentials_fetched(event: events.CredentialsFetched) -> None:
        credentials[event.mount, event.ok].observe(event.seconds)

    def extension_denied(event: events.ExtensionDenied) -> None:
        denied[event.mount, event.extension].value += 1

    return {
        **_state_recorders(registry),
        events.UpstreamAnswered: upstream_answered,
        events.UpstreamRetried: upstream_retried,
        events.ProgramRestarted: program_restarted,
        events.ProgramsCounted: programs_counted,
        events.SessionLost: session_lost,
        events.CredentialsFetched: credentials_fetched,
        events.ExtensionDenied: extension_denied,
    }


def _state_recorders(registry: Registry) -> Recorders:
    """The recorders of what is known of upstreams."""
    open_circuits = registry.gauge(CIRCUIT_OPEN)
    checks = registry.counter(HEALTH_CHECKS)
    up = registry.gauge(UP)

    def upstream_added(event: events.UpstreamAdded) -> None:
        open_circuits[event.mount,].value = 0
        up.remove((event.mount,))

    def circuit_changed(event: events.CircuitChanged) -> None:
        # While half open, the breaker still refuses nearly every request.
        open_circuits[event.mount,].value = event.state != "closed"

    def health_checked(event: events.HealthChecked) -> None:
        checks[event.mount, event.ok].value += 1
        if event.up is not None:
            up[event.mount,].value = event.up

    def program_availability_changed(event: events.ProgramAvailabilityChanged) -> None:
        up[event.mount,].value = event.up

    return {
        events.UpstreamAdded: upstream_added,
        events.CircuitChanged: circuit_changed,
        events.HealthChecked: health_checked,
        events.ProgramAvailabilityChanged: program_availability_changed,
    }
