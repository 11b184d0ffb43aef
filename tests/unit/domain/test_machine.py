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
from taskgate.domain.machine import MAX_CHECKPOINT_ANSWERS, TRANSITIONS, advance, cancellation
from taskgate.domain.record import Faulted, FaultReason, Lease, SealedCheckpoint, Succeeded, TaskRecord, TaskStatus
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
        DispatchWithdrawn: DispatchWithdrawn(),
        Progressed: Progressed(message="3/10"),
        InputRequested: InputRequested(request=question(task.inputs_made + 1)),
        InputClaimed: InputClaimed(key="input-2", stream="s"),
        InputAnswered: InputAnswered(key="input-2", response='{"x":1}'),
        InputDeferred: InputDeferred(key="input-2", response="{}", deferred_to="theirs"),
        InputWithdrawn: InputWithdrawn(key="input-2"),
        AnswerForwarded: AnswerForwarded(key="input-1"),
        CheckpointSaved: CheckpointSaved(checkpoint=KEPT),
        RoundDispatched: RoundDispatched(),
        CallSucceeded: CallSucceeded(result='{"content":[]}', tool_error=False),
        CallFaulted: CallFaulted(error='{"code":-1,"message":"m"}', reason=FaultReason.TIMEOUT, message="Too late"),
        CancelRequested: CancelRequested(),
        TakenOver: TakenOver(),
        ResultRetrieved: ResultRetrieved(),
        KeyReleased: KeyReleased(),
    }
    return made[kind]


# Written out by hand: the table is compared with this, never with itself. Nothing stands for "illegal".
EXPECTED: dict[type[Any], tuple[set[TaskStatus] | None, set[TaskStatus] | None]] = {
    # from: working, input_required
    Dispatched: ({WORKING}, {WORKING}),
    DispatchWithdrawn: ({WORKING}, {WORKING}),
    Progressed: ({WORKING}, {INPUT_REQUIRED}),
    InputRequested: ({INPUT_REQUIRED}, {INPUT_REQUIRED}),
    InputClaimed: (None, {INPUT_REQUIRED}),
    InputAnswered: (None, {INPUT_REQUIRED, WORKING}),
    InputDeferred: (None, {INPUT_REQUIRED}),
    InputWithdrawn: (None, {INPUT_REQUIRED, WORKING}),
    AnswerForwarded: ({WORKING}, {INPUT_REQUIRED}),
    CheckpointSaved: ({WORKING}, {INPUT_REQUIRED}),
    RoundDispatched: ({WORKING}, {INPUT_REQUIRED}),
    CallSucceeded: ({COMPLETED}, {COMPLETED}),
    CallFaulted: ({FAILED}, {FAILED}),
    CancelRequested: ({CANCELLED}, {CANCELLED}),
    TakenOver: ({WORKING}, {INPUT_REQUIRED}),
    ResultRetrieved: (None, None),
    KeyReleased: (None, None),
}


def expected(status: TaskStatus, kind: type[Any]) -> set[TaskStatus] | None:
    if status.is_terminal:
        # A cancelled task has no outcome that anybody could be given.
        return {status} if kind is KeyReleased or (kind is ResultRetrieved and status is not CANCELLED) else None
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


# --- what each event changes, and that it changes nothing else --------------------------------------------------------

OVER: dict[str, Any] = {"inputs": (), "answers": {}, "waiting_since": None, "updated_at": LATER}
RAN = {**OVER, "status_message": None, "lease": None}
ASKED = {"status": INPUT_REQUIRED, "inputs": (question(2),), "inputs_made": 2, "waiting_since": LATER}
RESULT, ERROR = '{"content":[]}', '{"code":-1,"message":"m"}'
CHANGES: dict[str, tuple[TaskStatus, TaskEvent, dict[str, Any]]] = {
    "dispatched": (WORKING, Dispatched(), {"dispatched": True, "dispatched_at": LATER}),
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
        InputDeferred(key="input-2", response='{"result":{}}', deferred_to="theirs"),
        {
            "inputs": (question(2, deferred_to="theirs"), question(3)),
            "answers": {"input-1": "{}", "input-2": '{"result":{}}'},
        },
    ),
    "withdrawn, others outstanding": (
        INPUT_REQUIRED,
        InputWithdrawn(key="input-2"),
        {"inputs": (question(3),), "updated_at": LATER},
    ),
    "answer forwarded": (INPUT_REQUIRED, AnswerForwarded(key="input-1"), {"answers": {}}),
    "a call kept": (INPUT_REQUIRED, CheckpointSaved(checkpoint=KEPT), {"checkpoint": KEPT}),
    "a call kept whose server has an answer": (
        INPUT_REQUIRED,
        CheckpointSaved(checkpoint=KEPT, delivered=frozenset({"input-1", "input-9"})),
        {"checkpoint": KEPT, "answers": {}},
    ),
    "a call not kept any more": (INPUT_REQUIRED, CheckpointSaved(checkpoint=None), {}),
    "a round left": (INPUT_REQUIRED, RoundDispatched(), {"answers": {}}),
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
    "its key released": (COMPLETED, KeyReleased(), {"idempotency_digest": None}),
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


