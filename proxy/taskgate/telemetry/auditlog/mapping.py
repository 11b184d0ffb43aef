"""The mapping of gateway events to audit events: `EventMapping`, one short function for each type.

`AuditLog` subscribes to the types in its table; types without an entry are not recorded.
The module stays whole so that the table and its functions are read together.
"""

from collections.abc import Callable, Mapping
from itertools import product
from sys import getsizeof
from typing import Any, Final

from taskgate.domain.record import Faulted, FaultReason, TaskRecord, TaskStatus
from taskgate.protocol import vocabulary as words
from taskgate.protocol.messages import Notification, Request
from taskgate.telemetry import events
from taskgate.telemetry.auditlog.catalogue import DENIED, EVENTS, FAILURE, INFO, SUCCESS
from taskgate.telemetry.auditlog.events import (
    MAX_TEXT,
    AuditEvent,
    ConstantMembers,
    EventOrigin,
    LimitHit,
    Origin,
    RequestSummary,
    TaskSubject,
    make_tuple,
    origin_of,
    subject_of,
    text_of,
    weight_of,
)
from taskgate.telemetry.auditlog.settings import LineOptions
from taskgate.telemetry.request_context import RequestContext

# --- requests and callers --------------------------------------------------------------------------------------------


AuditEvents = tuple[AuditEvent, ...]
"""The audit events of one gateway event, mostly one; `NO_EVENTS` if it is not recorded."""
NO_EVENTS: Final[AuditEvents] = ()


def _event(name: str, outcome: str, reason: str | None, now: int, origin: Origin | None, **rest: Any) -> AuditEvents:
    """One event, with its severity from the catalogue."""
    return (AuditEvent(name, outcome, reason, EVENTS[name].severities[outcome], now, origin, **rest),)


class RequestMapper:
    """The one line of each request, and of each message of a batch."""

    def __init__(self, *, keep_arguments: bool) -> None:
        self._keep_arguments = keep_arguments

    def answered(
        self,
        request_context: RequestContext,
        _: RequestContext | None,
        now: int,
    ) -> AuditEvents:
        if not request_context.id:
            return NO_EVENTS
        message, agent, refusal = request_context.message, request_context.agent, request_context.refusal
        origin: Origin | None = request_context
        weight = 0
        if (
            refusal is not None
            or not self._keep_arguments
            or (agent is not None and len(agent) > MAX_TEXT)
            or (message is not None and len(message.text) > _MAX_SHORT_MESSAGE)
        ):
            origin = origin_of(request_context, keep_arguments=self._keep_arguments, final=True)
            weight = weight_of(origin)
        elif message is not None:
            # The context itself: it no longer changes, and holds nothing large. It has two texts, the
            # message and its parameters. `getsizeof` costs as much as the rest.
            text = message.text
            weight = 2 * (len(text) + _EMPTY_STRING_BYTES if text.isascii() else getsizeof(text))
        seconds, reason = request_context.seconds, request_context.error
        data: dict[str, Any] = {} if seconds is None else {"seconds": seconds}
        if refusal is not None:
            name, outcome, reason = _RPC_REJECTED, DENIED, refusal
        else:
            name = _RPC_REQUEST
            if type(message) is Request:
                if message[1] == words.TOOLS_CALL:
                    name = _RPC_CALL
            elif type(message) is Notification and message.method == words.NOTE_CANCELLED:
                data["stated_reason"] = text_of(message.params.get("reason"))
            if reason is None and request_context.status is None and seconds is not None:
                reason = _HOST_GONE
            outcome = SUCCESS if reason is None else FAILURE
            if request_context.result_bytes is not None:
                data["result"] = {"bytes": request_context.result_bytes}
            if request_context.parts:
                data["messages"] = request_context.parts
        severity = _SEVERITIES[name, outcome]
        fields = (name, outcome, reason, severity, now, origin, None, data, weight, None, None, None, None, None)
        return (make_tuple(AuditEvent, fields),)


# --- callers and limits ------------------------------------------------------------------------------------------


