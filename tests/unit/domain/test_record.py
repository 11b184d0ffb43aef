"""A record tells its own keys and its own end, and nobody changes it in place."""

from dataclasses import FrozenInstanceError, fields, replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.manual_clock import EPOCH
from taskgate.domain.record import (
    MAX_TRANSITIONS,
    Faulted,
    FaultReason,
    OwnerKey,
    SealedCheckpoint,
    Succeeded,
    TaskRecord,
    TaskStatus,
    Transition,
    blank_record,
    evolve,
    freeze,
    grown_ttl,
    kept_ttl,
    outcome_text,
    transitions_of,
    with_grown_ttl,
)
from taskgate.errors import UpstreamReason
from unit.domain.records import record

KEPT = SealedCheckpoint(sealed="s")
MINUTE = timedelta(minutes=1)
spans = st.timedeltas(timedelta(milliseconds=1), timedelta(days=7))


@pytest.mark.parametrize("status", TaskStatus)
def test_all_states_but_two_are_terminal(status: TaskStatus) -> None:
    assert status.is_terminal is (status.value in {"completed", "failed", "cancelled"})


def test_the_states_are_those_of_the_specification() -> None:
    assert {str(status) for status in TaskStatus} == {"working", "input_required", "completed", "failed", "cancelled"}


def test_a_key_is_never_given_twice() -> None:
    assert [record(inputs_made=made).next_input_key for made in range(3)] == ["input-1", "input-2", "input-3"]


def test_a_record_that_is_given_no_other_end_ends_with_its_time_to_live() -> None:
    task = record(ttl=timedelta(minutes=5), updated_at=EPOCH + timedelta(minutes=4))
    assert task.expires_at == EPOCH + timedelta(minutes=5)


@pytest.mark.parametrize(
    ("age", "shown"),
    [(0, 60), (45, 60), (46, 90), (75, 90), (76, 120), (105, 120), (106, 150), (166, 200), (199, 200)],
)
def test_the_time_to_live_of_an_unfinished_task_grows_before_a_quarter_of_it_is_left(age: int, shown: int) -> None:
    task = record(ttl=60 * MINUTE, expires_at=EPOCH + 200 * MINUTE)
    assert with_grown_ttl(task, EPOCH + age * MINUTE).ttl == shown * MINUTE
    assert task.ttl == 60 * MINUTE


@given(spans, spans, spans)
def test_a_shown_time_to_live_is_longer_than_the_age_and_never_falls(
    one: timedelta, other: timedelta, ttl: timedelta
) -> None:
    most = timedelta(days=1000)
    early, late = sorted((one, other))
    assert early < grown_ttl(ttl, early, most) <= grown_ttl(ttl, late, most)
    # A result is kept for less than its task was granted, whenever it ends, unless more is asked for.
    assert grown_ttl(ttl, late, most) - late <= ttl


def test_an_ended_task_is_shown_as_it_is_stored() -> None:
    ended = record(status=TaskStatus.CANCELLED, ttl=60 * MINUTE)
    assert with_grown_ttl(ended, EPOCH + 59 * MINUTE) is ended


@pytest.mark.parametrize(
    ("age", "keep", "ttl"),
    [
        pytest.param(1, 30, 60, id="soon"),
        pytest.param(59, 30, 90, id="just before the granted time is over"),
        pytest.param(59, 50, 109, id="with more to keep"),
        pytest.param(199, 30, 229, id="just before it is too old"),
        pytest.param(199, 1000, 399, id="no longer than it could have run"),
    ],
)
def test_from_its_end_on_a_task_is_kept_for_a_while(age: int, keep: int, ttl: int) -> None:
    task = record(ttl=60 * MINUTE, expires_at=EPOCH + 200 * MINUTE)
    assert kept_ttl(task, EPOCH + age * MINUTE, keep * MINUTE) == ttl * MINUTE


def test_whatever_may_fail_between_gateway_and_server_may_be_the_reason_of_a_fault() -> None:
    assert {reason.value for reason in UpstreamReason} <= {reason.value for reason in FaultReason}


def test_an_owner_is_both_its_parts() -> None:
    assert OwnerKey("a", "m") == OwnerKey(context="a", mount="m")
    assert OwnerKey("a", "m") not in {OwnerKey("a", "n"), OwnerKey("b", "m")}


def test_a_record_is_not_changed_in_place() -> None:
    task = record()
    with pytest.raises(FrozenInstanceError):
        task.status = TaskStatus.COMPLETED  # type: ignore[misc]
    assert replace(task, revision=1) != task
    assert not hasattr(task, "__dict__")


