"""Calls that leave: what was told of their turn is over, and one that was lost may be sent again, and begins anew."""

from dataclasses import replace
from datetime import timedelta

import pytest

from helpers.manual_clock import EPOCH
from taskgate.domain.events import Dispatched
from taskgate.domain.machine import advance
from taskgate.domain.record import TaskStatus
from taskgate.errors import IllegalTransition
from unit.domain.records import question, record

WORKING = TaskStatus.WORKING
LATER = EPOCH + timedelta(seconds=9)
TASK = record(inputs_made=1, answers={"input-1": "{}"})
ASKING = record(
    status=TaskStatus.INPUT_REQUIRED,
    inputs=(question(2), question(3)),
    inputs_made=3,
    answers={"input-1": "{}"},
    dispatched=True,
    reruns=1,
)


def test_a_call_that_may_run_again_is_dispatched_so_many_times_more() -> None:
    task = replace(TASK, reruns=2)
    for reruns in (2, 1, 0):
        task = advance(task, Dispatched(), LATER)
        assert (task.dispatched, task.reruns) == (True, reruns)
    with pytest.raises(IllegalTransition, match="twice"):
        advance(task, Dispatched(), LATER)


def test_a_call_that_runs_again_begins_anew_but_uses_no_key_twice() -> None:
    task = advance(replace(ASKING, status_message="3/10"), Dispatched(), LATER)
    assert (task.status, task.status_message, task.inputs, task.answers) == (WORKING, None, (), {})
    assert task.next_input_key == "input-4"


def test_a_question_of_a_call_that_was_never_sent_is_no_reason_to_send_it() -> None:
    with pytest.raises(IllegalTransition):
        advance(replace(ASKING, dispatched=False, reruns=0), Dispatched(), LATER)


def test_a_call_that_leaves_is_an_update_where_it_ends_what_its_host_was_told() -> None:
    task = advance(replace(TASK, status_message="Queued (3 ahead)"), Dispatched(), LATER)
    assert (task.status_message, task.updated_at) == (None, LATER)
