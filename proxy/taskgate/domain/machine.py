"""The state machine of a task: `advance` is the only way in which a task's state changes.

`TRANSITIONS` says which event is possible in which state, and to which states it may lead; an event
without a row is illegal there. Terminal states absorb: only the retrieval of the outcome follows.
If a row allows two states, the new record decides: an answer may or may not be the last outstanding
one.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

from taskgate.domain.events import (
    AnswerForwarded,
    CallFaulted,
    CallSucceeded,
    CancelRequested,
    CheckpointSaved,
    Dispatched,
    DispatchWithdrawn,
    InputAnswered,
    InputClaimed,
    InputDeferred,
    InputRequested,
    InputWithdrawn,
    KeyReleased,
    Progressed,
    ResultRetrieved,
    RoundDispatched,
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
    draft,
    freeze,
    kept_ttl,
)
from taskgate.errors import IllegalTransition

MAX_CHECKPOINT_ANSWERS: Final = 1024 * 1024
"""Characters of the answers in a checkpoint: they are in the head, which every change rewrites."""

NO_TIME: Final = timedelta()

_CANCELLED: Final = "Cancelled"
BY_OPERATOR: Final = f"{_CANCELLED} by an operator"
"""The status message of a task that an operator cancelled, before the reason."""

WORKING, INPUT_REQUIRED = TaskStatus.WORKING, TaskStatus.INPUT_REQUIRED
COMPLETED, FAILED, CANCELLED = TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.CANCELLED

TRANSITIONS: Final[Mapping[tuple[TaskStatus, type[Any]], frozenset[TaskStatus]]] = MappingProxyType(
    {
        (WORKING, Dispatched): frozenset({WORKING}),
        (WORKING, DispatchWithdrawn): frozenset({WORKING}),
        (WORKING, Progressed): frozenset({WORKING}),
        (WORKING, InputRequested): frozenset({INPUT_REQUIRED}),
        (WORKING, AnswerForwarded): frozenset({WORKING}),
        (WORKING, CheckpointSaved): frozenset({WORKING}),
        (WORKING, RoundDispatched): frozenset({WORKING}),
        (WORKING, CallSucceeded): frozenset({COMPLETED}),
        (WORKING, CallFaulted): frozenset({FAILED}),
        (WORKING, CancelRequested): frozenset({CANCELLED}),
        (WORKING, TakenOver): frozenset({WORKING}),
        (INPUT_REQUIRED, Dispatched): frozenset({WORKING}),
        (INPUT_REQUIRED, DispatchWithdrawn): frozenset({WORKING}),
        (INPUT_REQUIRED, Progressed): frozenset({INPUT_REQUIRED}),
        (INPUT_REQUIRED, InputRequested): frozenset({INPUT_REQUIRED}),
        (INPUT_REQUIRED, InputClaimed): frozenset({INPUT_REQUIRED}),
        (INPUT_REQUIRED, InputAnswered): frozenset({INPUT_REQUIRED, WORKING}),
        (INPUT_REQUIRED, InputDeferred): frozenset({INPUT_REQUIRED}),
        (INPUT_REQUIRED, InputWithdrawn): frozenset({INPUT_REQUIRED, WORKING}),
        (INPUT_REQUIRED, AnswerForwarded): frozenset({INPUT_REQUIRED}),
        (INPUT_REQUIRED, CheckpointSaved): frozenset({INPUT_REQUIRED}),
        (INPUT_REQUIRED, RoundDispatched): frozenset({INPUT_REQUIRED}),
        (INPUT_REQUIRED, CallSucceeded): frozenset({COMPLETED}),
        (INPUT_REQUIRED, CallFaulted): frozenset({FAILED}),
        (INPUT_REQUIRED, CancelRequested): frozenset({CANCELLED}),
        (INPUT_REQUIRED, TakenOver): frozenset({INPUT_REQUIRED}),
        (COMPLETED, ResultRetrieved): frozenset({COMPLETED}),
        (FAILED, ResultRetrieved): frozenset({FAILED}),
        (COMPLETED, KeyReleased): frozenset({COMPLETED}),
        (FAILED, KeyReleased): frozenset({FAILED}),
        (CANCELLED, KeyReleased): frozenset({CANCELLED}),
    }
)

# A dispatch is not among them: it is invisible only if neither status nor message change (`advance`).
_INVISIBLE: Final[frozenset[type[Any]]] = frozenset(
    {
        DispatchWithdrawn,
        InputClaimed,
        InputDeferred,
        AnswerForwarded,
        CheckpointSaved,
        RoundDispatched,
        TakenOver,
        ResultRetrieved,
        KeyReleased,
    }
)
"""Events that hosts cannot see; they do not move `updated_at`."""


def cancellation(record: TaskRecord) -> str:
    """Who cancelled a task and why, as it goes on after "was cancelled"; nothing for a host."""
    message = record.status_message or ""
    return message.removeprefix(_CANCELLED) if message.startswith(BY_OPERATOR) else ""


def advance(record: TaskRecord, event: TaskEvent, now: datetime, keep: timedelta = NO_TIME) -> TaskRecord:
    """The record after `event`, with the next revision.

    Raises IllegalTransition if the state has no row for the event, or if the event names an input
    request that is not outstanding. A terminal record has no inputs, answers, checkpoint or lease. It is
    kept for at least `keep` from its end on.
    """
    kind, before = type(event), record.status
    allowed = TRANSITIONS.get((before, kind))
    if allowed is None:
        raise IllegalTransition(f"{kind.__name__} while {before}")
    new = draft(record)
    _CHANGES[kind](new, record, event)
    status = new.status
    assert status in allowed, (before, event, status)
    if status.is_terminal:
        new.inputs, new.answers, new.checkpoint, new.lease = (), {}, None, None
    is_invisible = kind in _INVISIBLE or (
        kind is Dispatched and before is status and record.status_message == new.status_message
    )
    if not is_invisible:
        new.updated_at = max(record.updated_at, now)
    if kind is Dispatched and new.dispatched and not record.dispatched:
        new.dispatched_at = max(record.created_at, now)
    if status.is_terminal and not before.is_terminal:
        age = new.updated_at - record.created_at
        # Usually it is kept for as long as was granted. Each task ends once: no call for that.
        if age * 4 > record.ttl * 3 or age + keep > record.ttl:
            new.ttl = kept_ttl(record, new.updated_at, keep)
        new.expires_at = record.created_at + new.ttl
    if (status is INPUT_REQUIRED) is not (before is INPUT_REQUIRED):
        new.waiting_since = new.updated_at if status is INPUT_REQUIRED else None
    new.revision = record.revision + 1
    return freeze(new)


# Each of these changes `new`, which is a draft of `record`.


def _dispatched(new: Any, record: TaskRecord, _: Dispatched) -> None:
    # The status message of the queue, or of an earlier run, is out of date.
    new.status_message = None
    if not record.dispatched and record.status is WORKING:
        new.dispatched = True
        return
    if not record.reruns:
        raise IllegalTransition("dispatched twice")
    new.status, new.reruns = WORKING, record.reruns - 1
    new.inputs, new.answers, new.checkpoint = (), {}, None


def _dispatch_withdrawn(new: Any, _: TaskRecord, __: DispatchWithdrawn) -> None:
    # What the server asked before it refused the call is asked anew by the call that is sent.
    new.dispatched, new.dispatched_at, new.status = False, None, WORKING
    new.inputs, new.answers, new.checkpoint = (), {}, None


def _progressed(new: Any, _: TaskRecord, event: Progressed) -> None:
    new.status_message = event.message


def _input_requested(new: Any, record: TaskRecord, event: InputRequested) -> None:
    if event.request.key != record.next_input_key:
        raise IllegalTransition("an input key out of turn")
    new.status = INPUT_REQUIRED
    new.inputs, new.inputs_made = (*record.inputs, event.request), record.inputs_made + 1
    new.checkpoint = event.checkpoint or record.checkpoint


def _input_claimed(new: Any, record: TaskRecord, event: InputClaimed) -> None:
    _unanswered(record, event.key)
    new.inputs = tuple(
        replace(request, claimed_by=event.stream) if request.key == event.key else request for request in record.inputs
    )


def _input_answered(new: Any, record: TaskRecord, event: InputAnswered) -> None:
    _unanswered(record, event.key)
    _remove_input(new, record, event.key)
    new.answers = {**record.answers, event.key: event.response}


def _input_deferred(new: Any, record: TaskRecord, event: InputDeferred) -> None:
    _unanswered(record, event.key)
    new.inputs = tuple(
        replace(request, claimed_by=None, deferred_to=event.deferred_to) if request.key == event.key else request
        for request in record.inputs
    )
    new.answers = {**record.answers, event.key: event.response}


def _input_withdrawn(new: Any, record: TaskRecord, event: InputWithdrawn) -> None:
    _remove_input(new, record, event.key)


def _remove_input(new: Any, record: TaskRecord, key: str) -> None:
    _outstanding(record, key)
    new.inputs = tuple(request for request in record.inputs if request.key != key)
    new.status = INPUT_REQUIRED if new.inputs else WORKING


def _answer_forwarded(new: Any, record: TaskRecord, event: AnswerForwarded) -> None:
    if event.key not in record.answers:
        raise IllegalTransition(f"no answer under {event.key}")
    new.answers = {key: answer for key, answer in record.answers.items() if key != event.key}
    if record.checkpoint is not None:
        new.checkpoint = _with_answer(record.checkpoint, event.key, record.answers[event.key])


def _with_answer(checkpoint: SealedCheckpoint, key: str, answer: str) -> SealedCheckpoint | None:
    """The checkpoint with one more answer; None if the answers get too long to store."""
    answers = {**checkpoint.answers, key: answer}
    if sum(map(len, answers.values())) > MAX_CHECKPOINT_ANSWERS:
        return None
    return replace(checkpoint, answers=answers)


def _checkpoint_saved(new: Any, record: TaskRecord, event: CheckpointSaved) -> None:
    new.checkpoint = event.checkpoint
    if event.delivered:
        new.answers = {key: answer for key, answer in record.answers.items() if key not in event.delivered}


def _round_dispatched(new: Any, _: TaskRecord, __: RoundDispatched) -> None:
    # Allowed without a checkpoint too: the event may have been written before, in a write that seemed to fail.
    new.checkpoint, new.answers = None, {}


def _call_succeeded(new: Any, _: TaskRecord, event: CallSucceeded) -> None:
    new.status, new.status_message, new.tool_error = COMPLETED, event.message, event.tool_error
    new.outcome = Succeeded(result=event.result, tool_error=event.tool_error)


def _call_faulted(new: Any, _: TaskRecord, event: CallFaulted) -> None:
    new.status, new.status_message = FAILED, event.message
    new.outcome = Faulted(error=event.error, reason=event.reason)
    if event.unsent:
        # A call that has not run may be repeated under the same idempotency key.
        new.idempotency_digest = None


def _cancel_requested(new: Any, _: TaskRecord, event: CancelRequested) -> None:
    new.status, new.status_message = CANCELLED, "Cancelled on request"
    if event.by == "operator":
        # The message is all that is stored of it.
        new.status_message = BY_OPERATOR if event.reason is None else f"{BY_OPERATOR}: {event.reason}"


def _taken_over(new: Any, record: TaskRecord, _: TakenOver) -> None:
    new.inputs = tuple(_without_foreign_claim(request, record.lease) for request in record.inputs)


def _without_foreign_claim(request: InputRequest, lease: Lease | None) -> InputRequest:
    """The request without a claim of another process than the holder of the lease."""
    claim = request.claimed_by
    is_valid = claim is None or (lease is not None and claim.startswith(f"{lease.holder}/"))
    return request if is_valid else replace(request, claimed_by=None)


def _key_released(new: Any, _: TaskRecord, __: KeyReleased) -> None:
    new.idempotency_digest = None


def _result_retrieved(new: Any, record: TaskRecord, _: ResultRetrieved) -> None:
    if record.retrieved:
        raise IllegalTransition("retrieved for the first time twice")
    new.retrieved = True


def _unanswered(record: TaskRecord, key: str) -> None:
    if all(request.key != key or request.deferred_to is not None for request in record.inputs):
        raise IllegalTransition(f"no unanswered input under {key}")


def _outstanding(record: TaskRecord, key: str) -> None:
    if all(request.key != key for request in record.inputs):
        raise IllegalTransition(f"no outstanding input under {key}")


_CHANGES: Final[Mapping[type[Any], Callable[[Any, TaskRecord, Any], None]]] = MappingProxyType(
    {
        Dispatched: _dispatched,
        DispatchWithdrawn: _dispatch_withdrawn,
        Progressed: _progressed,
        InputRequested: _input_requested,
        InputClaimed: _input_claimed,
        InputAnswered: _input_answered,
        InputDeferred: _input_deferred,
        InputWithdrawn: _input_withdrawn,
        AnswerForwarded: _answer_forwarded,
        CheckpointSaved: _checkpoint_saved,
        RoundDispatched: _round_dispatched,
        CallSucceeded: _call_succeeded,
        CallFaulted: _call_faulted,
        CancelRequested: _cancel_requested,
        TakenOver: _taken_over,
        ResultRetrieved: _result_retrieved,
        KeyReleased: _key_released,
    }
)