# --- what the table allows and the record does not --------------------------------------------------------------------

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
    assert advance(replace(RECORDS[WORKING], idempotency_digest="k"), fault, LATER).idempotency_digest == key


def test_a_call_that_was_not_sent_after_all_may_be_dispatched_again() -> None:
    task = advance(RECORDS[WORKING], Dispatched(), LATER)
    withdrawn = advance(task, DispatchWithdrawn(), LATER)
    assert (task.dispatched, task.dispatched_at) == (True, LATER)
    assert (withdrawn.dispatched, withdrawn.dispatched_at) == (False, None)
    assert advance(withdrawn, Dispatched(), LATER).dispatched


def test_what_a_server_asked_before_it_refused_the_call_is_asked_anew() -> None:
    task = replace(RECORDS[INPUT_REQUIRED], dispatched=True)
    assert task.inputs
    withdrawn = advance(task, DispatchWithdrawn(), LATER)
    assert (withdrawn.status, withdrawn.inputs, withdrawn.answers, withdrawn.checkpoint) == (WORKING, (), {}, None)
    assert advance(advance(withdrawn, Dispatched(), LATER), InputRequested(request=question(4)), LATER).inputs


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (CancelRequested(by="operator"), " by an operator"),
        (CancelRequested(by="operator", reason="maintenance"), " by an operator: maintenance"),
        (CancelRequested(), ""),
    ],
)
def test_who_cancelled_a_task_and_why_is_told_of_an_operator(event: CancelRequested, told: str) -> None:
    assert cancellation(advance(RECORDS[WORKING], event, LATER)) == told


def test_a_call_is_dispatched_once() -> None:
    task = advance(RECORDS[WORKING], Dispatched(), LATER)
    with pytest.raises(IllegalTransition):
        advance(task, Dispatched(), LATER)


# --- time -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("now", [EPOCH - timedelta(days=1), EPOCH])
def test_a_clock_that_went_back_does_not_take_the_update_back(now: datetime) -> None:
    task = replace(RECORDS[WORKING], updated_at=EPOCH)
    assert advance(task, Progressed(message="x"), now).updated_at == EPOCH


@pytest.mark.parametrize(
    ("status", "event"),
    [
        (WORKING, Dispatched()),
        (WORKING, DispatchWithdrawn()),
        (INPUT_REQUIRED, InputClaimed(key="input-2", stream="s")),
        (WORKING, AnswerForwarded(key="input-1")),
        (INPUT_REQUIRED, TakenOver()),
        (INPUT_REQUIRED, CheckpointSaved(checkpoint=KEPT)),
        (WORKING, RoundDispatched()),
        (COMPLETED, ResultRetrieved()),
        (CANCELLED, KeyReleased()),
    ],
    ids=lambda part: type(part).__name__,
)
def test_what_a_host_cannot_see_is_no_update(status: TaskStatus, event: TaskEvent) -> None:
    assert advance(RECORDS[status], event, LATER).updated_at == EPOCH


# --- input requests that a host defers to a task of its own -----------------------------------------------------------


def test_a_question_that_the_host_keeps_a_task_for_is_open_until_it_is_withdrawn() -> None:
    claimed = advance(RECORDS[INPUT_REQUIRED], InputClaimed(key="input-2", stream="s"), LATER)
    kept = advance(claimed, InputDeferred(key="input-2", response="{}", deferred_to="theirs"), LATER)
    assert kept.inputs[0].claimed_by is None
    for event in (
        InputDeferred(key="input-2", response="{}", deferred_to="other"),
        InputAnswered(key="input-2", response="{}"),
        InputClaimed(key="input-2", stream="s"),
    ):
        with pytest.raises(IllegalTransition):
            advance(kept, event, LATER)
    kept = advance(kept, InputAnswered(key="input-3", response="3"), LATER)
    assert kept.status is INPUT_REQUIRED
    assert advance(kept, InputWithdrawn(key="input-2"), LATER).status is WORKING


