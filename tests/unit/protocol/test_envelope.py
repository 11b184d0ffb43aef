"""A message is a value: it does not change, and is taken apart by its kind and by the names of its parts."""

import pytest

from taskgate.jsontext.spans import Member
from taskgate.protocol.envelope import ENVELOPE, Message, Notification, Request, Response

MESSAGES: list[Message] = [
    Request(id=1, method="m", params={}, text="t", params_text=""),
    Notification(method="m", params={}, text="t", params_text=""),
    Response(id=1, result=Member({}, 0, 1, 2, {}), error=None, text="t", id_span=(0, 1)),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_does_not_change(message: Message) -> None:
    with pytest.raises(AttributeError):
        message.text = "other"  # type: ignore[misc]


def test_a_message_is_told_by_its_kind_and_the_names_of_its_parts() -> None:
    def kind(message: Message) -> str:
        match message:
            case Request(method="m", id=1):
                return "request"
            case Notification(method="m"):
                return "notification"
            case Response(error=None):
                return "response"
        return "other"

    assert [kind(message) for message in MESSAGES] == ["request", "notification", "response"]


def test_a_response_has_the_code_of_its_error_or_none() -> None:
    error = Member({}, 0, 1, 2, {"code": Member(-32603, 0, 1, 2, None)})
    assert Response(id=1, result=None, error=error, text="t", id_span=(0, 1)).error_code == -32603
    assert Response(id=1, result=Member({}, 0, 1, 2, {}), error=None, text="t", id_span=(0, 1)).error_code is None


def test_what_is_opened_in_any_message_is_what_the_gateway_reads_or_amends() -> None:
    assert {name: sorted(inside) for name, inside in ENVELOPE.items()} == {
        "params": ["_meta", "task"],
        "result": ["_meta"],
        "error": [],
    }