def token_judged(source: events.TokenChecked, request_context: RequestContext | None, now: int) -> AuditEvents:
    """Records the first use of a token, and each token that is not accepted."""
    if source.reason != "ok":
        return _event(
            "auth.rejected", DENIED, source.reason, now, origin_of(request_context), data={"issuer": source.issuer}
        )
    if source.known is not False:
        return NO_EVENTS
    issuer = {"issuer": source.issuer}
    return _event("auth.accepted", SUCCESS, None, now, origin_of(request_context), data=issuer, caller=source.caller)


def access_refused(source: events.AccessRefused, request_context: RequestContext | None, now: int) -> AuditEvents:
    name, outcome = ("access.shadow_refused", SUCCESS) if source.shadow else ("access.refused", DENIED)
    origin, data = origin_of(request_context), {"rule": source.rule}
    return _event(name, outcome, "policy", now, origin, mount=source.mount, method=source.method, data=data)


def task_denied(source: events.TaskDenied, request_context: RequestContext | None, now: int) -> AuditEvents:
    """A look-up of a task that the caller does not own, or that does not exist."""
    subject = TaskSubject(source.task, None, source.owner, None, source.mount, None)
    severity = "medium" if source.reason == "context_mismatch" else "low"
    origin, name = origin_of(request_context), "task.access_denied"
    return (
        AuditEvent(
            name, DENIED, source.reason, severity, now, origin, subject, mount=source.mount, method=source.method
        ),
    )


def suspicion_raised(source: events.SuspicionRaised, request_context: RequestContext | None, now: int) -> AuditEvents:
    return _event(f"security.{source.kind}", DENIED, source.kind, now, origin_of(request_context), mount=source.mount)


def rate_judged(source: events.RateLimitChecked, request_context: RequestContext | None, now: int) -> AuditEvents:
    """A rate that refused a request, or would have; what passes without a shared store has no line."""
    limit = LimitHit("rate", source.policy, source.scope)
    if source.decision == "shadow":
        return _event("limit.shadow_rejected", SUCCESS, "rate", now, origin_of(request_context), limit=limit)
    if source.decision == "rejected":
        return _event("limit.rate_rejected", DENIED, "rate", now, origin_of(request_context), limit=limit)
    return ()


def cap_refused(source: events.CapRefused, request_context: RequestContext | None, now: int) -> AuditEvents:
    limit = LimitHit(source.cap, None, source.scope)
    return _event("limit.concurrency_rejected", DENIED, source.cap, now, origin_of(request_context), limit=limit)


def queue_refused(source: events.QueueRefused, request_context: RequestContext | None, now: int) -> AuditEvents:
    limit = LimitHit("queue", None, "upstream")
    return _event(
        "limit.queue_rejected", DENIED, source.reason, now, origin_of(request_context), limit=limit, mount=source.mount
    )


def call_joined(source: events.CallCoalesced, request_context: RequestContext | None, now: int) -> AuditEvents:
    return _event("call.joined", SUCCESS, source.how, now, origin_of(request_context), mount=source.mount)


def operator_asked(source: events.OperatorRequestAnswered, _: RequestContext | None, now: int) -> AuditEvents:
    """A request to the operator API, which has no request context."""
    outcome = SUCCESS if source.status < 400 else DENIED if source.status in (401, 403) else FAILURE
    origin = EventOrigin(
        "", source.address, source.verb, source.path, None, source.status, None, None, RequestSummary(), *(None,) * 4
    )
    data: dict[str, Any] = {"operator": source.operator, **source.details}
    if source.left_out:
        data["left_out"] = source.left_out
    subject = None if source.task is None else subject_of(source.task)
    return _event("admin.request", outcome, None, now, origin, subject=subject, data=data)


_RPC_CALL, _RPC_REQUEST, _RPC_REJECTED = "rpc.call", "rpc.request", "rpc.rejected"
_SEVERITIES: Final = {
    (name, outcome): severity
    for name in (_RPC_CALL, _RPC_REQUEST, _RPC_REJECTED)
    for outcome, severity in EVENTS[name].severities.items()
}
_HOST_GONE: Final = "gone"
"""The host disconnected before the answer."""
_MAX_SHORT_MESSAGE: Final = 1024
"""Length up to which a message is kept whole until the event is rendered."""
_EMPTY_STRING_BYTES: Final = getsizeof("")


# --- tasks -----------------------------------------------------------------------------------------------------------


