"""The words of both eras come with one import."""

from typing import get_args

from taskgate.protocol import base, intents, questions


def test_every_intent_can_be_had_from_where_the_translators_are() -> None:
    assert {word.__name__ for word in get_args(base.Intent)} <= set(base.__all__)
    assert base.Intent is intents.Intent


def test_so_can_every_word_about_questions() -> None:
    own = {name for name, word in vars(questions).items() if getattr(word, "__module__", "") == questions.__name__}
    assert own | {"Answer"} <= set(base.__all__)
    assert all(getattr(base, name) is getattr(questions, name) for name in own)


def test_what_is_offered_is_there_and_stands_in_order() -> None:
    assert base.__all__ == sorted(base.__all__)
    assert all(hasattr(base, name) for name in base.__all__)


def test_what_a_server_can_mean_is_something_or_nothing() -> None:
    told = set(get_args(base.Heard))
    assert told == {
        base.CallAnswered,
        base.ProgressTold,
        base.Noticed,
        base.TaskShown,
        base.ReceivedQuestion,
        base.Withdrawn,
        base.Questioned,
        type(None),
    }
