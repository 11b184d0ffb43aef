"""Errors are told apart by whose doing they are, and each carries a reason from a closed set."""

import inspect
import re
from datetime import timedelta

import pytest

from taskgate import errors
from taskgate.errors import (
    DownstreamError,
    Draining,
    GatewayError,
    IllegalTransition,
    InternalError,
    MalformedMessage,
    MissingCapability,
    TaskNotFound,
    TooManyTasks,
    UnsupportedVersion,
    UpstreamFailed,
    UpstreamReason,
    VerbNotServed,
)

CLASSES = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, GatewayError) and kind.__module__ == errors.__name__
]
LEAVES = [kind for kind in CLASSES if not kind.__subclasses__()]


@pytest.mark.parametrize("kind", LEAVES)
def test_an_error_is_the_doing_of_one_side(kind: type[GatewayError]) -> None:
    sides = (DownstreamError, UpstreamFailed, InternalError, IllegalTransition)
    assert sum(issubclass(kind, side) for side in sides) == 1


@pytest.mark.parametrize("kind", [kind for kind in LEAVES if kind is not UpstreamFailed])
def test_a_reason_is_a_label_of_its_class_alone(kind: type[GatewayError]) -> None:
    assert re.fullmatch("[a-z]+(_[a-z]+)*", kind.reason)
    assert "reason" in vars(kind)
    assert [other for other in LEAVES if other.reason == kind.reason] == [kind]


@pytest.mark.parametrize("reason", UpstreamReason)
@pytest.mark.parametrize("dispatched", [True, False])
def test_a_failure_of_the_server_tells_what_happened_and_whether_it_may_have_acted(
    reason: UpstreamReason, dispatched: bool
) -> None:
    error = UpstreamFailed(reason, "The server closed", dispatched=dispatched)
    assert (error.reason, error.dispatched, str(error)) == (reason.value, dispatched, "The server closed")
    assert type(error.reason) is str


@pytest.mark.parametrize("id", [None, 0, "", "a", 7])
def test_a_malformed_message_keeps_its_id(id: str | int | None) -> None:
    assert MalformedMessage("text", id=id).id == id


def test_a_task_that_is_not_found_is_not_found_in_the_same_words() -> None:
    assert str(TaskNotFound()) == "Task not found"


def test_a_cap_tells_its_limit() -> None:
    error = TooManyTasks(25)
    assert error.limit == 25
    assert "25" in str(error)


def test_a_gateway_that_drains_tells_when_to_come_back() -> None:
    assert Draining(timedelta(seconds=5)).retry_after == timedelta(seconds=5)


def test_a_capability_that_is_missing_is_told() -> None:
    error = MissingCapability({"sampling": {}})
    assert error.required == {"sampling": {}}
    assert str(error) == "The request does not declare a capability that it needs"


def test_a_version_that_is_not_served_is_kept_where_it_is_told() -> None:
    assert UnsupportedVersion("no", requested="2031-01-01").requested == "2031-01-01"
    assert UnsupportedVersion("no").requested == ""


def test_a_verb_that_is_not_served_tells_those_that_are() -> None:
    assert VerbNotServed("POST").served == ("POST",)
