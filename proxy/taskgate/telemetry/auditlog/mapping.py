"""The mapping of gateway events to audit events: `EventMapping`."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from sys import getsizeof
from typing import Any, Final

from taskgate.domain.record import Faulted, FaultReason, TaskRecord, TaskStatus
from taskgate.protocol import vocabulary as words
from taskgate.protocol.envelope import Notification, Request
from taskgate.telemetry import events
from taskgate.telemetry.auditlog.catalogue import DENIED, EVENTS, FAILURE, SUCCESS
from taskgate.telemetry.auditlog.events import (
    AuditEvent,
    EventOrigin,
    LimitHit,
    RequestSummary,
    TaskSubject,
    final_origin,
    origin_of,
    subject_of,
    text_of,
    weight_of,
)
from taskgate.telemetry.auditlog.settings import LineOptions
from taskgate.telemetry.request_context import RequestContext

# --- requests and callers --------------------------------------------------------------------------------------------


AuditEvents = tuple[AuditEvent, ...]
NO_EVENTS: Final[AuditEvents] = ()


def _event(
    name: str, outcome: str, reason: str | None, now: datetime, origin: EventOrigin | None, **rest: Any
) -> AuditEvents:
    """One event, as severe as the catalogue has it."""
    return (AuditEvent(name, outcome, reason, EVENTS[name].severities[outcome], now, origin, **rest),)


class RequestMapper:
    """The one line of each request, and of each message of several that came in one."""

    def __init__(self, *, keeps_arguments: bool) -> None:
        self._keeps = keeps_arguments

    def answered(self, fact: events.HttpAnswered, request_context: RequestContext | None, now: datetime) -> AuditEvents:
        """A request is over."""
        return self._line(request_context, now, fact.seconds)

    def part_answered(
        self, _: events.PartAnswered, request_context: RequestContext | None, now: datetime
    ) -> AuditEvents:
        """A message that came with others is."""
        return self._line(request_context, now, None)

    def _line(self, request_context: RequestContext | None, now: datetime, seconds: float | None) -> AuditEvents:
        if request_context is None or not request_context.id:
            return NO_EVENTS
        (origin, weight), message = final_origin(request_context, self._keeps), request_context.message
        facts: dict[str, Any] = {} if seconds is None else {"seconds": seconds}
        name, outcome, reason = _RPC_REJECTED, DENIED, request_context.refusal
        if reason is None:
            name = _RPC_CALL if type(message) is Request and message.method == words.TOOLS_CALL else _RPC_REQUEST
            reason = request_context.error
            if reason is None and request_context.status is None and seconds is not None:
                reason = _HOST_GONE
            outcome = SUCCESS if reason is None else FAILURE
            if request_context.result_bytes is not None:
                facts["result"] = {"bytes": request_context.result_bytes}
            if request_context.parts:
                facts["messages"] = request_context.parts
            if type(message) is Notification and message.method == words.NOTE_CANCELLED:
                facts["stated_reason"] = text_of(message.params.get("reason"))
        severity = _SEVERITIES[name, outcome]
        _event = (name, outcome, reason, severity, now, origin, None, None, facts, None, None, None, None, weight)
        return (_NEW(AuditEvent, _event),)


# --- who asks, and how much --------------------------------------------------------------------------------------


def token_judged(fact: events.TokenJudged, request_context: RequestContext | None, now: datetime) -> AuditEvents:
    """The first use of a token is told, and each that is not accepted."""
    if fact.reason != "ok":
        return _event(
            "auth.rejected", DENIED, fact.reason, now, origin_of(request_context), data={"issuer": fact.issuer}
        )
    if fact.known is not False:
        return NO_EVENTS
    issuer = {"issuer": fact.issuer}
    return _event("auth.accepted", SUCCESS, None, now, origin_of(request_context), data=issuer, caller=fact.caller)


def access_refused(fact: events.AccessRefused, request_context: RequestContext | None, now: datetime) -> AuditEvents:
    """By a rule, or by one that is in shadow."""
    name, outcome = ("access.shadow_refused", SUCCESS) if fact.shadow else ("access.refused", DENIED)
    origin, rule = origin_of(request_context), {"rule": fact.rule}
    return _event(name, outcome, "policy", now, origin, mount=fact.mount, method=fact.method, data=rule)


def task_denied(fact: events.TaskDenied, request_context: RequestContext | None, now: datetime) -> AuditEvents:
    """A look-up that found nothing of the caller's."""
    subject = TaskSubject(fact.task, None, fact.owner, None, fact.mount, None)
    severity = "medium" if fact.reason == "context_mismatch" else "low"
    origin, name = origin_of(request_context), "task.access_denied"
    return (
        AuditEvent(name, DENIED, fact.reason, severity, now, origin, subject, mount=fact.mount, method=fact.method),
    )


