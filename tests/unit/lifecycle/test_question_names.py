"""The names by which a server knows its questions, and what they are in the record of their task."""

import asyncio

import pytest

from taskgate.domain.machine import MAX_CHECKPOINT_ANSWERS
from taskgate.lifecycle.checkpoints import AskedQuestion
from taskgate.lifecycle.inputs import MAX_NAME, QuestionNames, is_name

ASKED = AskedQuestion('"q"', "elicitation/create", "input-1")


class Timer(asyncio.TimerHandle):
    """Only tells whether it was stopped."""

    def __init__(self) -> None:
        self.stopped = False

    def cancel(self) -> None:
        self.stopped = True


@pytest.mark.parametrize(
    ("key", "is_one"), [(None, False), ("", True), ("n" * MAX_NAME, True), ("n" * (MAX_NAME + 1), False)]
)
def test_a_name_is_there_and_not_too_long(key: str | None, is_one: bool) -> None:
    assert is_name(key) is is_one


def test_what_is_expected_is_met_under_its_name_and_its_time_is_over_then() -> None:
    names, timer = QuestionNames(), Timer()
    names.expect(ASKED, timer)
    assert names.others == {"input-1": ASKED}
    assert (names.met(None), names.met('"other"')) == (None, None)
    assert not timer.stopped
    assert names.met('"q"') == "input-1"
    assert timer.stopped
    assert names.others == {}


def test_what_was_met_is_known_when_it_is_told_once_more() -> None:
    """A stream that is taken up again tells it again."""
    names = QuestionNames()
    names.expect(ASKED, Timer())
    assert [names.met('"q"'), names.met('"q"')] == ["input-1", "input-1"]


def test_answers_are_others_until_they_are_to_be_forgotten() -> None:
    names = QuestionNames()
    assert names.answered(ASKED, "input-1", 10)
    assert (names.others, names.given) == ({"input-1": ASKED}, {"input-1"})
    names.forget(frozenset({"input-2"}))
    assert names.given == {"input-1"}
    names.forget(frozenset({"input-1", "input-2"}))
    assert (names.others, names.given) == ({}, frozenset())


def test_no_more_answers_are_expected_to_arrive_than_may_be_kept() -> None:
    names = QuestionNames()
    assert names.answered(ASKED, "input-1", MAX_CHECKPOINT_ANSWERS)
    assert not names.answered(ASKED, "input-2", 1)
    names.forget(frozenset({"input-1"}))
    assert names.answered(ASKED, "input-2", MAX_CHECKPOINT_ANSWERS)


def test_nothing_is_expected_after_the_end() -> None:
    names, timer = QuestionNames(), Timer()
    names.expect(ASKED, timer)
    names.close()
    assert (timer.stopped, names.others) == (True, {})
