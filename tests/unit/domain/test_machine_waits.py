"""What a record keeps for operators alone: since when a task waits for its host, and that its outcome was given out."""

from datetime import datetime, timedelta

import pytest

from helpers.manual_clock import EPOCH
from taskgate.domain.events import (
    CallFaulted,
    CallSucceeded,
    CancelRequested,
    Dispatched,
    InputAnswered,
    InputRequested,
    Progressed,
    ResultRetrieved,
    TaskEvent,
)
from taskgate.domain.machine import advance
from taskgate.domain.record import FaultReason
from taskgate.errors import IllegalTransition
from unit.domain.records import question, record

SECOND = timedelta(seconds=1)


def test_a_task_waits_from_its_first_question_to_its_last_answer() -> None:
    """What comes between, more questions and news of the call, begins no other wait."""
    steps: list[tuple[TaskEvent, datetime | None]] = [
        (Dispatched(), None),
        (InputRequested(request=question(1)), EPOCH + 2 * SECOND),
        (Progressed(message="x"), EPOCH + 2 * SECOND),
        (InputRequested(request=question(2)), EPOCH + 2 * SECOND),
        (InputAnswered(key="input-1", response="{}"), EPOCH + 2 * SECOND),
        (InputAnswered(key="input-2", response="{}"), None),
        (InputRequested(request=question(3)), EPOCH + 7 * SECOND),
        (CancelRequested(), None),
    ]
    task = record()
    for second, (event, since) in enumerate(steps, start=1):
        task = advance(task, event, EPOCH + second * SECOND)
        assert task.waiting_since == since


def test_a_wait_begins_no_sooner_than_what_a_host_was_told_before() -> None:
    task = advance(record(), Progressed(message="x"), EPOCH + 9 * SECOND)
    task = advance(task, InputRequested(request=question(1)), EPOCH)
    assert task.waiting_since == task.updated_at == EPOCH + 9 * SECOND


@pytest.mark.parametrize(
    "ending",
    [
        CallSucceeded(result="{}", tool_error=True, message="no"),
        CallFaulted(error="{}", reason=FaultReason.CLOSED, message="no"),
    ],
)
def test_an_outcome_is_retrieved_for_the_first_time_once(ending: TaskEvent) -> None:
    task = advance(advance(record(), ending, EPOCH), ResultRetrieved(), EPOCH + SECOND)
    assert (task.retrieved, task.updated_at, task.revision) == (True, EPOCH, 2)
    with pytest.raises(IllegalTransition, match="twice"):
        advance(task, ResultRetrieved(), EPOCH + SECOND)


def test_what_was_cancelled_has_no_outcome_that_anybody_could_be_given() -> None:
    with pytest.raises(IllegalTransition):
        advance(advance(record(), CancelRequested(), EPOCH), ResultRetrieved(), EPOCH)
