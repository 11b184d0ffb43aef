"""The only place where a task's state changes.

`TRANSITIONS` says which event is possible in which state and what state it may lead to; an event without a row is
illegal there. Terminal states absorb: all that can still happen is that the outcome is retrieved. Which of two allowed
states an event leads to (an answer may or may not be the last outstanding one) is decided by what the new record holds.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

from taskgate.domain.events import (
    AnswerForwarded,
    CallFaulted,
    CallKept,
    CallSucceeded,
    CancelRequested,
    Dispatched,
    InputAnswered,
    InputClaimed,
    InputKept,
    InputRequested,
    InputWithdrawn,
    Progressed,
    ResultRetrieved,
    RoundLeft,
    TakenOver,
    TaskEvent,
)
from taskgate.domain.record import (
    Faulted,
    InputRequest,
    Lease,
    SealedCheckpoint,
    Succeeded,
    TaskRecord,
    TaskStatus,
    altered,
)
from taskgate.errors import IllegalTransition

MAX_GIVEN: Final = 1024 * 1024
"""Characters of the answers that are kept for a round: the head, written at every change, has them."""

WORKING, INPUT_REQUIRED = TaskStatus.WORKING, TaskStatus.INPUT_REQUIRED
COMPLETED, FAILED, CANCELLED = TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.CANCELLED

TRANSITIONS: Final[Mapping[tuple[TaskStatus, type[Any]], frozenset[TaskStatus]]] = MappingProxyType(
    {
        (WORKING, Dispatched): frozenset({WORKING}),
        (WORKING, Progressed): frozenset({WORKING}),
        (WORKING, InputRequested): frozenset({INPUT_REQUIRED}),
        (WORKING, AnswerForwarded): frozenset({WORKING}),
        (WORKING, CallKept): frozenset({WORKING}),
        (WORKING, RoundLeft): frozenset({WORKING}),
        (WORKING, CallSucceeded): frozenset({COMPLETED}),
        (WORKING, CallFaulted): frozenset({FAILED}),
        (WORKING, CancelRequested): frozenset({CANCELLED}),
        (WORKING, TakenOver): frozenset({WORKING}),
        (INPUT_REQUIRED, Dispatched): frozenset({WORKING}),
        (INPUT_REQUIRED, Progressed): frozenset({INPUT_REQUIRED}),
        (INPUT_REQUIRED, InputRequested): frozenset({INPUT_REQUIRED}),
        (INPUT_REQUIRED, InputClaimed): frozenset({INPUT_REQUIRED}),
        (INPUT_REQUIRED, InputAnswered): frozenset({INPUT_REQUIRED, WORKING}),
        (INPUT_REQUIRED, InputKept): frozenset({INPUT_REQUIRED}),
        (INPUT_REQUIRED, InputWithdrawn): frozenset({INPUT_REQUIRED, WORKING}),
        (INPUT_REQUIRED, AnswerForwarded): frozenset({INPUT_REQUIRED}),
        (INPUT_REQUIRED, CallKept): frozenset({INPUT_REQUIRED}),
        (INPUT_REQUIRED, RoundLeft): frozenset({INPUT_REQUIRED}),
        (INPUT_REQUIRED, CallSucceeded): frozenset({COMPLETED}),
        (INPUT_REQUIRED, CallFaulted): frozenset({FAILED}),
        (INPUT_REQUIRED, CancelRequested): frozenset({CANCELLED}),
        (INPUT_REQUIRED, TakenOver): frozenset({INPUT_REQUIRED}),
        (COMPLETED, ResultRetrieved): frozenset({COMPLETED}),
        (FAILED, ResultRetrieved): frozenset({FAILED}),
    }
)

_UNSEEN = (InputClaimed, InputKept, AnswerForwarded, CallKept, RoundLeft, TakenOver, ResultRetrieved)
"""Events that change nothing a host can see, and so leave `updated_at` alone."""


def advance(record: TaskRecord, event: TaskEvent, now: datetime) -> TaskRecord:
    """The record after `event`, one revision on.

    Raises IllegalTransition when the state has no row for the event, or when the event names an input request that is
    not outstanding. A terminal record keeps no inputs, answers or lease, and nothing of its call.
    """
    allowed = TRANSITIONS.get((record.status, type(event)))
    if allowed is None:
        raise IllegalTransition(f"{type(event).__name__} while {record.status}")
    changes = _CHANGES[type(event)](record, event)
    status = changes.setdefault("status", record.status)
    assert status in allowed, (record.status, event, status)
    if status.is_terminal:
        changes.update(inputs=(), answers={}, kept=None, lease=None)
    if not isinstance(event, _UNSEEN) and not (isinstance(event, Dispatched) and _looks_the_same(record, changes)):
        changes["updated_at"] = max(record.updated_at, now)
    if (status is INPUT_REQUIRED) is not (record.status is INPUT_REQUIRED):
        changes["waiting_since"] = changes["updated_at"] if status is INPUT_REQUIRED else None
    return altered(record, revision=record.revision + 1, **changes)


def _dispatched(record: TaskRecord, _: Dispatched) -> dict[str, Any]:
    # What was said of a place in the queue, or of an earlier run, is over.
    if not record.dispatched and record.status is WORKING:
        return {"dispatched": True, "status_message": None}
    if not record.reruns:
        raise IllegalTransition("dispatched twice")
    begun_anew: dict[str, Any] = {"inputs": (), "answers": {}, "kept": None}
    return {"status": WORKING, "status_message": None, "reruns": record.reruns - 1, **begun_anew}


def _looks_the_same(record: TaskRecord, changes: dict[str, Any]) -> bool:
    return record.status is changes["status"] and record.status_message == changes["status_message"]


def _progressed(_: TaskRecord, event: Progressed) -> dict[str, Any]:
    return {"status_message": event.message}


def _input_requested(record: TaskRecord, event: InputRequested) -> dict[str, Any]:
    if event.request.key != record.next_input_key:
        raise IllegalTransition("an input key out of turn")
    inputs, kept = (*record.inputs, event.request), event.kept or record.kept
    return {"status": INPUT_REQUIRED, "inputs": inputs, "inputs_made": record.inputs_made + 1, "kept": kept}


def _input_claimed(record: TaskRecord, event: InputClaimed) -> dict[str, Any]:
    _unanswered(record, event.key)
    inputs = tuple(
        replace(request, claimed_by=event.stream) if request.key == event.key else request for request in record.inputs
    )
    return {"inputs": inputs}


def _input_answered(record: TaskRecord, event: InputAnswered) -> dict[str, Any]:
    _unanswered(record, event.key)
    return {**_without(record, event.key), "answers": {**record.answers, event.key: event.response}}


def _input_kept(record: TaskRecord, event: InputKept) -> dict[str, Any]:
    _unanswered(record, event.key)
    inputs = tuple(
        replace(request, claimed_by=None, kept_as=event.kept_as) if request.key == event.key else request
        for request in record.inputs
    )
    return {"inputs": inputs, "answers": {**record.answers, event.key: event.response}}


def _input_withdrawn(record: TaskRecord, event: InputWithdrawn) -> dict[str, Any]:
    return _without(record, event.key)


def _without(record: TaskRecord, key: str) -> dict[str, Any]:
    _outstanding(record, key)
    inputs = tuple(request for request in record.inputs if request.key != key)
    return {"status": INPUT_REQUIRED if inputs else WORKING, "inputs": inputs}


def _answer_forwarded(record: TaskRecord, event: AnswerForwarded) -> dict[str, Any]:
    if event.key not in record.answers:
        raise IllegalTransition(f"no answer under {event.key}")
    left = {key: answer for key, answer in record.answers.items() if key != event.key}
    if record.kept is None:
        return {"answers": left}
    return {"answers": left, "kept": _with_answer(record.kept, event.key, record.answers[event.key])}


def _with_answer(kept: SealedCheckpoint, key: str, answer: str) -> SealedCheckpoint | None:
    """The round with one answer more; None where that is too much to keep."""
    given = {**kept.given, key: answer}
    return replace(kept, given=given) if sum(map(len, given.values())) <= MAX_GIVEN else None


def _call_kept(record: TaskRecord, event: CallKept) -> dict[str, Any]:
    if not event.arrived:
        return {"kept": event.kept}
    left = {key: answer for key, answer in record.answers.items() if key not in event.arrived}
    return {"kept": event.kept, "answers": left}


def _round_left(_: TaskRecord, __: RoundLeft) -> dict[str, Any]:
    # Also where there is none: it may have been written before, although the store could not say so.
    return {"kept": None, "answers": {}}


def _call_succeeded(_: TaskRecord, event: CallSucceeded) -> dict[str, Any]:
    outcome = Succeeded(result=event.result, tool_error=event.tool_error)
    return {
        "status": COMPLETED,
        "status_message": event.message,
        "tool_error": event.tool_error,
        "outcome": outcome,
    }


def _call_faulted(record: TaskRecord, event: CallFaulted) -> dict[str, Any]:
    outcome = Faulted(error=event.error, reason=event.reason)
    # What has not run may be made again under the same name.
    key = None if event.unsent else record.repeat_key
    return {"status": FAILED, "status_message": event.message, "outcome": outcome, "repeat_key": key}


def _cancel_requested(_: TaskRecord, event: CancelRequested) -> dict[str, Any]:
    return {"status": CANCELLED, "status_message": "Cancelled on request"}


def _taken_over(record: TaskRecord, _: TakenOver) -> dict[str, Any]:
    return {"inputs": tuple(_freed(request, record.lease) for request in record.inputs)}


def _freed(request: InputRequest, lease: Lease | None) -> InputRequest:
    """The request as it is for who has the lease, whose own streams are still there."""
    claim = request.claimed_by
    is_carried = claim is None or (lease is not None and claim.startswith(f"{lease.holder}/"))
    return request if is_carried else replace(request, claimed_by=None)


def _result_retrieved(record: TaskRecord, _: ResultRetrieved) -> dict[str, Any]:
    if record.retrieved:
        raise IllegalTransition("retrieved for the first time twice")
    return {"retrieved": True}


def _unanswered(record: TaskRecord, key: str) -> None:
    if all(request.key != key or request.kept_as is not None for request in record.inputs):
        raise IllegalTransition(f"no unanswered input under {key}")


def _outstanding(record: TaskRecord, key: str) -> None:
    if all(request.key != key for request in record.inputs):
        raise IllegalTransition(f"no outstanding input under {key}")


_CHANGES: Final[Mapping[type[Any], Callable[[TaskRecord, Any], dict[str, Any]]]] = MappingProxyType(
    {
        Dispatched: _dispatched,
        Progressed: _progressed,
        InputRequested: _input_requested,
        InputClaimed: _input_claimed,
        InputAnswered: _input_answered,
        InputKept: _input_kept,
        InputWithdrawn: _input_withdrawn,
        AnswerForwarded: _answer_forwarded,
        CallKept: _call_kept,
        RoundLeft: _round_left,
        CallSucceeded: _call_succeeded,
        CallFaulted: _call_faulted,
        CancelRequested: _cancel_requested,
        TakenOver: _taken_over,
        ResultRetrieved: _result_retrieved,
    }
)
