"""How tasks end that were not called, gave no answer, or were given up, in the words of errors."""

import json
from datetime import timedelta
from typing import Any

import pytest

from taskgate import errors
from taskgate.domain.record import FaultReason
from taskgate.protocol.faults import CANCELLED, call_ended, call_failed, fault


@pytest.mark.parametrize("reason", errors.UpstreamReason)
def test_a_task_whose_call_failed_keeps_what_a_plain_call_would_have_told(reason: errors.UpstreamReason) -> None:
    error = errors.UpstreamFailed(reason, "The server é gone", dispatched=True)
    ended = call_failed(error)
    assert json.loads(ended.error) == json.loads(fault(error).message(1))["error"]
    assert ended.reason is FaultReason(reason.value)
    assert ended.message == "The server é gone"


@pytest.mark.parametrize("dispatched", [True, False])
def test_a_task_keeps_when_to_come_back_and_whether_its_call_left(dispatched: bool) -> None:
    wait = timedelta(seconds=7)
    error = errors.UpstreamFailed(errors.UpstreamReason.UNREACHABLE, "Open", dispatched=dispatched, retry_after=wait)
    ended = call_failed(error)
    assert json.loads(ended.error) == json.loads(fault(error).message(1))["error"]
    assert json.loads(ended.error)["data"]["retryAfterMs"] == 7000
    assert ended.unsent is not dispatched


def test_a_task_whose_call_may_have_run_before_says_so_though_it_was_not_sent_again() -> None:
    ended = call_failed(errors.UpstreamFailed(errors.UpstreamReason.UNREACHABLE, "x", dispatched=False), ran=True)
    assert json.loads(ended.error)["data"]["dispatched"] is True
    assert not ended.unsent


@pytest.mark.parametrize("reason", [FaultReason.CALL_LOST, FaultReason.SHUTDOWN, FaultReason.INTERNAL])
@pytest.mark.parametrize("dispatched", [True, False])
def test_a_task_that_the_gateway_gives_up_says_so(reason: FaultReason, dispatched: bool) -> None:
    ended = call_ended(reason, "Gone", dispatched=dispatched)
    data = {"origin": "gateway", "reason": reason.value, "dispatched": dispatched}
    assert json.loads(ended.error) == {"code": -32603, "message": "Gone", "data": data}
    assert (ended.reason, ended.message, ended.unsent) == (reason, "Gone", not dispatched)


@pytest.mark.parametrize(("wait", "more"), [(None, {}), (timedelta(seconds=7), {"retryAfterMs": 7000})])
def test_a_task_that_waited_for_its_turn_for_too_long_is_over_a_limit(
    wait: timedelta | None, more: dict[str, Any]
) -> None:
    ended = call_ended(FaultReason.QUEUE, "No turn", dispatched=False, retry_after=wait)
    data = {"origin": "gateway", "reason": "queue", "dispatched": False, **more}
    assert json.loads(ended.error) == {"code": 429, "message": "No turn", "data": data}
    assert (ended.reason, ended.message) == (FaultReason.QUEUE, "No turn")


def test_a_cancelled_task_has_an_error_outside_the_reserved_codes() -> None:
    # AMB-1.
    assert json.loads(CANCELLED) == {"code": -32800, "message": "Task was cancelled"}
