"""Errors that cross from one process to another."""

import json
from datetime import timedelta

import pytest

from taskgate import errors
from taskgate.cluster.failures import pack, unpack
from taskgate.domain.versions import Era
from taskgate.errors import UpstreamReason
from taskgate.protocol.faults import fault

SOON = timedelta(seconds=2.5)


@pytest.mark.parametrize(
    "error",
    [
        errors.CutOff(),
        errors.Forbidden("The rules do not allow it"),
        errors.InsufficientScope(frozenset({"b", "a"})),
        errors.InvalidParams("Invalid requestState"),
        errors.MissingCapability({"elicitation": {"form": {}}}),
        errors.QueueFull("The queue is full", retry_after=SOON),
        errors.RateLimited(SOON, "calls"),
        errors.StoreUnavailable("The task store is not available"),
        errors.TaskSupportMismatch("This tool runs only as a task"),
        errors.TooManyBytes(7, scope="tenant"),
        errors.TooManyTasks(3, of="calls", scope="context"),
        errors.UpstreamFailed(UpstreamReason.CLOSED, "The server went away", dispatched=True),
        errors.UpstreamFailed(UpstreamReason.REFUSED, "Too busy", dispatched=False, retry_after=SOON),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("era", Era)
def test_an_error_means_the_same_where_it_arrives(error: errors.GatewayError, era: Era) -> None:
    arrived = unpack(json.loads(json.dumps(pack(error))))
    assert type(arrived) is type(error)
    assert str(arrived) == str(error)
    assert vars(arrived) == vars(error)
    assert fault(arrived, era) == fault(error, era)


@pytest.mark.parametrize("error", [ValueError("secret"), errors.Draining(SOON), errors.TaskNotFound()])
def test_any_other_arrives_as_an_internal_error_without_a_word(error: Exception) -> None:
    packed = pack(error)
    assert "secret" not in json.dumps(packed)
    arrived = unpack(packed)
    assert type(arrived) is errors.InternalError
    assert str(arrived) == ""