class TaskMapper:
    """The events that depend on what lines show of arguments and results."""

    def __init__(self, *, keep_arguments: bool, show_results: bool, hash_results: bool) -> None:
        self._keep_arguments = keep_arguments
        self._show_results = show_results
        self._hash_results = hash_results

    def created(self, source: events.TaskCreated, request_context: RequestContext | None, now: int) -> AuditEvents:
        """A new task, and a second event when its requested TTL was changed."""
        origin, subject = origin_of(request_context, keep_arguments=self._keep_arguments), subject_of(source.task)
        adjustment, weight = source.adjustment, weight_of(origin)
        data = _ADJUSTED.get(adjustment) or {"adjustment": adjustment}
        fields = ("task.created", SUCCESS, None, INFO, now, origin, subject, data, weight, None, None, None, None, None)
        event = make_tuple(AuditEvent, fields)
        if adjustment is None or adjustment not in _TTL_CLAMPED:
            return (event,)
        bare, limit = origin_of(request_context), LimitHit("ttl")
        return (
            event,
            AuditEvent("limit.ttl_clamped", SUCCESS, source.adjustment, "info", now, bare, subject, limit=limit),
        )

    def finished(self, source: events.TaskFinished, request_context: RequestContext | None, now: int) -> AuditEvents:
        """The end of a task; an expired one has `task.expired` instead."""
        if source.reason == FaultReason.EXPIRED:
            return NO_EVENTS
        task, status = source.task, source.status
        name = _FINAL_EVENTS[status]
        wrong = status is TaskStatus.FAILED or source.reason == "tool_error"
        outcome = FAILURE if wrong else SUCCESS
        data: dict[str, Any] = {"age_seconds": source.age.total_seconds()}
        result = None
        if status is TaskStatus.COMPLETED and self._show_results:
            data["result"] = {"bytes": source.result_bytes}
            result = _result_text(task) if self._hash_results else None
        severity, origin, subject = EVENTS[name].severities[outcome], origin_of(request_context), subject_of(task)
        weight = 0 if result is None else getsizeof(result)
        fields = (
            name, outcome, source.reason, severity, now, origin, subject, data, weight, None, None, None, None, result,
        )  # fmt: skip
        return (make_tuple(AuditEvent, fields),)


def dispatched(source: events.TaskDispatched, request_context: RequestContext | None, now: int) -> AuditEvents:
    return _task_event(
        "task.dispatched", source.task, request_context, now, data={"waited_seconds": source.waited.total_seconds()}
    )


def moved(source: events.TaskTransitioned, request_context: RequestContext | None, now: int) -> AuditEvents:
    data = _MOVED[source.before, source.task.status]
    return _task_event("task.transition", source.task, request_context, now, data=data)


def expired(source: events.TaskExpired, request_context: RequestContext | None, now: int) -> AuditEvents:
    return _task_event("task.expired", source.task, request_context, now, FAILURE, source.phase)


def purged(source: events.TaskPurged, request_context: RequestContext | None, now: int) -> AuditEvents:
    return _task_event("task.purged", source.task, request_context, now, data={"retrieved": source.task.retrieved})


def cancel_asked(source: events.TaskCancelRequested, request_context: RequestContext | None, now: int) -> AuditEvents:
    outcome = SUCCESS if source.outcome == "propagated" else FAILURE
    data = None if source.operator is None else {"operator": source.operator}
    if data is not None and source.reason is not None:
        data["stated_reason"] = source.reason
    return _task_event("task.cancel_requested", source.task, request_context, now, outcome, source.outcome, data=data)


def recovered(source: events.TaskRecovered, request_context: RequestContext | None, now: int) -> AuditEvents:
    return _task_event("task.recovered", source.task, request_context, now, SUCCESS, source.outcome)


def retrieved(source: events.TaskRetrieved, request_context: RequestContext | None, now: int) -> AuditEvents:
    delay = None if source.delay is None else source.delay.total_seconds()
    data = {"delay_seconds": delay, "first": delay is not None}
    return _task_event("task.result_retrieved", source.task, request_context, now, data=data)


def input_asked(source: events.InputRequestOpened, request_context: RequestContext | None, now: int) -> AuditEvents:
    """Records the kind of an input request, not its text."""
    return _task_event(
        "task.input_requested", source.task, request_context, now, data={"key": source.key, "kind": source.kind}
    )


