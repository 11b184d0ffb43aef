"""Facts about requests, and who sends them, become events: one short function a fact; see `table`."""

from datetime import datetime
from typing import Any, Final

from taskgate.protocol import vocabulary as words
from taskgate.protocol.envelope import Notification, Request
from taskgate.telemetry import events
from taskgate.telemetry.auditlog.catalogue import DENIED, EVENTS, FAILURE, SUCCESS
from taskgate.telemetry.auditlog.events import (
    AuditEvent,
    EventOrigin,
    Limit,
    RequestSummary,
    TaskSubject,
    last_of,
    origin_of,
    text_of,
)
from taskgate.telemetry.request_context import RequestContext

Told = tuple[AuditEvent, ...]
NOTHING: Final[Told] = ()


def told(name: str, outcome: str, reason: str | None, now: datetime, origin: EventOrigin | None, **rest: Any) -> Told:
    """One event, as severe as the catalogue has it."""
    return (AuditEvent(name, outcome, reason, EVENTS[name].severities[outcome], now, origin, **rest),)


class RequestEvents:
    """The one line of each request, and of each message of several that came in one."""

    def __init__(self, *, keeps_arguments: bool) -> None:
        self._keeps = keeps_arguments

    def answered(self, fact: events.HttpAnswered, request_context: RequestContext | None, now: datetime) -> Told:
        """A request is over."""
        return self._line(request_context, now, fact.seconds)

    def part_answered(self, _: events.PartAnswered, request_context: RequestContext | None, now: datetime) -> Told:
        """A message that came with others is."""
        return self._line(request_context, now, None)

    def _line(self, request_context: RequestContext | None, now: datetime, seconds: float | None) -> Told:
        if request_context is None or not request_context.id:
            return NOTHING
        (origin, weight), message = last_of(request_context, self._keeps), request_context.message
        facts: dict[str, Any] = {} if seconds is None else {"seconds": seconds}
        name, outcome, reason = _REJECTED, DENIED, request_context.refusal
        if reason is None:
            name = _CALL if type(message) is Request and message.method == words.TOOLS_CALL else _REQUEST
            reason = request_context.error
            if reason is None and request_context.status is None and seconds is not None:
                reason = _GONE
            outcome = SUCCESS if reason is None else FAILURE
            if request_context.result_bytes is not None:
                facts["result"] = {"bytes": request_context.result_bytes}
            if request_context.parts:
                facts["messages"] = request_context.parts
            if type(message) is Notification and message.method == words.NOTE_CANCELLED:
                facts["stated_reason"] = text_of(message.params.get("reason"))
        severity = _SEVERITIES[name, outcome]
        told = (name, outcome, reason, severity, now, origin, None, None, facts, None, None, None, None, weight)
        return (_NEW(AuditEvent, told),)


# --- who asks, and how much --------------------------------------------------------------------------------------


def token_judged(fact: events.TokenJudged, request_context: RequestContext | None, now: datetime) -> Told:
    """The first use of a token is told, and each that is not accepted."""
    if fact.reason != "ok":
        return told("auth.rejected", DENIED, fact.reason, now, origin_of(request_context), data={"issuer": fact.issuer})
    if fact.known is not False:
        return NOTHING
    issuer = {"issuer": fact.issuer}
    return told("auth.accepted", SUCCESS, None, now, origin_of(request_context), data=issuer, caller=fact.caller)


def access_refused(fact: events.AccessRefused, request_context: RequestContext | None, now: datetime) -> Told:
    """By a rule, or by one that is in shadow."""
    name, outcome = ("access.shadow_refused", SUCCESS) if fact.shadow else ("access.refused", DENIED)
    origin, rule = origin_of(request_context), {"rule": fact.rule}
    return told(name, outcome, "policy", now, origin, mount=fact.mount, method=fact.method, data=rule)


def task_denied(fact: events.TaskDenied, request_context: RequestContext | None, now: datetime) -> Told:
    """A look-up that found nothing of the caller's."""
    subject = TaskSubject(fact.task, None, fact.owner, None, fact.mount, None)
    severity = "medium" if fact.reason == "context_mismatch" else "low"
    origin, name = origin_of(request_context), "task.access_denied"
    return (
        AuditEvent(name, DENIED, fact.reason, severity, now, origin, subject, mount=fact.mount, method=fact.method),
    )


def suspicion_raised(fact: events.SuspicionRaised, request_context: RequestContext | None, now: datetime) -> Told:
    """One of a closed set of kinds."""
    return told(f"security.{fact.kind}", DENIED, fact.kind, now, origin_of(request_context), mount=fact.mount)


def rate_judged(fact: events.RateJudged, request_context: RequestContext | None, now: datetime) -> Told:
    """Most are allowed, and not told of."""
    if fact.decision == "allowed":
        return NOTHING
    limit = Limit("rate", fact.policy, fact.scope)
    if fact.decision == "shadow":
        return told("limit.shadow_rejected", SUCCESS, "rate", now, origin_of(request_context), limit=limit)
    return told("limit.rate_rejected", DENIED, "rate", now, origin_of(request_context), limit=limit)


def cap_refused(fact: events.CapRefused, request_context: RequestContext | None, now: datetime) -> Told:
    """A cap of any kind."""
    limit = Limit(fact.cap, None, fact.scope)
    return told("limit.concurrency_rejected", DENIED, fact.cap, now, origin_of(request_context), limit=limit)


def queue_refused(fact: events.QueueRefused, request_context: RequestContext | None, now: datetime) -> Told:
    """No place to wait for a turn, or none came."""
    limit = Limit("queue", None, "upstream")
    return told(
        "limit.queue_rejected", DENIED, fact.reason, now, origin_of(request_context), limit=limit, mount=fact.mount
    )


def call_joined(fact: events.CallJoined, request_context: RequestContext | None, now: datetime) -> Told:
    """The call of this request is not made."""
    return told("call.joined", SUCCESS, fact.how, now, origin_of(request_context), mount=fact.mount)


def operator_asked(fact: events.OperatorAsked, _: RequestContext | None, now: datetime) -> Told:
    """Somebody at the operators' listener, which has no visits."""
    outcome = SUCCESS if fact.status < 400 else DENIED if fact.status in (401, 403) else FAILURE
    origin = EventOrigin(
        "", fact.address, fact.verb, fact.path, None, fact.status, None, None, RequestSummary(), *(None,) * 4
    )
    return told("admin.request", outcome, None, now, origin)


_CALL, _REQUEST, _REJECTED = "rpc.call", "rpc.request", "rpc.rejected"
_SEVERITIES: Final = {
    (name, outcome): severity
    for name in (_CALL, _REQUEST, _REJECTED)
    for outcome, severity in EVENTS[name].severities.items()
}
_GONE: Final = "gone"
"""The host left before it was answered."""
_NEW: Final = tuple.__new__
"""Makes an Event in half the time that its class takes: every request has one."""
