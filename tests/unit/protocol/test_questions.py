"""What both eras say of questions: values, each a word of its own, that nobody can change."""

from typing import Any

import pytest

from taskgate.protocol.envelope import Notification
from taskgate.protocol.params import Params
from taskgate.protocol.questions import (
    AnswerInput,
    AnswerQuestion,
    Question,
    ReceivedQuestion,
    TellProgress,
    TellServer,
    Withdrawn,
)

NEWS = Notification("notifications/progress", {}, "{}", "")
ASKED = ReceivedQuestion("s", Question("roots/list", Params("{}")), None)
WORDS: list[Any] = [
    AnswerInput(task="t", key="input-1", answer="{}"),
    AnswerQuestion(id="q", answer="{}"),
    TellProgress(id="q", notification=NEWS),
    TellServer(notification=NEWS),
    ASKED,
    ASKED.question,
    Withdrawn(7),
]


@pytest.mark.parametrize("word", WORDS, ids=lambda word: type(word).__name__)
def test_what_was_said_stays_said(word: Any) -> None:
    name = next(name for name in ("id", "task", "method", "notification") if hasattr(word, name))
    with pytest.raises(AttributeError):
        setattr(word, name, "other")


def test_an_answer_for_a_task_is_no_answer_to_a_question_of_none() -> None:
    assert len({type(word) for word in WORDS}) == len(WORDS)
    assert AnswerQuestion(id="q", answer="{}") != AnswerQuestion(id="p", answer="{}")
    assert AnswerInput(task="t", key="a", answer="{}") != AnswerInput(task="t", key="b", answer="{}")
