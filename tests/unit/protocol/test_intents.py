"""What a host can ask is a closed set of values."""

from dataclasses import FrozenInstanceError
from inspect import isclass
from typing import get_args

import pytest

from taskgate.protocol import intents
from taskgate.protocol.questions import AnswerInput, AnswerQuestion, TellProgress, TellServer

OF_QUESTIONS = {AnswerInput, AnswerQuestion, TellProgress, TellServer}


def test_every_word_is_among_the_intents() -> None:
    own = {word for word in vars(intents).values() if isclass(word) and word.__module__ == intents.__name__}
    assert set(get_args(intents.Intent)) == own | OF_QUESTIONS


def test_an_intent_cannot_be_changed() -> None:
    intent = intents.GetTask(id=1, task="t")
    with pytest.raises(FrozenInstanceError):
        intent.task = "other"  # type: ignore[misc]  # that is what is tested
    assert intent == intents.GetTask(id=1, task="t") != intents.AwaitTask(id=1, task="t")
