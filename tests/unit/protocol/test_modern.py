"""What a host of the modern era can ask is a closed set of values."""

from dataclasses import FrozenInstanceError
from inspect import isclass
from typing import get_args

import pytest

from taskgate.protocol import modern_requests
from taskgate.protocol.intents import CallTool, CancelTask, GetTask, Relay

SHARED = {CallTool, Relay, GetTask, CancelTask}
NO_INTENTS = {
    modern_requests.RequestMeta,
    modern_requests.Subscription,
    modern_requests.Round,
    modern_requests.ModernDialect,
}


def test_every_word_is_among_the_intents() -> None:
    own = {
        word for word in vars(modern_requests).values() if isclass(word) and word.__module__ == modern_requests.__name__
    }
    assert set(get_args(modern_requests.ModernIntent)) == (own - NO_INTENTS) | SHARED


def test_an_intent_cannot_be_changed() -> None:
    intent = modern_requests.Discover(id=1)
    with pytest.raises(FrozenInstanceError):
        intent.id = 2  # type: ignore[misc]  # that is what is tested
    assert intent == modern_requests.Discover(id=1) != modern_requests.Discover(id="1")


def test_a_subscription_wants_nothing_unless_it_says_so() -> None:
    nothing = modern_requests.Subscription()
    assert (nothing.tools, nothing.prompts, nothing.resources) == (False, False, False)
    assert nothing.resource_uris is nothing.tasks is None
