"""Facts about tasks become events: one short function a fact; see `table`.

A task that expired has one end: `task.expired`, and no `task.failed` beside it.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from sys import getsizeof
from typing import Any, Final

from taskgate.domain.record import Faulted, FaultReason, TaskRecord, TaskStatus
from taskgate.telemetry import events
from taskgate.telemetry.auditlog.catalogue import EVENTS, FAILURE, SUCCESS
from taskgate.telemetry.auditlog.events import AuditEvent, Limit, origin_of, subject_of, weight_of
from taskgate.telemetry.auditlog.request_events import NOTHING, Told
from taskgate.telemetry.request_context import RequestContext


class Tasks:
    """What becomes of tasks."""

    def __init__(self, *, keeps_arguments: bool, shows_results: bool, hashes_results: bool) -> None:
        self._keeps = keeps_arguments
        self._shows = shows_results
        self._hashes = hashes_results

    def created(self, fact: events.TaskCreated, request_context: RequestContext | None, now: datetime) -> Told:
        """A task, and what its time to live became."""
        origin, subject = origin_of(request_context, keeps=self._keeps), subject_of(fact.task)
        data, weight = {"adjustment": fact.adjustment}, weight_of(origin)
        event = AuditEvent("task.created", SUCCESS, None, "info", now, origin, subject, data=data, weight=weight)
        if fact.adjustment not in _CLAMPED:
            return (event,)
        bare, limit = origin_of(request_context), Limit("ttl")
        return (event, AuditEvent("limit.ttl_clamped", SUCCESS, fact.adjustment, "info", now, bare, subject, limit))

    def finished(self, fact: events.TaskFinished, request_context: RequestContext | None, now: datetime) -> Told:
        """The end of a task, but for one that expired."""
        if fact.reason == FaultReason.EXPIRED:
            return NOTHING
        name = _ENDS[fact.status]
        wrong = fact.status is TaskStatus.FAILED or fact.reason == "tool_error"
        outcome = FAILURE if wrong else SUCCESS
        facts: dict[str, Any] = {"age_seconds": seconds(fact.age)}
        result = None
        if name == "task.completed" and self._shows:
            facts["result"] = {"bytes": fact.result_bytes}
            result = _result(fact.task) if self._hashes else None
        severity, subject = EVENTS[name].severities[outcome], subject_of(fact.task)
        weight = 0 if result is None else getsizeof(result)
        return (
            AuditEvent(
                name, outcome, fact.reason, severity, now, origin_of(request_context), subject,
                data=facts, result=result, weight=weight,
            ),
        )  # fmt: skip


def dispatched(fact: events.TaskDispatched, request_context: RequestContext | None, now: datetime) -> Told:
    """Its call left."""
    return _of("task.dispatched", fact.task, request_context, now, data={"waited_seconds": seconds(fact.waited)})


def moved(fact: events.TaskMoved, request_context: RequestContext | None, now: datetime) -> Told:
    """Its status is another."""
    edge = {"from": fact.before.value, "to": fact.task.status.value}
    return _of("task.transition", fact.task, request_context, now, data=edge)


def expired(fact: events.TaskExpired, request_context: RequestContext | None, now: datetime) -> Told:
    """Its time ran out before it ended."""
    return _of("task.expired", fact.task, request_context, now, FAILURE, fact.phase)


def purged(fact: events.TaskPurged, request_context: RequestContext | None, now: datetime) -> Told:
    """Nothing is left of it."""
    return _of("task.purged", fact.task, request_context, now, data={"retrieved": fact.task.retrieved})


def cancel_asked(fact: events.TaskCancelAsked, request_context: RequestContext | None, now: datetime) -> Told:
    """Whether or not it could still be cancelled."""
    outcome = SUCCESS if fact.outcome == "propagated" else FAILURE
    return _of("task.cancel_requested", fact.task, request_context, now, outcome, fact.outcome)


def recovered(fact: events.TaskRecovered, request_context: RequestContext | None, now: datetime) -> Told:
    """What was done with one whose process is gone."""
    return _of("task.recovered", fact.task, request_context, now, SUCCESS, fact.outcome)


def retrieved(fact: events.TaskRetrieved, request_context: RequestContext | None, now: datetime) -> Told:
    """Its owner has the outcome."""
    delay = None if fact.delay is None else seconds(fact.delay)
    facts = {"delay_seconds": delay, "first": delay is not None}
    return _of("task.result_retrieved", fact.task, request_context, now, data=facts)


def input_asked(fact: events.InputAsked, request_context: RequestContext | None, now: datetime) -> Told:
    """What is asked is not told, only what kind of question it is."""
    return _of("task.input_requested", fact.task, request_context, now, data={"key": fact.key, "kind": fact.kind})


def input_settled(fact: events.InputSettled, request_context: RequestContext | None, now: datetime) -> Told:
    """An answer, or why there is none."""
    facts = {"key": fact.key, "kind": fact.kind}
    if fact.outcome not in _ANSWERS:
        return _of("task.input_dropped", fact.task, request_context, now, FAILURE, fact.outcome, facts)
    return _of("task.input_answered", fact.task, request_context, now, _ANSWERS[fact.outcome], fact.outcome, facts)


def would_promote(fact: events.WouldPromote, request_context: RequestContext | None, now: datetime) -> Told:
    """There is no task."""
    return (
        AuditEvent("task.shadow_promoted", SUCCESS, None, "info", now, origin_of(request_context), mount=fact.mount),
    )


def seconds(span: timedelta) -> float:
    """As lines have them, whose clock counts microseconds."""
    return span.total_seconds()


def _of(
    name: str,
    task: TaskRecord,
    request_context: RequestContext | None,
    now: datetime,
    outcome: str = SUCCESS,
    reason: str | None = None,
    data: Mapping[str, Any] | None = None,
) -> Told:
    severity = EVENTS[name].severities[outcome]
    return (AuditEvent(name, outcome, reason, severity, now, origin_of(request_context), subject_of(task), data=data),)


def _result(task: TaskRecord) -> str | None:
    outcome = task.outcome
    if outcome is None or isinstance(outcome, Faulted):
        return None
    return outcome.result if isinstance(outcome.result, str) else outcome.result.text()


_ENDS: Final = {
    TaskStatus.COMPLETED: "task.completed",
    TaskStatus.FAILED: "task.failed",
    TaskStatus.CANCELLED: "task.cancelled",
}
_CLAMPED: Final = ("clamped_max", "raised_min")
_ANSWERS: Final = {"answered": SUCCESS, "declined": FAILURE}
