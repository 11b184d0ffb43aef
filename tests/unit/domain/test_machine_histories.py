"""Whatever happens to a task in whatever order, what its record promises holds after every event."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.manual_clock import EPOCH
from taskgate.domain.events import (
    Dispatched,
    InputAnswered,
    InputDeferred,
    InputRequested,
    KeyReleased,
    Progressed,
    ResultRetrieved,
    TaskEvent,
)
from taskgate.domain.machine import TRANSITIONS, advance
from taskgate.domain.record import Faulted, Succeeded, TaskRecord, TaskStatus
from taskgate.errors import IllegalTransition
from unit.domain.records import EVENTS, events, question, record

INPUT_REQUIRED = TaskStatus.INPUT_REQUIRED
VISIBLE = ("status", "status_message", "tool_error", "outcome")
# Hours, so that the wall clock jumps back as often as forward.
moments = st.integers(-5, 5).map(lambda hours: EPOCH + timedelta(hours=hours))
histories = st.lists(st.tuples(events, moments), max_size=25)


@dataclass(frozen=True)
class Step:
    """One event, what it met, and what came of it: None where it was illegal."""

    before: TaskRecord
    event: TaskEvent
    now: datetime
    after: TaskRecord | None


def steps(history: list[tuple[TaskEvent, datetime]]) -> list[Step]:
    task, made = record(), []
    for event, now in history:
        if isinstance(event, InputRequested) and now > EPOCH:
            # Left to chance, hardly a key would be in turn.
            event = InputRequested(request=question(task.inputs_made + 1))  # noqa: PLW2901
        try:
            after = advance(task, event, now)
        except IllegalTransition:
            after = None
        made.append(Step(task, event, now, after))
        task = after or task
    return made


@given(histories)
def test_what_a_record_promises_holds_after_any_history(history: list[tuple[TaskEvent, datetime]]) -> None:
    for step in steps(history):
        task = step.after or step.before
        assert not task.tool_error or task.status is TaskStatus.COMPLETED
        assert bool(task.inputs) is (task.status is INPUT_REQUIRED) is (task.waiting_since is not None)
        assert not task.retrieved or task.outcome is not None
        assert all(task.has_asked(asked.key) for asked in task.inputs)
        assert not task.has_asked(task.next_input_key)
        assert isinstance(task.outcome, Succeeded) is (task.status is TaskStatus.COMPLETED)
        assert isinstance(task.outcome, Faulted) is (task.status is TaskStatus.FAILED)
        assert task.updated_at >= task.created_at
        unanswered = {asked.key for asked in task.inputs if asked.deferred_to is None}
        assert unanswered.isdisjoint(task.answers)
        assert len({asked.key for asked in task.inputs}) == len(task.inputs)
        assert task.next_input_key not in {asked.key for asked in task.inputs} | set(task.answers)
        if task.status.is_terminal:
            assert (task.inputs, task.answers, task.checkpoint, task.lease) == ((), {}, None, None)


@given(histories)
def test_every_event_is_one_revision_or_nothing(history: list[tuple[TaskEvent, datetime]]) -> None:
    for step in steps(history):
        if step.after is not None:
            assert step.after.revision == step.before.revision + 1
            assert step.after.status in TRANSITIONS[step.before.status, type(step.event)]
            assert step.after.updated_at in (step.before.updated_at, max(step.before.updated_at, step.now))


@given(histories)
def test_an_update_that_a_host_can_see_moves_the_time_of_it(history: list[tuple[TaskEvent, datetime]]) -> None:
    for step in steps(history):
        if step.after is not None and any(getattr(step.after, it) != getattr(step.before, it) for it in VISIBLE):
            assert step.after.updated_at == max(step.before.updated_at, step.now)


@given(histories, events)
def test_a_terminal_state_absorbs_whatever_comes(history: list[tuple[TaskEvent, datetime]], event: TaskEvent) -> None:
    """But for one retrieval of its outcome, and the release of its key, which nothing shows."""
    for step in steps([*history, (event, EPOCH)]):
        if step.before.status.is_terminal and step.after is not None:
            change = {"retrieved": True} if isinstance(step.event, ResultRetrieved) else {"idempotency_digest": None}
            assert isinstance(step.event, ResultRetrieved | KeyReleased)
            assert step.after == replace(step.before, **change, revision=step.after.revision)


@given(histories)
def test_what_a_task_is_never_changes(history: list[tuple[TaskEvent, datetime]]) -> None:
    first = record()
    for step in steps(history):
        task = step.after or step.before
        for part in ("id", "owner", "call", "created_at", "poll_interval"):
            assert getattr(task, part) == getattr(first, part)
        if task.status.is_terminal:
            assert task.expires_at == task.created_at + task.ttl >= first.expires_at
        else:
            assert (task.ttl, task.expires_at) == (first.ttl, first.expires_at)


@given(histories)
def test_no_key_is_used_twice_and_no_answer_is_overwritten(history: list[tuple[TaskEvent, datetime]]) -> None:
    asked: list[str] = []
    answered: dict[str, str] = {}
    for step in steps(history):
        if step.after is None:
            continue
        if isinstance(step.event, InputRequested):
            asked.append(step.event.request.key)
        if isinstance(step.event, InputAnswered | InputDeferred):
            assert step.event.key not in answered
            answered[step.event.key] = step.event.response
        assert step.after.answers.items() <= answered.items()
    assert len(asked) == len(set(asked))


def test_the_histories_drawn_are_not_all_of_one_kind() -> None:
    met: set[tuple[TaskStatus, type]] = set()

    @settings(max_examples=200, derandomize=True, database=None)
    @given(histories)
    def meet(history: list[tuple[TaskEvent, datetime]]) -> None:
        met.update((step.before.status, type(step.event)) for step in steps(history))

    meet()
    assert {kind for _, kind in met} == set(EVENTS)
    assert {status for status, _ in met} == set(TaskStatus)


def test_a_whole_life_with_a_question() -> None:
    task = record()
    life: list[TaskEvent] = [
        Dispatched(),
        Progressed(message="1/2"),
        InputRequested(request=question(1)),
        InputAnswered(key="input-1", response="{}"),
    ]
    seen = []
    for event in life:
        task = advance(task, event, EPOCH)
        seen.append((task.revision, task.status.value))
    assert seen == [(1, "working"), (2, "working"), (3, "input_required"), (4, "working")]