def suspicion_raised(
    fact: events.SuspicionRaised, request_context: RequestContext | None, now: datetime
) -> AuditEvents:
    """One of a closed set of kinds."""
    return _event(f"security.{fact.kind}", DENIED, fact.kind, now, origin_of(request_context), mount=fact.mount)


def rate_judged(fact: events.RateJudged, request_context: RequestContext | None, now: datetime) -> AuditEvents:
    """Most are allowed, and not told of."""
    if fact.decision == "allowed":
        return NO_EVENTS
    limit = LimitHit("rate", fact.policy, fact.scope)
    if fact.decision == "shadow":
        return _event("limit.shadow_rejected", SUCCESS, "rate", now, origin_of(request_context), limit=limit)
    return _event("limit.rate_rejected", DENIED, "rate", now, origin_of(request_context), limit=limit)


def cap_refused(fact: events.CapRefused, request_context: RequestContext | None, now: datetime) -> AuditEvents:
    """A cap of any kind."""
    limit = LimitHit(fact.cap, None, fact.scope)
    return _event("limit.concurrency_rejected", DENIED, fact.cap, now, origin_of(request_context), limit=limit)


def queue_refused(fact: events.QueueRefused, request_context: RequestContext | None, now: datetime) -> AuditEvents:
    """No place to wait for a turn, or none came."""
    limit = LimitHit("queue", None, "upstream")
    return _event(
        "limit.queue_rejected", DENIED, fact.reason, now, origin_of(request_context), limit=limit, mount=fact.mount
    )


def call_joined(fact: events.CallJoined, request_context: RequestContext | None, now: datetime) -> AuditEvents:
    """The call of this request is not made."""
    return _event("call.joined", SUCCESS, fact.how, now, origin_of(request_context), mount=fact.mount)


def operator_asked(fact: events.OperatorAsked, _: RequestContext | None, now: datetime) -> AuditEvents:
    """Somebody at the operators' listener, which has no visits."""
    outcome = SUCCESS if fact.status < 400 else DENIED if fact.status in (401, 403) else FAILURE
    origin = EventOrigin(
        "", fact.address, fact.verb, fact.path, None, fact.status, None, None, RequestSummary(), *(None,) * 4
    )
    return _event("admin.request", outcome, None, now, origin)


_RPC_CALL, _RPC_REQUEST, _RPC_REJECTED = "rpc.call", "rpc.request", "rpc.rejected"
_SEVERITIES: Final = {
    (name, outcome): severity
    for name in (_RPC_CALL, _RPC_REQUEST, _RPC_REJECTED)
    for outcome, severity in EVENTS[name].severities.items()
}
_HOST_GONE: Final = "gone"
"""The host left before it was answered."""
_NEW: Final = tuple.__new__
"""Makes an Event in half the time that its class takes: every request has one."""


# --- tasks -----------------------------------------------------------------------------------------------------------


