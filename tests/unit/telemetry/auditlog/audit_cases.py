"""Events in requests, and what the audit log says of each: the table that tests of events and of every format go by."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from helpers.records import new_record
from taskgate.auth.context import AuthContext, Identity
from taskgate.domain.record import OwnerKey, Succeeded, TaskRecord, TaskStatus
from taskgate.domain.versions import Client
from taskgate.errors import AuthReason
from taskgate.protocol.jsonrpc import parse
from taskgate.telemetry import events
from taskgate.telemetry.auditlog.catalogue import EVENTS
from taskgate.telemetry.auditlog.events import AuditEvent, internal_event
from taskgate.telemetry.auditlog.formats.renderer import Renderer
from taskgate.telemetry.auditlog.mapping import EventMapping
from taskgate.telemetry.auditlog.settings import LineOptions
from taskgate.telemetry.request_context import RequestContext

NOW: Final = datetime(2026, 11, 21, 1, 22, 3, 123456, tzinfo=UTC)
MICROSECONDS: Final = round(NOW.timestamp() * 1e6)
"""The same time, as events have it."""
KEY: Final = b"k" * 32
TASK_ID: Final = "Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4"
TOKEN: Final = "eyJhbGciOi.secret.token"
IDENTITY: Final = Identity(
    issuer_name="corp",
    issuer="https://idp.example.com/",
    subject="user-17",
    client_id="agent-a",
    tenant="acme",
    scopes=frozenset(),
    expires_at=NOW,
    claims={"jti": "a1b2", "act": {"sub": "agent-a", "act": {"sub": "agent-b", "iss": "https://other.example/"}}},
)
CALLER: Final = AuthContext(key="5b0kYwq0mX1c2f8Zt4r9aA", identity=IDENTITY, token=TOKEN)
OTHER: Final = "Qm3v0aT7n1Qm3v0aT7n1Qm"


class SetSpan:
    """A span that says of itself what it is set to."""

    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    span_id = "00f067aa0ba902b7"


def message_text(method: str, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).encode()


CALL: Final = message_text("tools/call", name="build_report", arguments={"city": "Oslo", "year": 2026})


def new_context(body: bytes | None = CALL, **changes: Any) -> RequestContext:
    """The request of a request that was answered well, but for the changes."""
    request_context = RequestContext("abcdefgh-1", "203.0.113.9", "POST", "/reports/mcp", "host/1.0")
    request_context.status, request_context.mount, request_context.caller, request_context.revision = (
        200,
        "reports",
        CALLER,
        "2026-07-28",
    )
    request_context.client = Client("host", "1.0")
    request_context.message = None if body is None else parse(body, max_depth=64)
    for name, value in changes.items():
        setattr(request_context, name, value)
    return request_context


def of_task(**changes: Any) -> TaskRecord:
    """A task of CALLER's."""
    return new_record(id=TASK_ID, owner=OwnerKey(CALLER.key, "reports"), **changes)


class Said(NamedTuple):
    """What is expected of one event."""

    name: str
    outcome: str
    reason: str | None
    severity: str


class Case(NamedTuple):
    """A event, the request that it happened in, and what is said of it."""

    event: "events.Event | Ended"
    request_context: RequestContext | None
    said: tuple[Said, ...]


def _case(
    event: "events.Event | Ended",
    request_context: RequestContext | None,
    name: str,
    outcome: str,
    reason: str | None,
    severity: str,
) -> Case:
    return Case(event, request_context, (Said(name, outcome, reason, severity),))


FIRST_USE: Final = events.TokenChecked("corp", "ok", False, CALLER)
REFUSED: Final = events.AccessRefused("reports", "tools/call", False, "r")
ASKED: Final = events.OperatorRequestAnswered("POST", "/-/reload", 200, "127.0.0.1")


class Ended(NamedTuple):
    """The end of a request, of which the event is its context itself."""

    seconds: float | None = 0.25


ANSWERED: Final = Ended()
OF_A_BATCH: Final = Ended(None)
DONE: Final = replace(
    of_task(), status=TaskStatus.COMPLETED, outcome=Succeeded(result='{"content":[]}', tool_error=False)
)
_SECOND: Final = timedelta(seconds=1)
COMPLETED: Final = events.TaskFinished(DONE, TaskStatus.COMPLETED, "ok", _SECOND, 14)