def test_an_altered_record_is_another_one_that_differs_in_what_was_named_alone() -> None:
    task = record()
    before = replace(task)
    other = evolve(task, status=TaskStatus.FAILED, revision=1)
    assert other == replace(task, status=TaskStatus.FAILED, revision=1)
    assert task == before
    assert evolve(task) == task
    assert evolve(task) is not task
    with pytest.raises(AttributeError):
        evolve(task, state=TaskStatus.FAILED)
    with pytest.raises(FrozenInstanceError):
        other.revision = 2  # type: ignore[misc]


def test_a_new_record_has_nothing_yet() -> None:
    task: TaskRecord = record()
    assert (task.revision, task.dispatched, task.inputs, task.answers, task.outcome) == (0, False, (), {}, None)
    assert record().answers is not task.answers


@pytest.mark.parametrize(
    ("dispatched", "reruns", "may"), [(False, 0, True), (False, 1, True), (True, 1, True), (True, 0, False)]
)
def test_a_call_may_be_sent_that_was_not_or_may_run_again(dispatched: bool, reruns: int, may: bool) -> None:
    assert record(dispatched=dispatched, reruns=reruns).is_dispatchable is may


@pytest.mark.parametrize(
    ("changes", "may"), [({}, True), ({"dispatched": True}, False), ({"dispatched": True, "checkpoint": KEPT}, True)]
)
def test_a_call_may_go_on_that_may_be_sent_or_rests(changes: dict[str, Any], may: bool) -> None:
    assert record(**changes).is_resumable is may


@pytest.mark.parametrize("key", ["input-1", "input-9", "input-12"])
def test_a_key_was_asked_that_was_given(key: str) -> None:
    assert record(inputs_made=12).has_asked(key)


@pytest.mark.parametrize(
    "key",
    [
        "", "input-", "input-0", "input-13", "input-01", "input--1", "input-1 ", "input-\u0661", "input-\u00b2",
        "Input-1", "output-1", "1", "-1", "input1", "input-1-1", "input-" + "1" * 5000,
    ],
)  # fmt: skip
def test_a_key_that_was_never_given_was_not_asked_however_it_is_written(key: str) -> None:
    assert not record(inputs_made=12).has_asked(key)


def test_a_task_that_was_asked_nothing_knows_no_key() -> None:
    assert not record().has_asked("input-1")


def test_the_text_of_an_outcome_is_that_of_its_result_or_error() -> None:
    assert outcome_text(Succeeded(result="{}", tool_error=True)) == "{}"
    assert outcome_text(Faulted(error='{"code":1}', reason=FaultReason.CLOSED)) == '{"code":1}'


def test_a_record_that_is_filled_in_place_is_the_one_of_its_constructor_and_frozen() -> None:
    made = record()
    new = blank_record(made.created_at, made.ttl)
    for field in fields(TaskRecord):
        if field.name not in ("created_at", "ttl", "expires_at"):
            setattr(new, field.name, getattr(made, field.name))
    filled = freeze(new)
    assert filled == made
    with pytest.raises(FrozenInstanceError):
        filled.revision = 2


def test_the_transitions_of_a_record_begin_with_its_creation_and_end_with_its_status() -> None:
    later = EPOCH + timedelta(seconds=5)
    assert transitions_of(record(), ()) == (Transition(TaskStatus.WORKING, EPOCH),)
    ended = record(status=TaskStatus.CANCELLED, updated_at=later)
    asks = Transition(TaskStatus.INPUT_REQUIRED, EPOCH)
    last = Transition(TaskStatus.CANCELLED, later)
    assert transitions_of(ended, (asks,)) == (Transition(TaskStatus.WORKING, EPOCH), asks, last)


def test_a_record_that_asks_and_whose_transitions_are_not_known_asks_since_it_waits() -> None:
    waits = replace(record(), status=TaskStatus.INPUT_REQUIRED, waiting_since=EPOCH, updated_at=EPOCH + timedelta(1))
    assert transitions_of(waits, ())[1:] == (Transition(TaskStatus.INPUT_REQUIRED, EPOCH),)


@pytest.mark.parametrize("status", [TaskStatus.WORKING, TaskStatus.COMPLETED])
def test_of_many_transitions_the_newest_are_known(status: TaskStatus) -> None:
    changes = tuple(
        Transition([TaskStatus.WORKING, TaskStatus.INPUT_REQUIRED][at % 2], EPOCH + timedelta(seconds=at))
        for at in range(2 * MAX_TRANSITIONS + 1)
    )
    found = transitions_of(record(status=status), changes)
    assert len(found) == MAX_TRANSITIONS
    assert found[0] == Transition(TaskStatus.WORKING, EPOCH)
    assert changes[-1] in found