class TaskMapper:
    """What becomes of tasks."""

    def __init__(self, *, keeps_arguments: bool, shows_results: bool, hashes_results: bool) -> None:
        self._keeps = keeps_arguments
        self._shows = shows_results
        self._hashes = hashes_results

    def created(self, fact: events.TaskCreated, request_context: RequestContext | None, now: datetime) -> AuditEvents:
        """A task, and what its time to live became."""
        origin, subject = origin_of(request_context, keeps=self._keeps), subject_of(fact.task)
        data, weight = {"adjustment": fact.adjustment}, weight_of(origin)
        event = AuditEvent("task.created", SUCCESS, None, "info", now, origin, subject, data=data, weight=weight)
        if fact.adjustment not in _TTL_CLAMPED:
            return (event,)
        bare, limit = origin_of(request_context), LimitHit("ttl")
        return (event, AuditEvent("limit.ttl_clamped", SUCCESS, fact.adjustment, "info", now, bare, subject, limit))

    def finished(self, fact: events.TaskFinished, request_context: RequestContext | None, now: datetime) -> AuditEvents:
        """The end of a task, but for one that expired."""
        if fact.reason == FaultReason.EXPIRED:
            return NO_EVENTS
        name = _FINAL_EVENTS[fact.status]
        wrong = fact.status is TaskStatus.FAILED or fact.reason == "tool_error"
        outcome = FAILURE if wrong else SUCCESS
        facts: dict[str, Any] = {"age_seconds": seconds(fact.age)}
        result = None
        if name == "task.completed" and self._shows:
            facts["result"] = {"bytes": fact.result_bytes}
            result = _result_text(fact.task) if self._hashes else None
        severity, subject = EVENTS[name].severities[outcome], subject_of(fact.task)
        weight = 0 if result is None else getsizeof(result)
        return (
            AuditEvent(
                name, outcome, fact.reason, severity, now, origin_of(request_context), subject,
                data=facts, result=result, weight=weight,
            ),
        )  # fmt: skip


def dispatched(fact: events.TaskDispatched, request_context: RequestContext | None, now: datetime) -> AuditEvents:
    """Its call left."""
    return _task_event(
        "task.dispatched", fact.task, request_context, now, data={"waited_seconds": seconds(fact.waited)}
    )


def moved(fact: events.TaskMoved, request_context: RequestContext | None, now: datetime) -> AuditEvents:
    """Its status is another."""
    edge = {"from": fact.before.value, "to": fact.task.status.value}
    return _task_event("task.transition", fact.task, request_context, now, data=edge)


def expired(fact: events.TaskExpired, request_context: RequestContext | None, now: datetime) -> AuditEvents:
    """Its time ran out before it ended."""
    return _task_event("task.expired", fact.task, request_context, now, FAILURE, fact.phase)


def purged(fact: events.TaskPurged, request_context: RequestContext | None, now: datetime) -> AuditEvents:
    """Nothing is left of it."""
    return _task_event("task.purged", fact.task, request_context, now, data={"retrieved": fact.task.retrieved})


def cancel_asked(fact: events.TaskCancelAsked, request_context: RequestContext | None, now: datetime) -> AuditEvents:
    """Whether or not it could still be cancelled."""
    outcome = SUCCESS if fact.outcome == "propagated" else FAILURE
    return _task_event("task.cancel_requested", fact.task, request_context, now, outcome, fact.outcome)


def recovered(fact: events.TaskRecovered, request_context: RequestContext | None, now: datetime) -> AuditEvents:
    """What was done with one whose process is gone."""
    return _task_event("task.recovered", fact.task, request_context, now, SUCCESS, fact.outcome)


def retrieved(fact: events.TaskRetrieved, request_context: RequestContext | None, now: datetime) -> AuditEvents:
    """Its owner has the outcome."""
    delay = None if fact.delay is None else seconds(fact.delay)
    facts = {"delay_seconds": delay, "first": delay is not None}
    return _task_event("task.result_retrieved", fact.task, request_context, now, data=facts)