REQUESTS: Final = (
    _case(ANSWERED, new_context(), "rpc.call", "success", None, "info"),
    _case(ANSWERED, new_context(error="tool_error"), "rpc.call", "failure", "tool_error", "low"),
    _case(ANSWERED, new_context(message_text("tools/list")), "rpc.request", "success", None, "info"),
    _case(ANSWERED, new_context(message_text("tools/list"), error="-32603"), "rpc.request", "failure", "-32603", "low"),
    _case(ANSWERED, new_context(None, verb="GET"), "rpc.request", "success", None, "info"),
    _case(ANSWERED, new_context(refusal="rate"), "rpc.rejected", "denied", "rate", "low"),
    _case(ANSWERED, new_context(status=None), "rpc.call", "failure", "gone", "low"),
    _case(OF_A_BATCH, new_context(status=None), "rpc.call", "success", None, "info"),
    _case(events.CallCoalesced("reports", "key"), new_context(), "call.joined", "success", "key", "info"),
    _case(FIRST_USE, new_context(caller=None), "auth.accepted", "success", None, "info"),
    *(
        _case(events.TokenChecked("corp", reason), new_context(caller=None), "auth.rejected", "denied", reason, "low")
        for reason in (*(each.value for each in AuthReason), "jwks_unavailable")
    ),
    _case(events.KeysFetched("corp", "ok", 3), None, "auth.jwks_refreshed", "success", None, "info"),
    _case(events.KeysFetched("corp", "stale", 2), None, "auth.jwks_failed", "failure", "stale", "medium"),
    _case(events.KeysFetched("corp", "failed", 0), None, "auth.jwks_failed", "failure", "failed", "medium"),
    _case(REFUSED, new_context(), "access.refused", "denied", "policy", "low"),
    _case(replace(REFUSED, shadow=True), new_context(), "access.shadow_refused", "success", "policy", "info"),
    _case(
        events.RateLimitChecked("calls", "ip", "rejected"),
        new_context(),
        "limit.rate_rejected",
        "denied",
        "rate",
        "low",
    ),
    _case(
        events.RateLimitChecked("calls", "ip", "shadow"),
        new_context(),
        "limit.shadow_rejected",
        "success",
        "rate",
        "info",
    ),
    _case(events.RateFallbackUsed("local"), new_context(), "limit.store_fallback", "failure", "store", "high"),
    _case(events.CapRefused("tasks", "context"), new_context(), "limit.concurrency_rejected", "denied", "tasks", "low"),
    _case(events.QueueRefused("reports", "full"), new_context(), "limit.queue_rejected", "denied", "full", "low"),
    *(
        _case(events.SuspicionRaised(kind, "reports"), new_context(), f"security.{kind}", "denied", kind, severity)
        for kind, severity in (
            ("enumeration_suspected", "high"),
            ("cross_context_access", "high"),
            ("excessive_polling", "medium"),
            ("header_mismatch", "medium"),
            ("auth_bruteforce", "high"),
            ("input_key_unknown", "medium"),
        )
    ),
    *(
        _case(replace(ASKED, status=status), None, "admin.request", outcome, None, severity)
        for status, outcome, severity in (
            (200, "success", "info"),
            (401, "denied", "medium"),
            (403, "denied", "medium"),
            (500, "failure", "low"),
        )
    ),
)

TASKS: Final = (
    _case(events.TaskCreated(of_task(), None), new_context(), "task.created", "success", None, "info"),
    _case(events.TaskCreated(of_task(), "defaulted"), new_context(), "task.created", "success", None, "info"),
    *(
        Case(
            events.TaskCreated(of_task(), how),
            new_context(),
            (
                Said("task.created", "success", None, "info"),
                Said("limit.ttl_clamped", "success", how, "info"),
            ),
        )
        for how in ("clamped_max", "raised_min")
    ),
    _case(events.TaskDispatched(of_task(), _SECOND), None, "task.dispatched", "success", None, "info"),
    _case(events.TaskTransitioned(DONE, TaskStatus.WORKING), None, "task.transition", "success", None, "info"),
    _case(COMPLETED, None, "task.completed", "success", "ok", "info"),
    _case(replace(COMPLETED, reason="tool_error"), None, "task.completed", "failure", "tool_error", "low"),
    _case(
        events.TaskFinished(of_task(), TaskStatus.FAILED, "timeout", _SECOND, None),
        None,
        "task.failed",
        "failure",
        "timeout",
        "low",
    ),
    _case(
        events.TaskFinished(of_task(), TaskStatus.CANCELLED, "client", _SECOND, None),
        new_context(),
        "task.cancelled",
        "success",
        "client",
        "info",
    ),
    _case(events.TaskExpired(of_task(), "queued"), None, "task.expired", "failure", "queued", "low"),
    _case(events.TaskPurged(of_task()), None, "task.purged", "success", None, "info"),
    _case(
        events.TaskCancelRequested(of_task(), "propagated"),
        new_context(),
        "task.cancel_requested",
        "success",
        "propagated",
        "info",
    ),
    _case(
        events.TaskCancelRequested(of_task(), "already_terminal"),
        new_context(),
        "task.cancel_requested",
        "failure",
        "already_terminal",
        "info",
    ),
    _case(events.TaskRecovered(of_task(), "retried"), None, "task.recovered", "success", "retried", "low"),
    _case(events.TaskRetrieved(DONE, _SECOND), new_context(), "task.result_retrieved", "success", None, "info"),
    _case(events.TaskRetrieved(DONE, None), new_context(), "task.result_retrieved", "success", None, "info"),
    *(
        _case(
            events.TaskDenied("reports", "tasks/get", reason, TASK_ID, owner),
            new_context(message_text("tasks/get", taskId=TASK_ID)),
            "task.access_denied",
            "denied",
            reason,
            severity,
        )
        for reason, owner, severity in (
            ("context_mismatch", OTHER, "medium"),
            ("not_found", None, "low"),
            ("expired", CALLER.key, "low"),
            ("malformed_id", None, "low"),
        )
    ),
    _case(
        events.InputRequestOpened(of_task(), "input-1", "elicitation"),
        None,
        "task.input_requested",
        "success",
        None,
        "info",
    ),
    *(
        _case(
            events.InputSettled(of_task(), "input-1", "elicitation", how),
            new_context(),
            name,
            outcome,
            how,
            "info",
        )
        for how, name, outcome in (
            ("answered", "task.input_answered", "success"),
            ("declined", "task.input_answered", "failure"),
            ("expired", "task.input_dropped", "failure"),
            ("superseded", "task.input_dropped", "failure"),
        )
    ),
    _case(events.ShadowPromotion("reports"), new_context(), "task.shadow_promoted", "success", None, "info"),
)

