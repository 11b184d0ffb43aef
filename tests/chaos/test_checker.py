"""The judge of the chaos test is judged: it finds each kind of wrong, and nothing in what is right."""

from dataclasses import replace

import pytest

from chaos.checker import CHECKS, UNSENT, complaints, told
from chaos.history import Execution, History, Kind, Operation, Seen
from chaos.schedule import plan
from taskgate.lifecycle.recovery import OUTCOME_UNKNOWN
from taskgate.protocol.faults import CUT_OFF

MADE = Operation(kind=Kind.CREATE, caller="a", begun=0, ended=1, seen=Seen.WORKING, task="t", call=1)
RAN = Execution(call=1, caller="a", begun=1.5)
ALIVE = Operation(kind=Kind.GET, caller="a", begun=2, ended=3, seen=Seen.WORKING, task="t")
ENDED = replace(ALIVE, begun=4, ended=5, seen=Seen.COMPLETED)
GOT = replace(ENDED, kind=Kind.RESULT, begun=6, ended=7, text=told("a", 1))
FOREIGN = replace(ALIVE, caller="b", seen=Seen.UNKNOWN)
FINE = (MADE, ALIVE, FOREIGN, ENDED, GOT)


def history(*operations: Operation, ran: tuple[Execution, ...] = (RAN,)) -> History:
    return History(operations=list(operations), executions=list(ran), cap=1)


def test_nothing_is_found_in_what_is_right() -> None:
    assert complaints(history(*FINE)) == []
    # No answer, a refusal and a cancel that came too late are no wrong.
    late = replace(ENDED, kind=Kind.CANCEL, seen=Seen.ENDED_BEFORE)
    lost = replace(MADE, task=None, call=2, seen=Seen.NO_ANSWER)
    refused = replace(MADE, task=None, call=3, seen=Seen.REFUSED)
    assert complaints(history(*FINE, late, lost, refused, ran=(RAN, replace(RAN, call=2)))) == []


@pytest.mark.parametrize("text", [OUTCOME_UNKNOWN, CUT_OFF])
def test_a_call_may_have_run_that_nobody_knows_the_outcome_of(text: str) -> None:
    assert complaints(history(MADE, replace(ENDED, seen=Seen.FAILED, text=text))) == []


WRONG = {
    "a wrong answer": ("I15", history(*FINE, replace(ALIVE, seen=Seen.WRONG, text="HTTP 500"))),
    "not found": ("I7", history(*FINE, replace(ALIVE, seen=Seen.UNKNOWN))),
    "never ends": ("I12", history(MADE, ALIVE)),
    "never looked at": ("I12", history(MADE)),
    "two ends": ("I3", history(*FINE, replace(ENDED, seen=Seen.FAILED))),
    "two outcomes": ("I3", history(*FINE, replace(GOT, text="another"))),
    "alive after its end": ("I2", history(*FINE, replace(ALIVE, begun=8, ended=9))),
    "completed though cancelled": (
        "I8",
        history(*FINE, replace(ENDED, kind=Kind.CANCEL, seen=Seen.CANCELLED)),
    ),
    "cancelled by nobody": ("I8", history(MADE, replace(ENDED, seen=Seen.CANCELLED))),
    "ran twice": ("I11", history(*FINE, ran=(RAN, RAN))),
    "ran though refused": ("I11", history(replace(MADE, task=None, seen=Seen.REFUSED))),
    **{
        f"ran though not sent: {text}": ("I11", history(MADE, replace(ENDED, seen=Seen.FAILED, text=text)))
        for text in UNSENT
    },
    "completed though it never ran": ("I6", history(*FINE, ran=())),
    "the outcome of another": ("I6", history(*FINE[:-1], replace(GOT, text=told("b", 1)))),
    "seen by another": ("I9", history(*FINE, replace(FOREIGN, seen=Seen.WORKING))),
    "more than the cap": (
        "I10",
        history(
            *FINE,
            replace(MADE, task="u", call=2),
            *(replace(each, task="u") for each in (ALIVE, ENDED)),
            ran=(RAN, replace(RAN, call=2)),
        ),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_each_kind_of_wrong_is_found(name: str) -> None:
    invariant, found = WRONG[name]
    assert any(each.startswith(invariant) for each in complaints(found)), complaints(found)


def test_every_check_finds_something() -> None:
    for check in CHECKS:
        assert any([*check(found)] for _, found in WRONG.values()), check.__name__


def test_a_seed_plans_the_same_again() -> None:
    assert plan(7, seconds=30, replicas=3, lease=3) == plan(7, seconds=30, replicas=3, lease=3)
    assert plan(7, seconds=30, replicas=3, lease=3) != plan(8, seconds=30, replicas=3, lease=3)