def input_asked(fact: events.InputAsked, request_context: RequestContext | None, now: datetime) -> AuditEvents:
    """What is asked is not told, only what kind of question it is."""
    return _task_event(
        "task.input_requested", fact.task, request_context, now, data={"key": fact.key, "kind": fact.kind}
    )


def input_settled(fact: events.InputSettled, request_context: RequestContext | None, now: datetime) -> AuditEvents:
    """An answer, or why there is none."""
    facts = {"key": fact.key, "kind": fact.kind}
    if fact.outcome not in _ANSWER_OUTCOMES:
        return _task_event("task.input_dropped", fact.task, request_context, now, FAILURE, fact.outcome, facts)
    return _task_event(
        "task.input_answered", fact.task, request_context, now, _ANSWER_OUTCOMES[fact.outcome], fact.outcome, facts
    )


def would_promote(fact: events.WouldPromote, request_context: RequestContext | None, now: datetime) -> AuditEvents:
    """There is no task."""
    return (
        AuditEvent("task.shadow_promoted", SUCCESS, None, "info", now, origin_of(request_context), mount=fact.mount),
    )


def seconds(span: timedelta) -> float:
    """As lines have them, whose clock counts microseconds."""
    return span.total_seconds()


def _task_event(
    name: str,
    task: TaskRecord,
    request_context: RequestContext | None,
    now: datetime,
    outcome: str = SUCCESS,
    reason: str | None = None,
    data: Mapping[str, Any] | None = None,
) -> AuditEvents:
    severity = EVENTS[name].severities[outcome]
    return (AuditEvent(name, outcome, reason, severity, now, origin_of(request_context), subject_of(task), data=data),)


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
_ANSWER_OUTCOMES: Final = {"answered": SUCCESS, "declined": FAILURE}


# --- upstreams, the gateway, and the mapping itself ------------------------------------------------------------------


Mapper = Callable[[Any, RequestContext | None, datetime], AuditEvents]


class EventMapping:
    """Makes events of facts, for lines that are told as `telling` says.

    It remembers which servers were thought to be well, since that is told when it changes.
    """

    def __init__(self, line_options: LineOptions, *, before: "EventMapping | None" = None) -> None:
        """`before` is the one whose place it takes."""
        keeps = line_options.arguments != "none"
        shows, hashes = line_options.results != "none", line_options.results == "hash"
        requests = RequestMapper(keeps_arguments=keeps)
        tasks = TaskMapper(keeps_arguments=keeps, shows_results=shows, hashes_results=hashes)
        self._up: dict[str, bool] = {} if before is None else before._up
        self.mappers: Mapping[type, Mapper] = {
            **_STATELESS_MAPPERS,
            events.HttpAnswered: requests.answered,
            events.PartAnswered: requests.part_answered,
            events.TaskCreated: tasks.created,
            events.TaskFinished: tasks.finished,
            events.UpstreamBegun: self._upstream_begun,
            events.HealthChecked: self._seen,
            events.ProgramSought: self._seen,
        }
        """What makes events of a fact, by its type; of a type that is not here there is nothing to say."""

    def _upstream_begun(self, fact: events.UpstreamBegun, _: RequestContext | None, __: datetime) -> AuditEvents:
        self._up.pop(fact.mount, None)
        return NO_EVENTS

    def _seen(
        self, fact: events.HealthChecked | events.ProgramSought, _: RequestContext | None, now: datetime
    ) -> AuditEvents:
        if fact.up is None or fact.up is self._up.get(fact.mount):
            return NO_EVENTS
        self._up[fact.mount] = fact.up
        if fact.up:
            return _event("upstream.up", SUCCESS, None, now, None, mount=fact.mount)
        return _event("upstream.down", FAILURE, None, now, None, mount=fact.mount)


def _circuit_moved(fact: events.CircuitMoved, _: RequestContext | None, now: datetime) -> AuditEvents:
    if fact.state == "open":
        return _event("upstream.circuit_opened", FAILURE, None, now, None, mount=fact.mount)
    if fact.state == "closed":
        return _event("upstream.circuit_closed", SUCCESS, None, now, None, mount=fact.mount)
    # Half open it is tried, which is no news yet.
    return NO_EVENTS


