"""What a record keeps of a call: of a round, from the answer that asked to the next one, and of one at its server."""

from dataclasses import replace

import pytest

from taskgate.domain.events import (
    AnswerForwarded,
    CallKept,
    CallSucceeded,
    CancelRequested,
    Dispatched,
    InputAnswered,
    InputRequested,
    RoundLeft,
    TakenOver,
    TaskEvent,
)
from taskgate.domain.machine import MAX_GIVEN, advance
from taskgate.domain.record import Lease, SealedCheckpoint
from unit.domain.records import question
from unit.domain.test_machine import INPUT_REQUIRED, KEPT, LATER, RECORDS, RESULT, WORKING


def test_a_round_keeps_the_answers_that_its_server_was_to_be_given_until_it_leaves() -> None:
    task = advance(RECORDS[INPUT_REQUIRED], CallKept(kept=KEPT), LATER)
    for key in ("input-2", "input-3"):
        task = advance(task, InputAnswered(key=key, response=f'"{key}"'), LATER)
        task = advance(task, AnswerForwarded(key=key), LATER)
    assert task.kept == SealedCheckpoint(sealed="s", given={"input-2": '"input-2"', "input-3": '"input-3"'})
    assert (task.status, task.answers) == (WORKING, {"input-1": "{}"})
    left = advance(task, RoundLeft(), LATER)
    assert (left.kept, left.answers) == (None, {})
    # Written once more, where the store could not say that it was.
    assert advance(left, RoundLeft(), LATER) == replace(left, revision=left.revision + 1)


@pytest.mark.parametrize(("more", "is_kept"), [(0, True), (1, False)])
def test_a_round_with_too_much_to_keep_is_not_kept(more: int, is_kept: bool) -> None:
    task = replace(RECORDS[INPUT_REQUIRED], kept=replace(KEPT, given={"input-9": "x" * (MAX_GIVEN - 2 + more)}))
    assert (advance(task, AnswerForwarded(key="input-1"), LATER).kept is not None) is is_kept


def test_a_question_brings_along_what_knows_of_it_or_leaves_what_there_is() -> None:
    task, newer = replace(RECORDS[WORKING], kept=KEPT), SealedCheckpoint(sealed="newer")
    plain = InputRequested(request=question(int(task.next_input_key.rpartition("-")[2])))
    assert advance(task, plain, LATER).kept == KEPT
    assert advance(task, replace(plain, kept=newer), LATER).kept == newer


def test_a_call_is_kept_anew_and_answers_that_arrived_are_not() -> None:
    task = replace(RECORDS[INPUT_REQUIRED], kept=KEPT, answers={"input-1": "{}", "input-2": "[]"})
    newer = SealedCheckpoint(sealed="newer")
    kept = advance(task, CallKept(kept=newer, arrived=frozenset({"input-2"})), LATER)
    assert (kept.kept, kept.answers, kept.inputs) == (newer, {"input-1": "{}"}, task.inputs)
    assert kept.updated_at == task.updated_at
    assert advance(kept, CallKept(kept=None), LATER).kept is None


@pytest.mark.parametrize("event", [Dispatched(), CancelRequested(), CallSucceeded(result=RESULT, tool_error=False)])
def test_of_a_call_that_begins_anew_or_ends_nothing_is_kept(event: TaskEvent) -> None:
    assert advance(replace(RECORDS[INPUT_REQUIRED], kept=KEPT), event, LATER).kept is None


@pytest.mark.parametrize(("lease", "kept"), [(Lease(holder="p", until=LATER), "p/1"), (None, None)])
def test_who_takes_over_frees_the_questions_that_streams_of_other_processes_carry(
    lease: Lease | None, kept: str | None
) -> None:
    inputs = tuple(question(number, claimed_by=claim) for number, claim in ((1, "p/1"), (2, "pp/1"), (3, None)))
    task = replace(RECORDS[INPUT_REQUIRED], inputs=inputs, lease=lease, kept=KEPT)
    taken = advance(task, TakenOver(), LATER)
    assert [asked.claimed_by for asked in taken.inputs] == [kept, None, None]
    assert taken.kept is KEPT
