"""Which failures mean that a server is down, and that whoever reports them for another message keeps that."""

from datetime import timedelta

import pytest

from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.protocol.faults import protocol_violation
from taskgate.upstream import failures
from taskgate.upstream.sse import channel
from taskgate.upstream.stdio import exits

SECOND = timedelta(seconds=1)

DOWN = [
    failures.unreachable(),
    failures.unreachable("ECONNREFUSED"),
    failures.left_alone(SECOND),
    failures.closed(),
    failures.broke_off(),
    failures.silent(),
    failures.too_late(dispatched=False),
    failures.refused(500),
    failures.refused(503),
    failures.Severed("cut"),
    failures.Unsurvived("ended"),
    channel.no_endpoint(),
    channel.ended_at_once(),
    channel.ended(dispatched=False),
    exits.CLOSED_OUTPUT.failure(dispatched=False),
    exits.not_in_time(),
    exits.held_back(2, 1.0),
    exits.again(exits.not_in_time()),
]
NOT_DOWN = [
    failures.refused(401),
    failures.refused(404),
    failures.unwelcome(400),
    failures.no_session({"code": 1}),
    failures.session_lost(),
    protocol_violation("no JSON"),
    failures.too_large(),
    failures.redirected(302),
    failures.unread(),
    failures.let_go(dispatched=True),
    failures.let_go(dispatched=False),
    failures.no_credentials(UpstreamReason.UNREACHABLE),
    failures.no_token(),
    failures.no_descriptor(),
    channel.given_up(dispatched=False),
    channel.given_up(dispatched=True),
    exits.OURS.failure(dispatched=True),
    exits.no_room(),
    exits.again(exits.no_room()),
]


@pytest.mark.parametrize("failure", [*DOWN, *NOT_DOWN], ids=str)
def test_a_call_that_was_sent_keeps_the_cause(failure: UpstreamFailed) -> None:
    assert failures.sent(failure).cause == failure.cause
    assert failures.lost_sight(failure).cause == failure.cause


@pytest.mark.parametrize(
    ("failure", "cause"),
    [
        (failures.unreachable(), "unreachable"),
        (failures.unreachable("ECONNREFUSED"), "ECONNREFUSED"),
        (failures.refused(502), "HTTP 502"),
        (failures.refused(403), "HTTP 403"),
        (failures.unwelcome(404), "HTTP 404"),
        (failures.silent(), "timeout"),
        (exits.of_status(3).failure(dispatched=True), "exit status 3"),
        (exits.of_status(-9).failure(dispatched=True), "SIGKILL"),
        (exits.not_started(2, cwd=False), "ENOENT"),
        (exits.again(exits.not_started(13, cwd=True)), "EACCES"),
    ],
    ids=str,
)
def test_a_failure_has_a_cause_for_operators(failure: UpstreamFailed, cause: str) -> None:
    assert failure.cause == cause


@pytest.mark.parametrize("failure", DOWN, ids=str)
def test_a_server_is_down_that_was_not_reached_or_did_not_answer(failure: UpstreamFailed) -> None:
    assert failures.is_down(failure)
    told = failures.unsent(failure)
    assert isinstance(told, failures.Down)
    assert (told.reason, str(told), told.dispatched) == (failure.reason, str(failure), False)
    assert (told.retry_after, told.cause) == (failure.retry_after, failure.cause)
    assert failures.is_down(failures.unsent(told))


@pytest.mark.parametrize("failure", NOT_DOWN, ids=str)
def test_a_server_is_not_down_that_refuses_or_had_no_part_in_it(failure: UpstreamFailed) -> None:
    assert not failures.is_down(failure)
    told = failures.unsent(failures.unsent(failure))
    assert not isinstance(told, failures.Down)
    assert not failures.is_down(told)
    assert (told.reason, told.dispatched, told.cause) == (failure.reason, False, failure.cause)
