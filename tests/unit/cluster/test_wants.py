"""What a host asked for once, and has wherever it comes to."""

import json
from typing import Any

import pytest

from taskgate.cluster.messages import Wanted
from taskgate.cluster.wants import LASTING, Wants
from taskgate.protocol.params import Params
from taskgate.protocol.vocabulary import LOGGING_SET_LEVEL, RESOURCES_SUBSCRIBE, RESOURCES_UNSUBSCRIBE
from taskgate.upstream.lasting import MAX_URI, MAX_URIS
from unit.cluster.saying import B, Said


def params(**members: Any) -> Params:
    return Params(json.dumps(members))


@pytest.fixture
def said() -> Said:
    return Said()


@pytest.fixture
def wants(said: Said) -> Wants:
    bus: Any = said
    return Wants("s", bus)


def level(name: str) -> Wanted:
    return Wanted("s", LOGGING_SET_LEVEL, name)


def subscribed(uri: str) -> Wanted:
    return Wanted("s", RESOURCES_SUBSCRIBE, uri)


def unsubscribed(uri: str) -> Wanted:
    return Wanted("s", RESOURCES_UNSUBSCRIBE, uri)


def test_all_are_told_of_a_level_and_whoever_comes_later(wants: Wants, said: Said) -> None:
    wants.tell(B)
    assert said.news() == []
    wants.note(LOGGING_SET_LEVEL, params(level="error"))
    assert said.news() == [(level("error"), None)]
    wants.tell(B)
    assert said.news() == [(level("error"), B)]


def test_a_level_that_was_heard_of_is_asked_for_here_and_told_on(wants: Wants, said: Said) -> None:
    asked = wants.heard(level("debug"))
    assert asked is not None
    assert json.loads(asked.head) == {"level": "debug"}
    assert said.news() == [], "who said it has said it to all"
    wants.tell(B)
    assert said.news() == [(level("debug"), B)]


def test_one_process_is_subscribed_and_hands_that_over(wants: Wants, said: Said) -> None:
    wants.note(RESOURCES_SUBSCRIBE, params(uri="file:///a"))
    wants.note(RESOURCES_SUBSCRIBE, params(uri="file:///a"))
    wants.note(RESOURCES_SUBSCRIBE, params(uri="file:///b"))
    wants.tell(B)
    assert said.news() == []
    wants.hand_over(B)
    assert said.news() == [(subscribed("file:///a"), B), (subscribed("file:///b"), B)]


def test_what_is_handed_over_is_asked_for_once(wants: Wants, said: Said) -> None:
    asked = wants.heard(subscribed("file:///a"))
    assert asked is not None
    assert json.loads(asked.head) == {"uri": "file:///a"}
    assert wants.heard(subscribed("file:///a")) is None
    wants.hand_over(B)
    assert said.news() == [(subscribed("file:///a"), B)]


def test_the_end_of_a_subscription_reaches_the_process_that_has_it(wants: Wants, said: Said) -> None:
    wants.note(RESOURCES_UNSUBSCRIBE, params(uri="file:///a"))
    assert said.news() == [(unsubscribed("file:///a"), None)]
    assert wants.heard(unsubscribed("file:///a")) is None, "another has it"
    wants.note(RESOURCES_SUBSCRIBE, params(uri="file:///a"))
    asked = wants.heard(unsubscribed("file:///a"))
    assert asked is not None
    assert json.loads(asked.head) == {"uri": "file:///a"}
    wants.hand_over(B)
    assert said.news() == []


def test_what_was_ended_here_is_not_handed_over(wants: Wants, said: Said) -> None:
    wants.note(RESOURCES_SUBSCRIBE, params(uri="file:///a"))
    wants.note(RESOURCES_UNSUBSCRIBE, params(uri="file:///a"))
    said.news()
    wants.hand_over(B)
    assert said.news() == []


@pytest.mark.parametrize("method", sorted(LASTING))
@pytest.mark.parametrize("given", [None, params(), params(level="loud", uri=7)])
def test_what_says_nothing_is_not_kept(wants: Wants, said: Said, method: str, given: Params | None) -> None:
    wants.note(method, given)
    wants.tell(B)
    wants.hand_over(B)
    assert said.news() == []


def test_no_more_is_kept_than_a_session_has_room_for(wants: Wants, said: Said) -> None:
    for number in range(MAX_URIS + 1):
        wants.note(RESOURCES_SUBSCRIBE, params(uri=f"file:///{number}"))
    assert wants.heard(subscribed("file:///more")) is None
    long = "x" * (MAX_URI + 1)
    wants.note(RESOURCES_UNSUBSCRIBE, params(uri=long))
    assert said.news() == []
    wants.hand_over(B)
    assert len(said.news()) == MAX_URIS


def test_a_name_that_is_too_long_is_not_kept(wants: Wants, said: Said) -> None:
    wants.note(RESOURCES_SUBSCRIBE, params(uri="x" * (MAX_URI + 1)))
    wants.hand_over(B)
    assert said.news() == []


def test_alone_nothing_is_kept(said: Said) -> None:
    alone = Wants("s", None)
    alone.note(LOGGING_SET_LEVEL, params(level="error"))
    alone.note(RESOURCES_SUBSCRIBE, params(uri="file:///a"))
    alone.heard(level("error"))
    alone.tell(B)
    alone.hand_over(B)
    assert alone.heard(unsubscribed("file:///a")) is None
