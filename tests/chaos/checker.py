"""What must hold of every history, whatever died while it was made: the invariants of reliability, one function each.

Terminal states absorb, so the order of operations that do not overlap in time decides: there is nothing to search
through. Each function returns complaints in words; none returns what could be otherwise with some luck.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from chaos.history import History, Kind, Operation, Seen
from taskgate.lifecycle.recovery import NEVER_SENT
from taskgate.lifecycle.runner import NOT_MADE
from taskgate.lifecycle.task_run import NO_STORE, SHUT_DOWN_UNSENT

UNSENT: Final = (NEVER_SENT, NOT_MADE, SHUT_DOWN_UNSENT, NO_STORE)
"""What a task says whose call was not sent."""


def complaints(history: History) -> list[str]:
    """Everything that must not have happened."""
    return [complaint for check in CHECKS for complaint in check(history)]


def nothing_wrong_was_said(history: History) -> Iterator[str]:
    """I15, and what a host was told makes sense."""
    for each in history.operations:
        if each.seen is Seen.WRONG:
            yield f"I15: {each.kind} of {each.caller} was told: {each.text[:200]}"


def acknowledged_tasks_are_found(history: History) -> Iterator[str]:
    """I7: who was given a task finds it."""
    for task, (made, later) in _lives(history).items():
        for each in later:
            if each.caller == made.caller and each.seen is Seen.UNKNOWN:
                yield f"I7: {task} of {made.caller} was not found by {each.kind} at {each.begun:.3f}"


def acknowledged_tasks_end(history: History) -> Iterator[str]:
    """I12: a last look at each of them finds an end."""
    for task, (made, later) in _lives(history).items():
        last = max((each for each in later if each.caller == made.caller), key=lambda each: each.begun, default=made)
        if not last.seen.is_end:
            yield f"I12: {task} of {made.caller} (call {made.call}) was last seen {last.seen}"


def an_end_is_the_end(history: History) -> Iterator[str]:
    """I2 and I3: all who see the end of a task see the same, and nobody sees less after it."""
    for task, (_, later) in _lives(history).items():
        ends = sorted((each for each in later if each.seen.is_end), key=lambda each: each.ended)
        if not ends:
            continue
        if len(statuses := {each.seen for each in ends}) > 1:
            yield f"I3: {task} ended as {sorted(statuses)}"
        texts = {each.text for each in ends if each.kind is Kind.RESULT}
        if len(texts) > 1:
            yield f"I3: {task} has {len(texts)} outcomes: {sorted(texts)}"
        for each in later:
            if each.seen.is_alive and each.begun > ends[0].ended:
                yield f"I2: {task} was {each.seen} at {each.begun:.3f}, after it had ended at {ends[0].ended:.3f}"


def an_accepted_cancel_wins(history: History) -> Iterator[str]:
    """I8: who is told that a task is cancelled never finds it otherwise, and nobody else cancels it."""
    for task, (_, later) in _lives(history).items():
        asked = [each for each in later if each.kind is Kind.CANCEL]
        if any(each.seen is Seen.CANCELLED for each in asked):
            for each in later:
                if each.seen in (Seen.COMPLETED, Seen.FAILED):
                    yield f"I8: {task} was cancelled, and yet {each.seen}"
        elif not asked and any(each.seen is Seen.CANCELLED for each in later):
            yield f"I8: {task} was cancelled by nobody"


def calls_run_once_at_most(history: History) -> Iterator[str]:
    """I11: no call is sent twice; one whose task was refused is not sent at all."""
    runs = Counter(each.call for each in history.executions)
    for call, times in runs.items():
        if times > 1:
            yield f"I11: call {call} ran {times} times"
    for each in history.operations:
        if each.kind is Kind.CREATE and each.seen is Seen.REFUSED and each.call in runs:
            yield f"I11: call {each.call} ran though its task was refused: {each.text[:100]}"


def outcomes_are_the_servers(history: History) -> Iterator[str]:
    """I6 and I9: what a host gets is what the server said to that call of that caller; a completed call has run."""
    ran = {each.call: each for each in history.executions}
    for task, (made, later) in _lives(history).items():
        for each in later:
            if each.seen is Seen.COMPLETED and made.call not in ran:
                yield f"I6: {task} completed, but call {made.call} never ran"
            if each.kind is Kind.RESULT and each.seen is Seen.COMPLETED and each.text != told(made.caller, made.call):
                yield f"I6: {task} of {made.caller} came to {each.text[:100]!r}, not that of call {made.call}"
            if each.seen is Seen.FAILED and made.call in ran and any(words in each.text for words in UNSENT):
                yield f"I11: {task} says that call {made.call} was not sent, but it ran: {each.text[:100]}"


def tasks_are_seen_by_their_owner_alone(history: History) -> Iterator[str]:
    """I9: whoever else asks for a task finds none."""
    for task, (made, later) in _lives(history).items():
        for each in later:
            if each.caller != made.caller and each.seen not in (Seen.UNKNOWN, Seen.REFUSED, Seen.NO_ANSWER):
                yield f"I9: {each.caller} saw {task} of {made.caller}: {each.seen}"


def caps_hold(history: History) -> Iterator[str]:
    """I10: never more of a caller's tasks at once than it may have, counting those that must have been alive."""
    moments: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for made, later in _lives(history).values():
        # Alive from its acknowledgement to when a request left that found it so.
        until = max((each.begun for each in later if each.seen.is_alive), default=made.ended)
        if until > made.ended:
            moments[made.caller] += [(made.ended, 1), (until, -1)]
    for caller, changes in moments.items():
        alive = most = 0
        for _, change in sorted(changes, key=lambda each: (each[0], each[1])):
            alive += change
            most = max(most, alive)
        if most > history.cap:
            yield f"I10: {caller} had {most} unfinished tasks at once, and may have {history.cap}"


CHECKS: Final[tuple[Callable[[History], Iterator[str]], ...]] = (
    nothing_wrong_was_said,
    acknowledged_tasks_are_found,
    acknowledged_tasks_end,
    an_end_is_the_end,
    an_accepted_cancel_wins,
    calls_run_once_at_most,
    outcomes_are_the_servers,
    tasks_are_seen_by_their_owner_alone,
    caps_hold,
)


def told(caller: str, call: int | None) -> str:
    """What the server says to a call: nobody else is ever told that."""
    return f"{caller} call {call}"


def _lives(history: History) -> Mapping[str, tuple[Operation, list[Operation]]]:
    """Each acknowledged task: its making, and what was asked about it."""
    made = {
        each.task: (each, list[Operation]())
        for each in history.operations
        if each.kind is Kind.CREATE and each.task is not None
    }
    for each in history.operations:
        if each.kind is not Kind.CREATE and each.task in made:
            made[each.task][1].append(each)
    return {task: life for task, life in made.items() if task is not None}
