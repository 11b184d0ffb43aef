"""What is told of a change of a record: where it moved, what it was asked, and what became of each question."""

from datetime import timedelta
from typing import Any

import pytest

from helpers.manual_clock import EPOCH
from helpers.records import new_input, new_record
from taskgate.domain.events import (
    AnswerForwarded,
    CallFaulted,
    CallSucceeded,
    CancelRequested,
    Dispatched,
    InputAnswered,
    InputClaimed,
    InputDeferred,
    InputRequested,
    InputResolution,
    InputWithdrawn,
    Progressed,
    ResultRetrieved,
    TaskEvent,
)
from taskgate.domain.machine import advance
from taskgate.domain.record import FaultReason, TaskRecord, TaskStatus
from taskgate.lifecycle.transitions import report, report_purged
from taskgate.telemetry.events import (
    InputRequestOpened,
    InputSettled,
    InputWaited,
    TaskExpired,
    TaskFaulted,
    TaskFinished,
    TaskPurged,
    TaskTransitioned,
)
from unit.lifecycle.recorded_events import RecordedEvents

SECOND = timedelta(seconds=1)
WORKING, INPUT_REQUIRED = TaskStatus.WORKING, TaskStatus.INPUT_REQUIRED
ACCEPTED = '{"result":{"action":"accept","content":{}}}'
DECLINED = '{"result":{"action":"decline"}}'
DONE = CallSucceeded(result="{}", tool_error=False)


def told(record: TaskRecord, event: TaskEvent, at: float = 9) -> tuple[TaskRecord, list[Any]]:
    """The record after an event, and what is told of it."""
    emitted, after = RecordedEvents(), advance(record, event, EPOCH + at * SECOND)
    report(emitted, record, event, after)
    return after, emitted.all


def asked(*methods: str, at: float = 1, **changes: Any) -> TaskRecord:
    """A task that was asked these, all at once."""
    record = new_record(**{"dispatched": True, **changes})
    for method in methods or ("elicitation/create",):
        record, _ = told(record, InputRequested(request=new_input(record.next_input_key, method=method)), at)
    return record


# --- moves -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "status", "reason", "size"),
    [
        (DONE, TaskStatus.COMPLETED, "ok", 2),
        (CallSucceeded(result="{ }", tool_error=True), TaskStatus.COMPLETED, "tool_error", 3),
        (CallFaulted(error="{}", reason=FaultReason.CLOSED, message="no"), TaskStatus.FAILED, "closed", None),
        (CancelRequested(), TaskStatus.CANCELLED, "client", None),
    ],
)
def test_an_end_is_told_with_the_record_after_it_and_why_it_ended(
    event: TaskEvent, status: TaskStatus, reason: str, size: int | None
) -> None:
    after, emitted = told(new_record(created_at=EPOCH), event)
    finished = TaskFinished(after, status, reason, 9 * SECOND, size)
    assert emitted[:2] == [TaskTransitioned(after, WORKING), finished]
    assert emitted[2:] == ([TaskFaulted(after, reason)] if status is TaskStatus.FAILED else [])


def test_an_error_that_the_server_answered_is_no_fault() -> None:
    error = CallFaulted(error="{}", reason=FaultReason.JSONRPC_ERROR, message="no")
    _, emitted = told(new_record(created_at=EPOCH), error)
    assert [type(each) for each in emitted] == [TaskTransitioned, TaskFinished]


@pytest.mark.parametrize("event", [Dispatched(), Progressed(message="1/2")])
def test_what_moves_nothing_is_not_told(event: TaskEvent) -> None:
    assert told(new_record(), event)[1] == []


def test_that_an_outcome_was_retrieved_is_no_change_to_tell_of() -> None:
    assert told(told(new_record(), DONE)[0], ResultRetrieved())[1] == []


# --- questions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "kind"),
    [("elicitation/create", "elicitation"), ("sampling/createMessage", "sampling"), ("roots/list", "roots")],
)
def test_a_question_is_told_by_its_kind_and_the_first_one_moves_the_task(method: str, kind: str) -> None:
    after, emitted = told(new_record(), InputRequested(request=new_input("input-1", method=method)))
    assert emitted == [TaskTransitioned(after, WORKING), InputRequestOpened(after, "input-1", kind)]
    again, emitted = told(after, InputRequested(request=new_input("input-2", method=method)))
    assert emitted == [InputRequestOpened(again, "input-2", kind)]


