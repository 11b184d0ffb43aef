"""What a server says is a closed set of values."""

from dataclasses import FrozenInstanceError
from inspect import isclass
from typing import get_args

import pytest

from taskgate.protocol import heard
from taskgate.protocol.questions import ReceivedQuestion, Withdrawn


def test_every_word_is_among_what_is_heard() -> None:
    own = {word for word in vars(heard).values() if isclass(word) and word.__module__ == heard.__name__}
    assert set(get_args(heard.Heard)) == own | {ReceivedQuestion, Withdrawn, type(None)}


def test_what_is_heard_cannot_be_changed() -> None:
    reply = heard.Questioned("a")
    with pytest.raises(FrozenInstanceError):
        reply.reply = "b"  # type: ignore[misc]  # that is what is tested
