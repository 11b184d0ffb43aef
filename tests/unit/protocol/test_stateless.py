"""What a host of the stateless era can ask is a closed set of values."""

from dataclasses import FrozenInstanceError
from inspect import isclass
from typing import get_args

import pytest

from taskgate.protocol import stateless
from taskgate.protocol.intents import CallTool, CancelTask, GetTask, Relay

SHARED = {CallTool, Relay, GetTask, CancelTask}
NO_INTENTS = {stateless.Stateless, stateless.Subscription, stateless.Round, stateless.StatelessDialect}


def test_every_word_is_among_the_intents() -> None:
    own = {word for word in vars(stateless).values() if isclass(word) and word.__module__ == stateless.__name__}
    assert set(get_args(stateless.StatelessIntent)) == (own - NO_INTENTS) | SHARED


def test_an_intent_cannot_be_changed() -> None:
    intent = stateless.Discover(id=1)
    with pytest.raises(FrozenInstanceError):
        intent.id = 2  # type: ignore[misc]  # that is what is tested
    assert intent == stateless.Discover(id=1) != stateless.Discover(id="1")


def test_a_subscription_wants_nothing_unless_it_says_so() -> None:
    nothing = stateless.Subscription()
    assert (nothing.tools, nothing.prompts, nothing.resources) == (False, False, False)
    assert nothing.resource_uris is nothing.tasks is None