# --- calls that are dispatched again ----------------------------------------------------------------------------------


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


# --- checkpoints ------------------------------------------------------------------------------------------------------


def test_a_round_keeps_the_answers_that_its_server_was_to_be_given_until_it_leaves() -> None:
    task = advance(RECORDS[INPUT_REQUIRED], CheckpointSaved(checkpoint=KEPT), LATER)
    for key in ("input-2", "input-3"):
        task = advance(task, InputAnswered(key=key, response=f'"{key}"'), LATER)
        task = advance(task, AnswerForwarded(key=key), LATER)
    assert task.checkpoint == SealedCheckpoint(sealed="s", answers={"input-2": '"input-2"', "input-3": '"input-3"'})
    assert (task.status, task.answers) == (WORKING, {"input-1": "{}"})
    left = advance(task, RoundDispatched(), LATER)
    assert (left.checkpoint, left.answers) == (None, {})
    # Written once more, where the store could not say that it was.
    assert advance(left, RoundDispatched(), LATER) == replace(left, revision=left.revision + 1)


@pytest.mark.parametrize(("more", "is_kept"), [(0, True), (1, False)])
def test_a_round_with_too_much_to_keep_is_not_kept(more: int, is_kept: bool) -> None:
    task = replace(
        RECORDS[INPUT_REQUIRED],
        checkpoint=replace(KEPT, answers={"input-9": "x" * (MAX_CHECKPOINT_ANSWERS - 2 + more)}),
    )
    assert (advance(task, AnswerForwarded(key="input-1"), LATER).checkpoint is not None) is is_kept


def test_a_question_brings_along_what_knows_of_it_or_leaves_what_there_is() -> None:
    task, newer = replace(RECORDS[WORKING], checkpoint=KEPT), SealedCheckpoint(sealed="newer")
    plain = InputRequested(request=question(int(task.next_input_key.rpartition("-")[2])))
    assert advance(task, plain, LATER).checkpoint == KEPT
    assert advance(task, replace(plain, checkpoint=newer), LATER).checkpoint == newer


def test_a_call_is_kept_anew_and_answers_that_arrived_are_not() -> None:
    task = replace(RECORDS[INPUT_REQUIRED], checkpoint=KEPT, answers={"input-1": "{}", "input-2": "[]"})
    newer = SealedCheckpoint(sealed="newer")
    kept = advance(task, CheckpointSaved(checkpoint=newer, delivered=frozenset({"input-2"})), LATER)
    assert (kept.checkpoint, kept.answers, kept.inputs) == (newer, {"input-1": "{}"}, task.inputs)
    assert kept.updated_at == task.updated_at
    assert advance(kept, CheckpointSaved(checkpoint=None), LATER).checkpoint is None


@pytest.mark.parametrize("event", [Dispatched(), CancelRequested(), CallSucceeded(result=RESULT, tool_error=False)])
def test_of_a_call_that_begins_anew_or_ends_nothing_is_kept(event: TaskEvent) -> None:
    assert advance(replace(RECORDS[INPUT_REQUIRED], checkpoint=KEPT), event, LATER).checkpoint is None


@pytest.mark.parametrize(("lease", "kept"), [(Lease(holder="p", until=LATER), "p/1"), (None, None)])
def test_who_takes_over_frees_the_questions_that_streams_of_other_processes_carry(
    lease: Lease | None, kept: str | None
) -> None:
    inputs = tuple(question(number, claimed_by=claim) for number, claim in ((1, "p/1"), (2, "pp/1"), (3, None)))
    task = replace(RECORDS[INPUT_REQUIRED], inputs=inputs, lease=lease, checkpoint=KEPT)
    taken = advance(task, TakenOver(), LATER)
    assert [asked.claimed_by for asked in taken.inputs] == [kept, None, None]
    assert taken.checkpoint is KEPT


# --- fields for operators alone: waiting_since and retrieved ----------------------------------------------------------


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
