"""Messages and errors between replicas, as they are encoded and decoded."""

import json
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from taskgate import errors
from taskgate.cluster.messages import (
    Envelope,
    QuestionAnswer,
    RequestCancelled,
    SessionEnded,
    decode,
    decode_error,
    encode,
    encode_error,
    kind_of,
    message_in,
)
from taskgate.domain.versions import Era
from taskgate.errors import UpstreamReason
from taskgate.protocol.faults import fault
from taskgate.streams.handover import StreamClaim
from taskgate.upstream import failures

SOON = timedelta(seconds=2.5)
KINDS = {"Ended": SessionEnded, "Cancelled": RequestCancelled}


def test_a_word_is_read_as_it_was_written() -> None:
    word = QuestionAnswer("session \u2028", "question-1", '{"result":{"text":"\ud800 \u00e9"}}')
    envelope = decode(encode(word, sender="a", to="b"))
    assert envelope == Envelope("a", "b", "Answered", [*word])
    assert message_in(envelope, {"Answered": QuestionAnswer}) == word


@pytest.mark.parametrize("request_id", ["7", 7])
def test_the_type_of_an_id_survives(request_id: str | int) -> None:
    envelope = decode(encode(RequestCancelled("s", request_id), sender="a", to=None))
    assert envelope is not None
    assert envelope.to is None
    assert message_in(envelope, KINDS) == RequestCancelled("s", request_id)
    assert type(message_in(envelope, KINDS)[1]) is type(request_id)  # type: ignore[index]


@pytest.mark.parametrize(
    "written", [[], ["a"], ["a", None], ["a", 1, "Ended", "s"], [1, None, "Ended", "s"], ["a", None, 1, "s"], {}, "a"]
)
def test_what_is_no_word_is_not_read(written: Any) -> None:
    assert decode(json.dumps(written).encode()) is None


@pytest.mark.parametrize("text", [b"", b"\xff", b"[1", b"nothing", b"[" * 100_000])
def test_what_is_no_text_of_ours_is_not_read(text: bytes) -> None:
    assert decode(text) is None


@pytest.mark.parametrize(
    "envelope",
    [
        Envelope("a", None, "Begun", ["s"]),
        Envelope("a", None, "Ended", []),
        Envelope("a", None, "Ended", ["s", "more"]),
    ],
    ids=["a kind that is not known", "too little", "too much"],
)
def test_a_word_of_another_version_is_passed_over(envelope: Envelope) -> None:
    """Replicas are restarted one after the other: for a while not all of them know the same words."""
    assert message_in(envelope, KINDS) is None


class Unrenamed(NamedTuple):
    """A message whose class was never renamed."""

    text: str


@pytest.mark.parametrize(
    ("message", "kind"), [(Unrenamed, "Unrenamed"), (SessionEnded, "Ended"), (StreamClaim, "TakenUp")]
)
def test_a_kind_is_the_name_that_released_gateways_know(message: type[tuple[Any, ...]], kind: str) -> None:
    assert kind_of(message) == kind


# --- errors -----------------------------------------------------------------------------------------------------------


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
    arrived = decode_error(json.loads(json.dumps(encode_error(error))))
    assert type(arrived) is type(error)
    assert str(arrived) == str(error)
    assert vars(arrived) == vars(error)
    assert fault(arrived, era) == fault(error, era)


@pytest.mark.parametrize("era", Era)
@pytest.mark.parametrize("status", [400, 401, 422, 503])
def test_a_refusal_of_a_server_arrives_with_what_it_said(status: int, era: Era) -> None:
    error = failures.unwelcome(status, body={"detail": "no"})
    arrived = decode_error(json.loads(json.dumps(encode_error(error))))
    assert isinstance(arrived, errors.UpstreamFailed)
    assert fault(arrived, era) == fault(error, era)


@pytest.mark.parametrize("error", [ValueError("secret"), errors.Draining(SOON), errors.TaskNotFound()])
def test_any_other_arrives_as_an_internal_error_without_a_word(error: Exception) -> None:
    encoded = encode_error(error)
    assert "secret" not in json.dumps(encoded)
    arrived = decode_error(encoded)
    assert type(arrived) is errors.InternalError
    assert str(arrived) == ""