@pytest.mark.parametrize(
    ("event", "outcome"),
    [
        (InputAnswered(key="input-1", response=ACCEPTED), "answered"),
        (InputAnswered(key="input-1", response=DECLINED), "declined"),
        (InputAnswered(key="input-1", response='{"error":{"code":-1,"message":"no"}}'), "declined"),
        (InputWithdrawn(key="input-1"), "superseded"),
        (InputWithdrawn(key="input-1", resolution=InputResolution.EXPIRED), "expired"),
        (InputWithdrawn(key="input-1", resolution=InputResolution.ANSWERED), "answered"),
    ],
)
def test_a_question_is_settled_once_and_the_others_stay_as_they_are(event: TaskEvent, outcome: str) -> None:
    record = asked("elicitation/create", "roots/list")
    after, emitted = told(record, event)
    assert emitted == [InputSettled(after, "input-1", "elicitation", outcome)]


@pytest.mark.parametrize("event", [DONE, CancelRequested(), Dispatched()])
def test_nobody_needs_an_answer_once_the_call_is_over_or_made_again(event: TaskEvent) -> None:
    after, emitted = told(asked("elicitation/create", "roots/list", reruns=1), event)
    assert [each for each in emitted if not isinstance(each, TaskFinished)] == [
        TaskTransitioned(after, INPUT_REQUIRED),
        InputWaited(after, 8 * SECOND),
        InputSettled(after, "input-1", "elicitation", "superseded"),
        InputSettled(after, "input-2", "roots", "superseded"),
    ]


@pytest.mark.parametrize(
    "event",
    [
        InputClaimed(key="input-1", stream="s"),
        InputDeferred(key="input-1", response="{}", deferred_to="theirs"),
        Progressed(message="still"),
    ],
)
def test_a_question_that_is_only_on_its_way_is_not_settled(event: TaskEvent) -> None:
    assert told(asked(), event)[1] == []


def test_what_a_server_asks_about_tasks_of_its_host_is_no_question_to_anybody() -> None:
    record = asked("elicitation/create", "tasks/result")
    after, emitted = told(record, CancelRequested())
    assert [event for event in emitted if isinstance(event, InputSettled)] == [
        InputSettled(after, "input-1", "elicitation", "superseded")
    ]
    assert told(record, InputRequested(request=new_input("input-3", method="tasks/get")))[1] == []


# --- how long a host let a task wait ---------------------------------------------------------------------------------


def test_a_wait_is_from_the_first_question_to_the_last_answer() -> None:
    record = asked("elicitation/create", "elicitation/create", at=1)
    record, emitted = told(record, InputAnswered(key="input-1", response=ACCEPTED), at=5)
    assert not any(isinstance(event, InputWaited) for event in emitted)
    record, emitted = told(record, InputAnswered(key="input-2", response=ACCEPTED), at=7)
    assert [event for event in emitted if isinstance(event, InputWaited)] == [InputWaited(record, 6 * SECOND)]
    record, emitted = told(record, AnswerForwarded(key="input-1"), at=8)
    assert emitted == []


def test_each_wait_is_told_by_itself() -> None:
    record = asked(at=1)
    record, _ = told(record, InputAnswered(key="input-1", response=ACCEPTED), at=2)
    record, _ = told(record, InputRequested(request=new_input("input-2")), at=10)
    record, emitted = told(record, DONE, at=13)
    assert InputWaited(record, 3 * SECOND) in emitted


def test_a_clock_that_went_back_makes_no_wait_shorter_than_nothing() -> None:
    record, emitted = told(asked(at=5), InputAnswered(key="input-1", response=ACCEPTED), at=-5)
    assert InputWaited(record, timedelta()) in emitted


def test_a_record_of_an_earlier_version_that_waits_does_not_say_since_when() -> None:
    record = new_record(status=INPUT_REQUIRED, inputs=(new_input(),), inputs_made=1)
    after, emitted = told(record, InputAnswered(key="input-1", response=ACCEPTED))
    assert emitted == [
        TaskTransitioned(after, INPUT_REQUIRED),
        InputSettled(after, "input-1", "elicitation", "answered"),
    ]


# --- tasks that expire -----------------------------------------------------------------------------------------------


def test_what_nobody_answered_while_a_task_lived_expires_with_it() -> None:
    emitted, record = RecordedEvents(), asked("elicitation/create", "tasks/get", at=60)
    report_purged(emitted, record)
    assert emitted.all[:2] == [
        InputWaited(record, record.ttl - 60 * SECOND),
        InputSettled(record, "input-1", "elicitation", "expired"),
    ]


@pytest.mark.parametrize(("dispatched", "state"), [(True, "working"), (False, "queued")])
def test_a_task_that_expires_has_failed_and_one_that_had_ended_is_only_gone(dispatched: bool, state: str) -> None:
    emitted, record = RecordedEvents(), new_record(dispatched=dispatched)
    report_purged(emitted, record)
    failed = TaskFinished(record, TaskStatus.FAILED, "expired", record.ttl, None)
    assert emitted.all == [TaskExpired(record, state), failed, TaskFaulted(record, "expired"), TaskPurged(record)]
    emitted, (ended, _) = RecordedEvents(), told(record, DONE)
    report_purged(emitted, ended)
    assert emitted.all == [TaskPurged(ended)]
