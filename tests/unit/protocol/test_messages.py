"""Messages are values, and parameters are read with their types checked."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from requirements import covers
from taskgate.errors import InvalidParams, MalformedMessage, TaskNotFound
from taskgate.jsontext.edits import splice, splice_range
from taskgate.jsontext.spans import Member, Members
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import (
    ENVELOPE,
    MAX_CAPABILITIES,
    MAX_INFO,
    MAX_TOOL_NAME,
    Message,
    Notification,
    Params,
    Request,
    Response,
    check_capabilities,
    error_of,
    is_task_id,
    meta_of,
    required_string,
    required_unicode,
    short_info,
    task_id,
    tool_name,
    value_of,
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


@pytest.mark.parametrize("token", [7, "q"])
def test_parameters_without_a_token_leave_as_they_are(token: int | str) -> None:
    params = Params('{ "name" : "t" }')
    assert params.with_token(token) == '{ "name" : "t" }'


@pytest.mark.parametrize(("token", "told"), [(7, "7"), (0, "0"), (-1, "-1"), ("", '""'), ('é"\\', r'"é\"\\"')])
def test_our_token_stands_where_the_senders_stood(token: int | str, told: str) -> None:
    params = Params('{"_meta":{"progressToken": ', " }}")
    assert params.with_token(token) == f'{{"_meta":{{"progressToken": {told} }}}}'


def test_an_empty_tail_is_a_tail() -> None:
    params = Params("[", "")
    assert params.with_token(1) == "[1"


@pytest.mark.parametrize(("params", "size"), [(Params("{}"), 2), (Params("{é", ""), 2), (Params("{é", "}}}"), 5)])
def test_the_size_is_that_of_the_senders_text(params: Params, size: int) -> None:
    assert params.size == size


@pytest.mark.parametrize(
    ("members", "label"),
    [
        ('"result":{"content":[]}', None),
        ('"result":{"isError":false}', None),
        ('"result":{"isError":"true"}', None),
        ('"result":{"isError":true}', "tool_error"),
        ('"error":{"code":-32602,"message":"no"}', "-32602"),
    ],
)
def test_an_error_is_the_code_of_the_server_or_a_result_that_says_so(members: str, label: str | None) -> None:
    response = parse(f'{{"jsonrpc":"2.0","id":1,{members}}}'.encode(), max_depth=64)
    assert isinstance(response, Response)
    assert error_of(response) == label


# --- reading parameters -----------------------------------------------------------------------------------------------


ID = "7Qm2vX0cJ9rYw4LkT1eZ8A-_7Qm2vX0c"
RELATED = '"io.modelcontextprotocol/related-task"'


def request_of(text: str) -> Request:
    message = parse(f'{{"jsonrpc":"2.0","id":1,"method":"m","params":{text}}}'.encode(), max_depth=64)
    assert isinstance(message, Request)
    return message


def params_of(text: str) -> Members:
    return request_of(text).params


@pytest.mark.parametrize(("text", "value"), [("{}", None), ('{"a":null}', None), ('{"a":[1]}', [1]), ("[]", None)])
def test_a_value_is_none_where_there_is_none(text: str, value: Any) -> None:
    assert value_of(params_of(text), "a") == value


def test_a_required_string_is_returned() -> None:
    assert required_string(params_of(r'{"a":"\u00e9"}'), "a", "a") == "é"


@pytest.mark.parametrize("text", ["{}", '{"a":null}', '{"a":1}', '{"a":{}}', '{"a":["x"]}', "[]", "7"])
def test_a_required_string_of_another_type_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(InvalidParams, match=r"^The word must be a string$"):
        required_string(params_of(text), "a", "The word")


GOOD_NAMES = {
    "plain": ("render", '"render"'),
    "escaped": ("ré/n.d-e_r", r'"r\u00e9\/n.d-e_r"'),
    "a pair of surrogates": ("😀", r'"\ud83d\ude00"'),
    "empty": ("", '""'),
    "as long as may be": ("漢" * MAX_TOOL_NAME, f'"{"漢" * MAX_TOOL_NAME}"'),
}


@pytest.mark.parametrize(("name", "text"), GOOD_NAMES.values(), ids=GOOD_NAMES)
@pytest.mark.parametrize("arguments", ["", ',"arguments":{}', ',"arguments":{"a":1,"a":2}'])
def test_a_tools_name_is_read(name: str, text: str, arguments: str) -> None:
    assert tool_name(request_of(f'{{"name":{text}{arguments}}}')) == name


BAD_CALLS = {
    "no name": ("{}", "The tool's name must be a string"),
    "a number": ('{"name":1}', "The tool's name must be a string"),
    "too long": (f'{{"name":"{"x" * (MAX_TOOL_NAME + 1)}"}}', "The tool's name is longer than 128 characters"),
    "arguments that are null": ('{"name":"t","arguments":null}', "The arguments must be an object"),
    "arguments that are a list": ('{"name":"t","arguments":[]}', "The arguments must be an object"),
    "arguments that are a text": ('{"name":"t","arguments":"{}"}', "The arguments must be an object"),
}


@pytest.mark.parametrize(("text", "told"), BAD_CALLS.values(), ids=BAD_CALLS)
def test_a_call_of_wrong_types_is_refused(text: str, told: str) -> None:
    with pytest.raises(InvalidParams, match=f"^{told}$"):
        tool_name(request_of(text))


@pytest.mark.parametrize("name", [r"\ud800", r"a\udfffb", r"\ude00\ud83d"])
def test_a_tools_name_that_cannot_be_written_out_is_no_message(name: str) -> None:
    with pytest.raises(MalformedMessage, match=r"^The tool's name is not valid Unicode$"):
        tool_name(request_of(f'{{"name":"{name}"}}'))


@pytest.mark.parametrize("id_", [ID, "A" * 32, "-" * 32, "_0" * 16])
def test_an_id_of_our_making_is_read(id_: str) -> None:
    assert task_id(params_of(f'{{"taskId":"{id_}"}}')) == id_


NO_IDS = {
    "absent": "{}",
    "null": '{"taskId":null}',
    "a number": '{"taskId":7}',
    "an object": '{"taskId":{}}',
    "empty": '{"taskId":""}',
    "too short": f'{{"taskId":"{ID[1:]}"}}',
    "too long": f'{{"taskId":"{ID}A"}}',
    "a line's end after it": f'{{"taskId":"{ID}\\n"}}',
    "another alphabet": f'{{"taskId":"{ID[1:]}+"}}',
    "other letters": f'{{"taskId":"{ID[1:]}é"}}',
    "a lone surrogate": f'{{"taskId":"{ID[1:]}\\ud800"}}',
    "no object": "[]",
}


@covers("T24")
@pytest.mark.parametrize("text", NO_IDS.values(), ids=NO_IDS)
def test_what_can_be_no_id_of_ours_is_a_task_not_found(text: str) -> None:
    with pytest.raises(TaskNotFound, match=r"^Task not found$"):
        task_id(params_of(text))


@covers("L-GET-3")
def test_the_related_task_key_never_selects_a_task() -> None:
    # T22.
    other = "B" * 32
    assert task_id(params_of(f'{{"_meta":{{{RELATED}:{{"taskId":"{other}"}}}},"taskId":"{ID}"}}')) == ID


@pytest.mark.parametrize(("value", "could_be"), [(ID, True), (ID[1:], False), (7, False), (None, False), ([ID], False)])
def test_an_id_could_be_ours_or_not(value: object, could_be: bool) -> None:
    assert is_task_id(value) is could_be


@pytest.mark.parametrize(
    ("text", "keys"), [("{}", []), ('{"_meta":{}}', []), ('{"_meta":[1]}', []), ('{"_meta":{"a":1,"b":2}}', ["a", "b"])]
)
def test_a_meta_that_is_none_has_no_members(text: str, keys: list[str]) -> None:
    assert list(meta_of(params_of(text))) == keys


def test_a_string_that_will_be_written_elsewhere_is_valid_unicode() -> None:
    assert required_unicode(params_of(r'{"a":"\ud83d\ude00"}'), "a", "The word") == "😀"
    with pytest.raises(MalformedMessage, match=r"^The word is not valid Unicode$"):
        required_unicode(params_of(r'{"a":"\udfff"}'), "a", "The word")
    with pytest.raises(InvalidParams, match=r"^The word must be a string$"):
        required_unicode(params_of("{}"), "a", "The word")


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


@pytest.mark.parametrize(
    ("info", "kept"),
    [
        ({}, {}),
        ({"name": "h", "version": "1", "title": "t"}, {"name": "h", "version": "1"}),
        ({"name": 1, "version": None}, {}),
        ({"version": "x" * (MAX_INFO + 1)}, {"version": "x" * MAX_INFO}),
    ],
    ids=["nothing", "more", "no words", "long"],
)
def test_of_what_a_host_says_it_is_two_words_are_kept(info: dict[str, Any], kept: dict[str, Any]) -> None:
    assert short_info(info) == kept
