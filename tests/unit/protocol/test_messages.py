"""Messages are values, and parameters are read with their types checked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskgate.errors import InvalidParams
from taskgate.jsontext.edits import splice, splice_range
from taskgate.jsontext.spans import Member, Members
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import (
    ENVELOPE,
    MAX_CAPABILITIES,
    Message,
    Notification,
    Params,
    Request,
    Response,
    check_capabilities,
    is_task_id,
)

# --- messages ---------------------------------------------------------------------------------------------------------


MESSAGES: list[Message] = [
    Request(id=1, method="m", params={}, text="t", params_text=""),
    Notification(method="m", params={}, text="t", params_text="", params_at=0),
    Response(id=1, result=Member({}, 0, 1, 2, {}), error=None, text="t", id_span=(0, 1), error_code=None),
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
    codes = [
        parse(f'{{"jsonrpc":"2.0","id":1,{outcome}}}'.encode(), max_depth=9)
        for outcome in ('"error":{"code":-32603,"message":""}', '"result":{}', '"result":7')
    ]
    assert [isinstance(response, Response) and response.error_code for response in codes] == [-32603, None, None]


def test_what_is_opened_in_any_message_is_what_the_gateway_reads_or_amends() -> None:
    assert {name: sorted(inside) for name, inside in ENVELOPE.items()} == {
        "params": ["_meta", "task"],
        "result": ["_meta"],
        "error": [],
    }


# --- parameters on their way ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("params", "size"), [(Params("{}"), 2), (Params("{é", ""), 2), (Params("{é", "}}}"), 5)])
def test_the_size_is_that_of_the_senders_text(params: Params, size: int) -> None:
    assert params.size == size


# --- reading parameters -----------------------------------------------------------------------------------------------


ID = "7Qm2vX0cJ9rYw4LkT1eZ8A-_7Qm2vX0c"


def request_of(text: str) -> Request:
    message = parse(f'{{"jsonrpc":"2.0","id":1,"method":"m","params":{text}}}'.encode(), max_depth=64)
    assert isinstance(message, Request)
    return message


def params_of(text: str) -> Members:
    return request_of(text).params


@pytest.mark.parametrize(("value", "could_be"), [(ID, True), (ID[1:], False), (7, False), (None, False), ([ID], False)])
def test_an_id_could_be_ours_or_not(value: object, could_be: bool) -> None:
    assert is_task_id(value) is could_be


@pytest.mark.parametrize(
    ("begin", "end", "left"), [(0, 10, "01x3457y9"), (0, 6, "01x345"), (3, 10, "3457y9"), (3, 6, "345"), (7, 7, "")]
)
def test_a_text_is_cut_by_the_edits_that_lie_in_it(begin: int, end: int, left: str) -> None:
    assert splice_range("0123456789", begin, end, [(2, 3, "x"), (6, 7, ""), (8, 9, "y")]) == left


@given(st.tuples(*[st.integers(0, 10)] * 4))
def test_a_single_edit_counts_where_it_lies_in_the_text(places: tuple[int, int, int, int]) -> None:
    (begin, end), (start, stop) = sorted(places[:2]), sorted(places[2:])
    inside = begin <= start and stop <= end
    left = splice("0123456789", [(start, stop, "x")] if inside else [])
    assert splice_range("0123456789", begin, end, [(start, stop, "x")]) == left[begin : len(left) - (10 - end)]


def test_capabilities_may_be_so_long_and_no_longer() -> None:
    check_capabilities(None)
    most = f'{{"a":"{"x" * (MAX_CAPABILITIES - 8)}"}}'
    check_capabilities(params_of(f'{{"c":{most}}}')["c"])
    with pytest.raises(InvalidParams, match=r"^The capabilities are longer than 16384 characters$"):
        check_capabilities(params_of(f'{{"c":{most[:-1]} }}}}')["c"])
