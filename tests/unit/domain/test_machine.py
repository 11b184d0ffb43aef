"""Every state meets every event: what the table allows happens, and all else is an illegal transition."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from helpers.manual_clock import EPOCH
from requirements import covers
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
from taskgate.domain.machine import TRANSITIONS, advance
from taskgate.domain.record import Faulted, FaultReason, SealedCheckpoint, Succeeded, TaskRecord, TaskStatus
from taskgate.errors import IllegalTransition
from unit.domain.records import EVENTS, question, record

WORKING, INPUT_REQUIRED = TaskStatus.WORKING, TaskStatus.INPUT_REQUIRED
COMPLETED, FAILED, CANCELLED = TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.CANCELLED
LATER, KEPT = EPOCH + timedelta(seconds=9), SealedCheckpoint(sealed="s")

# An answer of an earlier question waits in both running states, so that every event finds what it names.
RECORDS: dict[TaskStatus, TaskRecord] = {
    WORKING: record(inputs_made=1, answers={"input-1": "{}"}),
    INPUT_REQUIRED: record(
        status=INPUT_REQUIRED,
        inputs=(question(2), question(3)),
        inputs_made=3,
        answers={"input-1": "{}"},
        dispatched=True,
        reruns=1,
        waiting_since=EPOCH,
    ),
    COMPLETED: record(status=COMPLETED, outcome=Succeeded(result="{}", tool_error=False), lease=None),
    FAILED: record(status=FAILED, outcome=Faulted(error="{}", reason=FaultReason.CLOSED), lease=None),
    CANCELLED: record(status=CANCELLED, lease=None),
}


def event_for(kind: type[Any], task: TaskRecord) -> TaskEvent:
    """An event of that kind that nothing but the state can forbid."""
    made: dict[type[Any], TaskEvent] = {
        Dispatched: Dispatched(),
        Progressed: Progressed(message="3/10"),
        InputRequested: InputRequested(request=question(task.inputs_made + 1)),
        InputClaimed: InputClaimed(key="input-2", stream="s"),
        InputAnswered: InputAnswered(key="input-2", response='{"x":1}'),
        InputKept: InputKept(key="input-2", response="{}", kept_as="theirs"),
        InputWithdrawn: InputWithdrawn(key="input-2"),
        AnswerForwarded: AnswerForwarded(key="input-1"),
        CallKept: CallKept(kept=KEPT),
        RoundLeft: RoundLeft(),
        CallSucceeded: CallSucceeded(result='{"content":[]}', tool_error=False),
        CallFaulted: CallFaulted(error='{"code":-1,"message":"m"}', reason=FaultReason.TIMEOUT, message="Too late"),
        CancelRequested: CancelRequested(),
        TakenOver: TakenOver(),
        ResultRetrieved: ResultRetrieved(),
    }
    return made[kind]


# Written out by hand: the table is compared with this, never with itself. Nothing stands for "illegal".
EXPECTED: dict[type[Any], tuple[set[TaskStatus] | None, set[TaskStatus] | None]] = {
    # from: working, input_required
    Dispatched: ({WORKING}, {WORKING}),
    Progressed: ({WORKING}, {INPUT_REQUIRED}),
    InputRequested: ({INPUT_REQUIRED}, {INPUT_REQUIRED}),
    InputClaimed: (None, {INPUT_REQUIRED}),
    InputAnswered: (None, {INPUT_REQUIRED, WORKING}),
    InputKept: (None, {INPUT_REQUIRED}),
    InputWithdrawn: (None, {INPUT_REQUIRED, WORKING}),
    AnswerForwarded: ({WORKING}, {INPUT_REQUIRED}),
    CallKept: ({WORKING}, {INPUT_REQUIRED}),
    RoundLeft: ({WORKING}, {INPUT_REQUIRED}),
    CallSucceeded: ({COMPLETED}, {COMPLETED}),
    CallFaulted: ({FAILED}, {FAILED}),
    CancelRequested: ({CANCELLED}, {CANCELLED}),
    TakenOver: ({WORKING}, {INPUT_REQUIRED}),
    ResultRetrieved: (None, None),
}


def expected(status: TaskStatus, kind: type[Any]) -> set[TaskStatus] | None:
    if status.is_terminal:
        # A cancelled task has no outcome that anybody could be given.
        return {status} if kind is ResultRetrieved and status is not CANCELLED else None
    return EXPECTED[kind][status is INPUT_REQUIRED]


@covers("L-STAT-1")
@pytest.mark.parametrize("kind", EVENTS)
@pytest.mark.parametrize("status", TaskStatus)
def test_every_state_meets_every_event(status: TaskStatus, kind: type[Any]) -> None:
    task, allowed = RECORDS[status], expected(status, kind)
    assert TRANSITIONS.get((status, kind)) == allowed
    if allowed is None:
        with pytest.raises(IllegalTransition, match=f"^{kind.__name__} while {status.value}$"):
            advance(task, event_for(kind, task), LATER)
    else:
        assert advance(task, event_for(kind, task), LATER).status in allowed


def test_the_table_has_no_other_rows_and_cannot_be_written() -> None:
    assert set(TRANSITIONS) == {(status, kind) for status in TaskStatus for kind in EVENTS if expected(status, kind)}
    with pytest.raises(TypeError):
        TRANSITIONS[COMPLETED, CancelRequested] = frozenset()  # type: ignore[index]


# --- what each event changes, and that it changes nothing else -----------------------------------------------------

OVER: dict[str, Any] = {"inputs": (), "answers": {}, "waiting_since": None, "updated_at": LATER}
RAN = {**OVER, "status_message": None, "lease": None}
ASKED = {"status": INPUT_REQUIRED, "inputs": (question(2),), "inputs_made": 2, "waiting_since": LATER}
RESULT, ERROR = '{"content":[]}', '{"code":-1,"message":"m"}'
CHANGES: dict[str, tuple[TaskStatus, TaskEvent, dict[str, Any]]] = {
    "dispatched": (WORKING, Dispatched(), {"dispatched": True}),
    "dispatched again": (
        INPUT_REQUIRED,
        Dispatched(),
        {**OVER, "status": WORKING, "reruns": 0},
    ),
    "progressed": (WORKING, Progressed(message="3/10"), {"status_message": "3/10", "updated_at": LATER}),
    "asked": (
        WORKING,
        InputRequested(request=question(2)),
        {**ASKED, "updated_at": LATER},
    ),
    "asked again": (
        INPUT_REQUIRED,
        InputRequested(request=question(4)),
        {"inputs": (question(2), question(3), question(4)), "inputs_made": 4, "updated_at": LATER},
    ),
    "claimed": (
        INPUT_REQUIRED,
        InputClaimed(key="input-3", stream="s"),
        {"inputs": (question(2), question(3, claimed_by="s"))},
    ),
    "answered, others outstanding": (
        INPUT_REQUIRED,
        InputAnswered(key="input-2", response="[]"),
        {"inputs": (question(3),), "answers": {"input-1": "{}", "input-2": "[]"}, "updated_at": LATER},
    ),
    "kept by the host": (
        INPUT_REQUIRED,
        InputKept(key="input-2", response='{"result":{}}', kept_as="theirs"),
        {
            "inputs": (question(2, kept_as="theirs"), question(3)),
            "answers": {"input-1": "{}", "input-2": '{"result":{}}'},
        },
    ),
    "withdrawn, others outstanding": (
        INPUT_REQUIRED,
        InputWithdrawn(key="input-2"),
        {"inputs": (question(3),), "updated_at": LATER},
    ),
    "answer forwarded": (INPUT_REQUIRED, AnswerForwarded(key="input-1"), {"answers": {}}),
    "a call kept": (INPUT_REQUIRED, CallKept(kept=KEPT), {"kept": KEPT}),
    "a call kept whose server has an answer": (
        INPUT_REQUIRED,
        CallKept(kept=KEPT, arrived=frozenset({"input-1", "input-9"})),
        {"kept": KEPT, "answers": {}},
    ),
    "a call not kept any more": (INPUT_REQUIRED, CallKept(kept=None), {}),
    "a round left": (INPUT_REQUIRED, RoundLeft(), {"answers": {}}),
    "succeeded": (
        INPUT_REQUIRED,
        CallSucceeded(result=RESULT, tool_error=False),
        {**RAN, "status": COMPLETED, "outcome": Succeeded(result=RESULT, tool_error=False)},
    ),
    "a tool's error": (
        WORKING,
        CallSucceeded(result=RESULT, tool_error=True, message="no such file"),
        {
            **RAN,
            "status": COMPLETED,
            "status_message": "no such file",
            "tool_error": True,
            "outcome": Succeeded(result=RESULT, tool_error=True),
        },
    ),
    "faulted": (
        INPUT_REQUIRED,
        CallFaulted(error=ERROR, reason=FaultReason.CLOSED, message="Gone"),
        {**RAN, "status": FAILED, "status_message": "Gone", "outcome": Faulted(error=ERROR, reason=FaultReason.CLOSED)},
    ),
    "cancelled": (
        INPUT_REQUIRED,
        CancelRequested(),
        {**RAN, "status": CANCELLED, "status_message": "Cancelled on request"},
    ),
    "taken over": (WORKING, TakenOver(), {}),
    "taken over while its host is asked": (INPUT_REQUIRED, TakenOver(), {}),
    "retrieved": (COMPLETED, ResultRetrieved(), {"retrieved": True}),
    "a fault retrieved": (FAILED, ResultRetrieved(), {"retrieved": True}),
}


@pytest.mark.parametrize(("status", "event", "changes"), CHANGES.values(), ids=CHANGES)
def test_an_event_changes_what_it_says_and_the_revision(
    status: TaskStatus, event: TaskEvent, changes: dict[str, Any]
) -> None:
    before = replace(RECORDS[status], status_message=None)
    assert advance(before, event, LATER) == replace(before, revision=before.revision + 1, **changes)


def test_the_last_answer_sets_the_task_to_work_again() -> None:
    task = advance(RECORDS[INPUT_REQUIRED], InputAnswered(key="input-3", response="3"), LATER)
    assert task.status is INPUT_REQUIRED
    task = advance(task, InputAnswered(key="input-2", response="2"), LATER)
    assert (task.status, task.inputs) == (WORKING, ())
    assert task.answers == {"input-1": "{}", "input-3": "3", "input-2": "2"}


def test_a_task_works_again_once_its_last_question_is_withdrawn() -> None:
    task = advance(RECORDS[INPUT_REQUIRED], InputWithdrawn(key="input-3"), LATER)
    assert task.status is INPUT_REQUIRED
    task = advance(task, InputWithdrawn(key="input-2"), LATER)
    assert (task.status, task.inputs, task.answers) == (WORKING, (), {"input-1": "{}"})


def test_a_question_may_be_given_back_and_claimed_by_another_stream() -> None:
    task = RECORDS[INPUT_REQUIRED]
    for stream in ("a", None, "b"):
        task = advance(task, InputClaimed(key="input-2", stream=stream), LATER)
        assert [asked.claimed_by for asked in task.inputs] == [stream, None]


# --- what the table allows and the record does not -----------------------------------------------------------------

ILLEGAL: dict[str, tuple[TaskStatus, TaskEvent]] = {
    "a key out of turn": (WORKING, InputRequested(request=question(1))),
    "a key too far on": (INPUT_REQUIRED, InputRequested(request=question(5))),
    "a claim of no question": (INPUT_REQUIRED, InputClaimed(key="input-9", stream="s")),
    "a claim of an answered question": (INPUT_REQUIRED, InputClaimed(key="input-1", stream="s")),
    "an answer to no question": (INPUT_REQUIRED, InputAnswered(key="input-9", response="{}")),
    "a second answer": (INPUT_REQUIRED, InputAnswered(key="input-1", response="{}")),
    "a withdrawal of an answered question": (INPUT_REQUIRED, InputWithdrawn(key="input-1")),
    "no answer to forward": (WORKING, AnswerForwarded(key="input-2")),
    "an outstanding question to forward": (INPUT_REQUIRED, AnswerForwarded(key="input-2")),
}


@pytest.mark.parametrize(("status", "event"), ILLEGAL.values(), ids=ILLEGAL)
def test_an_event_that_names_what_is_not_there_is_illegal(status: TaskStatus, event: TaskEvent) -> None:
    with pytest.raises(IllegalTransition):
        advance(RECORDS[status], event, LATER)


@pytest.mark.parametrize(("unsent", "key"), [(True, None), (False, "k")])
def test_a_call_that_never_left_gives_its_name_back(unsent: bool, key: str | None) -> None:
    fault = CallFaulted(error=ERROR, reason=FaultReason.QUEUE, message="Too late", unsent=unsent)
    assert advance(replace(RECORDS[WORKING], repeat_key="k"), fault, LATER).repeat_key == key


def test_a_call_is_dispatched_once() -> None:
    task = advance(RECORDS[WORKING], Dispatched(), LATER)
    with pytest.raises(IllegalTransition):
        advance(task, Dispatched(), LATER)


# --- time ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("now", [EPOCH - timedelta(days=1), EPOCH])
def test_a_clock_that_went_back_does_not_take_the_update_back(now: datetime) -> None:
    task = replace(RECORDS[WORKING], updated_at=EPOCH)
    assert advance(task, Progressed(message="x"), now).updated_at == EPOCH


@pytest.mark.parametrize(
    ("status", "event"),
    [
        (WORKING, Dispatched()),
        (INPUT_REQUIRED, InputClaimed(key="input-2", stream="s")),
        (WORKING, AnswerForwarded(key="input-1")),
        (INPUT_REQUIRED, TakenOver()),
        (INPUT_REQUIRED, CallKept(kept=KEPT)),
        (WORKING, RoundLeft()),
        (COMPLETED, ResultRetrieved()),
    ],
    ids=lambda part: type(part).__name__,
)
def test_what_a_host_cannot_see_is_no_update(status: TaskStatus, event: TaskEvent) -> None:
    assert advance(RECORDS[status], event, LATER).updated_at == EPOCH