OTHERS: Final = (
    *(
        _case(events.GatewayPhaseChanged(phase, "1.0", 255), None, f"gateway.{phase}", "success", None, "info")
        for phase in ("started", "stopping", "stopped")
    ),
    _case(events.ConfigReloaded("success", 255), None, "config.loaded", "success", None, "info"),
    _case(events.ConfigReloaded("unchanged", 255), None, "config.loaded", "success", "unchanged", "info"),
    _case(
        events.ConfigReloaded("needs_restart", 255, (), ("store.url",)),
        None,
        "config.loaded",
        "success",
        "needs_restart",
        "info",
    ),
    _case(
        events.ConfigReloaded("invalid", 255, ("a: wrong",)), None, "config.rejected", "failure", "invalid", "medium"
    ),
    _case(events.CircuitChanged("reports", "open"), None, "upstream.circuit_opened", "failure", None, "medium"),
    _case(events.CircuitChanged("reports", "closed"), None, "upstream.circuit_closed", "success", None, "info"),
    _case(events.HealthChecked("reports", True, True), None, "upstream.up", "success", None, "info"),
    _case(events.HealthChecked("reports", False, False), None, "upstream.down", "failure", None, "medium"),
    _case(events.ProgramAvailabilityChanged("reports", False), None, "upstream.down", "failure", None, "medium"),
    _case(events.SessionLost("reports"), None, "upstream.session_lost", "failure", None, "low"),
    _case(events.ProgramRestarted("reports", "exit"), None, "upstream.restarted", "failure", "exit", "low"),
    _case(events.CredentialsFetched("reports", 0.5, True), None, "credential.exchanged", "success", None, "info"),
    _case(events.CredentialsFetched("reports", 0.5, False), None, "credential.failed", "failure", None, "medium"),
)

CASES: Final = (*REQUESTS, *TASKS, *OTHERS)

UNTOLD: Final[Sequence[events.Event]] = (
    events.TokenChecked("corp", "ok", None, CALLER),
    events.CircuitChanged("reports", "half_open"),
    events.HealthChecked("reports", False, None),
    events.UpstreamAdded("reports"),
    events.TaskFinished(of_task(), TaskStatus.FAILED, "expired", _SECOND, None),
)
"""Of an event that is told of at other times."""


def ended(request_context: RequestContext | None, how: Ended) -> RequestContext:
    """The event of a request that ends so."""
    assert request_context is not None
    request_context.route, request_context.seconds = None if how.seconds is None else "mcp", how.seconds
    return request_context


def events_of(
    event: events.Event | Ended,
    request_context: RequestContext | None,
    telling: LineOptions = LineOptions(),  # noqa: B008
) -> tuple[AuditEvent, ...]:
    """By a table that knows nothing yet."""
    if isinstance(event, Ended):
        event = ended(request_context, event)
    return EventMapping(telling).mappers[type(event)](event, request_context, MICROSECONDS)


def line_of(event: events.Event | Ended, request_context: RequestContext | None, **telling: Any) -> dict[str, Any]:
    """The first event as a document."""
    chosen = LineOptions(**telling)
    return Renderer(chosen, key=KEY, node="gw-1")(events_of(event, request_context, chosen)[0])


def lines(**telling: Any) -> list[dict[str, Any]]:
    """A document of each event of each case."""
    chosen = LineOptions(**telling)
    render = Renderer(chosen, key=KEY, node="gw-1")
    return [render(event) for case in CASES for event in events_of(case.event, case.request_context, chosen)]


def of_the_log(format: str) -> list[dict[str, Any]]:
    """What the log says of itself."""
    render = Renderer(LineOptions(format=format), key=KEY, node="gw-1")  # type: ignore[arg-type]
    return [
        render(internal_event(name, NOW, data={"sink": "file"}))
        for name, kind in EVENTS.items()
        if kind.topic == "audit"
    ]