def _session_lost(fact: events.SessionLost, _: RequestContext | None, now: datetime) -> AuditEvents:
    return _event("upstream.session_lost", FAILURE, None, now, None, mount=fact.mount)


def _program_restarted(fact: events.ProgramRestarted, _: RequestContext | None, now: datetime) -> AuditEvents:
    return _event("upstream.restarted", FAILURE, fact.cause, now, None, mount=fact.mount)


def _credentials_got(fact: events.CredentialsGot, _: RequestContext | None, now: datetime) -> AuditEvents:
    name, outcome = ("credential.exchanged", SUCCESS) if fact.ok else ("credential.failed", FAILURE)
    return _event(name, outcome, None, now, None, mount=fact.mount, data={"seconds": fact.seconds})


def _keys_fetched(fact: events.KeysFetched, _: RequestContext | None, now: datetime) -> AuditEvents:
    facts = {"issuer": fact.issuer, "keys": fact.keys}
    if fact.result == "ok":
        return _event("auth.jwks_refreshed", SUCCESS, None, now, None, data=facts)
    return _event("auth.jwks_failed", FAILURE, fact.result, now, None, data=facts)


def _rates_fell_back(fact: events.RatesFellBack, _: RequestContext | None, now: datetime) -> AuditEvents:
    return _event("limit.store_fallback", FAILURE, "store", now, None, data={"rule": fact.rule})


def _gateway_moved(fact: events.GatewayMoved, _: RequestContext | None, now: datetime) -> AuditEvents:
    facts = {"version": fact.version, "fingerprint": _fingerprint(fact.fingerprint)}
    return _event(f"gateway.{fact.phase}", SUCCESS, None, now, None, data=facts)


def _config_reloaded(fact: events.ConfigReloaded, _: RequestContext | None, now: datetime) -> AuditEvents:
    fingerprint = _fingerprint(fact.fingerprint)
    if fact.result == "invalid":
        facts = {"fingerprint": fingerprint, "problems": list(fact.problems[:_MAX_LISTED])}
        return _event("config.rejected", FAILURE, fact.result, now, None, data=facts)
    facts = {"fingerprint": fingerprint, "waits": list(fact.waits[:_MAX_LISTED])}
    reason = None if fact.result == "success" else fact.result
    return _event("config.loaded", SUCCESS, reason, now, None, data=facts)


def _fingerprint(number: int) -> str:
    return f"{number:012x}"


_MAX_LISTED: Final = 32
"""How many problems, or keys, one line has."""

_STATELESS_MAPPERS: Final[dict[type, Mapper]] = {
    events.TokenJudged: token_judged,
    events.AccessRefused: access_refused,
    events.TaskDenied: task_denied,
    events.SuspicionRaised: suspicion_raised,
    events.RateJudged: rate_judged,
    events.CapRefused: cap_refused,
    events.QueueRefused: queue_refused,
    events.CallJoined: call_joined,
    events.OperatorAsked: operator_asked,
    events.TaskDispatched: dispatched,
    events.TaskMoved: moved,
    events.TaskExpired: expired,
    events.TaskPurged: purged,
    events.TaskCancelAsked: cancel_asked,
    events.TaskRecovered: recovered,
    events.TaskRetrieved: retrieved,
    events.InputAsked: input_asked,
    events.InputSettled: input_settled,
    events.WouldPromote: would_promote,
    events.CircuitMoved: _circuit_moved,
    events.SessionLost: _session_lost,
    events.ProgramRestarted: _program_restarted,
    events.CredentialsGot: _credentials_got,
    events.RatesFellBack: _rates_fell_back,
    events.KeysFetched: _keys_fetched,
    events.GatewayMoved: _gateway_moved,
    events.ConfigReloaded: _config_reloaded,
}
"""For what is the same whatever is told, and needs no memory."""