def input_settled(source: events.InputSettled, request_context: RequestContext | None, now: int) -> AuditEvents:
    data = {"key": source.key, "kind": source.kind}
    if source.outcome not in _ANSWER_OUTCOMES:
        return _task_event("task.input_dropped", source.task, request_context, now, FAILURE, source.outcome, data)
    return _task_event(
        "task.input_answered", source.task, request_context, now, _ANSWER_OUTCOMES[source.outcome], source.outcome, data
    )


def would_promote(source: events.ShadowPromotion, request_context: RequestContext | None, now: int) -> AuditEvents:
    return (
        AuditEvent("task.shadow_promoted", SUCCESS, None, "info", now, origin_of(request_context), mount=source.mount),
    )


def _task_event(
    name: str,
    task: TaskRecord,
    request_context: RequestContext | None,
    now: int,
    outcome: str = SUCCESS,
    reason: str | None = None,
    data: Mapping[str, Any] | None = None,
) -> AuditEvents:
    severity, origin, subject = EVENTS[name].severities[outcome], origin_of(request_context), subject_of(task)
    fields = (name, outcome, reason, severity, now, origin, subject, data, 0, None, None, None, None, None)
    return (make_tuple(AuditEvent, fields),)


def _result_text(task: TaskRecord) -> str | None:
    outcome = task.outcome
    if outcome is None or isinstance(outcome, Faulted):
        return None
    return outcome.result if isinstance(outcome.result, str) else outcome.result.text()


_FINAL_EVENTS: Final = {
    TaskStatus.COMPLETED: "task.completed",
    TaskStatus.FAILED: "task.failed",
    TaskStatus.CANCELLED: "task.cancelled",
}
_TTL_CLAMPED: Final = ("clamped_max", "raised_min")
_ADJUSTED: Final = {each: ConstantMembers(adjustment=each) for each in (None, "defaulted", *_TTL_CLAMPED)}
_MOVED: Final = {
    pair: ConstantMembers(zip(("from", "to"), pair, strict=True)) for pair in product(TaskStatus, repeat=2)
}
_ANSWER_OUTCOMES: Final = {"answered": SUCCESS, "declined": FAILURE}


# --- upstreams, the gateway, and the mapping itself ------------------------------------------------------------------


Mapper = Callable[[Any, RequestContext | None, int], AuditEvents]
"""A function of one type of gateway events, which `AuditLog` calls for each.

It gets the event, the context of the current request if there is one, and the time in microseconds since 1970.
"""


class EventMapping:
    """The audit events of each gateway event, for lines that show what `line_options` says.

    It remembers which upstreams are healthy, because only changes are recorded.
    """

    def __init__(self, line_options: LineOptions, *, before: "EventMapping | None" = None) -> None:
        """`before` is the mapping that this one replaces; the two share what is known of health."""
        keep_arguments = line_options.arguments != "none"
        show_results, hash_results = line_options.results != "none", line_options.results == "hash"
        requests = RequestMapper(keep_arguments=keep_arguments)
        tasks = TaskMapper(keep_arguments=keep_arguments, show_results=show_results, hash_results=hash_results)
        self._up: dict[str, bool] = {} if before is None else before._up
        self.mappers: Mapping[type, Mapper] = {
            **_STATELESS_MAPPERS,
            RequestContext: requests.answered,
            events.TaskCreated: tasks.created,
            events.TaskFinished: tasks.finished,
            events.UpstreamAdded: self._upstream_begun,
            events.HealthChecked: self._health_changed,
            events.ProgramAvailabilityChanged: self._health_changed,
        }
        """The function for each type of gateway event; other types are not recorded."""

    def _upstream_begun(self, source: events.UpstreamAdded, _: RequestContext | None, __: int) -> AuditEvents:
        self._up.pop(source.mount, None)
        return NO_EVENTS

    def _health_changed(
        self, source: events.HealthChecked | events.ProgramAvailabilityChanged, _: RequestContext | None, now: int
    ) -> AuditEvents:
        if source.up is None or source.up is self._up.get(source.mount):
            return NO_EVENTS
        self._up[source.mount] = source.up
        if source.up:
            return _event("upstream.up", SUCCESS, None, now, None, mount=source.mount)
        return _event("upstream.down", FAILURE, None, now, None, mount=source.mount)


def _circuit_moved(source: events.CircuitChanged, _: RequestContext | None, now: int) -> AuditEvents:
    if source.state == "open":
        return _event("upstream.circuit_opened", FAILURE, None, now, None, mount=source.mount)
    if source.state == "closed":
        return _event("upstream.circuit_closed", SUCCESS, None, now, None, mount=source.mount)
    # Half open is a trial, and not recorded.
    return NO_EVENTS


def _session_lost(source: events.SessionLost, _: RequestContext | None, now: int) -> AuditEvents:
    return _event("upstream.session_lost", FAILURE, None, now, None, mount=source.mount)


def _program_restarted(source: events.ProgramRestarted, _: RequestContext | None, now: int) -> AuditEvents:
    return _event("upstream.restarted", FAILURE, source.cause, now, None, mount=source.mount)


def _credentials_got(source: events.CredentialsFetched, _: RequestContext | None, now: int) -> AuditEvents:
    name, outcome = ("credential.exchanged", SUCCESS) if source.ok else ("credential.failed", FAILURE)
    return _event(name, outcome, None, now, None, mount=source.mount, data={"seconds": source.seconds})


def _keys_fetched(source: events.KeysFetched, _: RequestContext | None, now: int) -> AuditEvents:
    data = {"issuer": source.issuer, "keys": source.keys}
    if source.result == "ok":
        return _event("auth.jwks_refreshed", SUCCESS, None, now, None, data=data)
    return _event("auth.jwks_failed", FAILURE, source.result, now, None, data=data)


def _rates_fell_back(source: events.RateFallbackUsed, _: RequestContext | None, now: int) -> AuditEvents:
    return _event("limit.store_fallback", FAILURE, "store", now, None, data={"rule": source.rule})


def _gateway_moved(source: events.GatewayPhaseChanged, _: RequestContext | None, now: int) -> AuditEvents:
    data = {"version": source.version, "fingerprint": _fingerprint(source.fingerprint)}
    return _event(f"gateway.{source.phase}", SUCCESS, None, now, None, data=data)


def _config_reloaded(source: events.ConfigReloaded, _: RequestContext | None, now: int) -> AuditEvents:
    fingerprint = _fingerprint(source.fingerprint)
    if source.result == "invalid":
        data = {"fingerprint": fingerprint, "problems": list(source.problems[:_MAX_LISTED])}
        return _event("config.rejected", FAILURE, source.result, now, None, data=data)
    data = {"fingerprint": fingerprint, "waits": list(source.waits[:_MAX_LISTED])}
    reason = None if source.result == "success" else source.result
    return _event("config.loaded", SUCCESS, reason, now, None, data=data)


def _fingerprint(number: int) -> str:
    return f"{number:012x}"


_MAX_LISTED: Final = 32
"""Problems, or configuration keys, that one line lists at most."""

_STATELESS_MAPPERS: Final[dict[type, Mapper]] = {
    events.TokenChecked: token_judged,
    events.AccessRefused: access_refused,
    events.TaskDenied: task_denied,
    events.SuspicionRaised: suspicion_raised,
    events.RateLimitChecked: rate_judged,
    events.CapRefused: cap_refused,
    events.QueueRefused: queue_refused,
    events.CallCoalesced: call_joined,
    events.OperatorRequestAnswered: operator_asked,
    events.TaskDispatched: dispatched,
    events.TaskTransitioned: moved,
    events.TaskExpired: expired,
    events.TaskPurged: purged,
    events.TaskCancelRequested: cancel_asked,
    events.TaskRecovered: recovered,
    events.TaskRetrieved: retrieved,
    events.InputRequestOpened: input_asked,
    events.InputSettled: input_settled,
    events.ShadowPromotion: would_promote,
    events.CircuitChanged: _circuit_moved,
    events.SessionLost: _session_lost,
    events.ProgramRestarted: _program_restarted,
    events.CredentialsFetched: _credentials_got,
    events.RateFallbackUsed: _rates_fell_back,
    events.KeysFetched: _keys_fetched,
    events.GatewayPhaseChanged: _gateway_moved,
    events.ConfigReloaded: _config_reloaded,
}
"""The functions that need neither options nor state."""
