"""What a server says of its own accord, and what its answer to a call means for a task."""

import json

import pytest

from helpers.schema import check_client_message
from taskgate.domain.events import CallFaulted, CallSucceeded
from taskgate.domain.record import FaultReason
from taskgate.domain.versions import Era, Peer, Revision
from taskgate.errors import UpstreamFailed
from taskgate.protocol.extensions import Extension, ExtensionPolicy
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.legacy.upstream import MAX_DEPTH, LegacyUpstream
from taskgate.protocol.messages import Notification, Response
from taskgate.protocol.server_messages import CallProgress, CallResponse, ImmediateReply, SessionNotification
from taskgate.protocol.vocabulary import RELAYED_NOTICES

DIALECT = LegacyUpstream("0.1.0", ExtensionPolicy())


def response(text: str) -> Response:
    message = parse(text.encode(), max_depth=64)
    assert isinstance(message, Response)
    return message


# --- hear ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("member", ['"result": {"x":{"a":1,"a":1e999}}', '"error":{"code":1,"message":"\\ud800"}'])
@pytest.mark.parametrize("id_", ["7", '"7"'])
def test_an_answer_is_told_by_our_id_and_kept_as_text(member: str, id_: str) -> None:
    text = f'{{ "jsonrpc":"2.0", "id" : {id_}, {member} }}'
    heard = DIALECT.decode(text.encode(), None)
    assert isinstance(heard, CallResponse)
    assert (heard.response.id, heard.response.text) == (json.loads(id_), text)


@pytest.mark.parametrize("id_", ["0", '"\\u0061"', '""'])
def test_a_ping_is_answered_at_once(id_: str) -> None:
    # V-INIT-5.
    heard = DIALECT.decode(f'{{"jsonrpc":"2.0","id":{id_},"method":"ping","params":{{}}}}'.encode(), None)
    assert isinstance(heard, ImmediateReply)
    assert json.loads(heard.reply) == {"jsonrpc": "2.0", "id": json.loads(id_), "result": {}}
    check_client_message(heard.reply, request_method="ping")


QUESTIONS = ["roots/list", "sampling/createMessage", "elicitation/create", "tasks/get", "tools/list", "nonsense"]


@pytest.mark.parametrize("method", QUESTIONS)
@pytest.mark.parametrize("params", ["", ',"params":{}', ',"params":[]'])
def test_any_other_question_is_refused_for_no_capability_was_declared(method: str, params: str) -> None:
    heard = DIALECT.decode(f'{{"jsonrpc":"2.0","id":"q","method":"{method}"{params}}}'.encode(), None)
    assert isinstance(heard, ImmediateReply)
    error = {"code": -32601, "message": "Method not found"}
    assert json.loads(heard.reply) == {"jsonrpc": "2.0", "id": "q", "error": error}
    check_client_message(heard.reply, request_method=method)


@pytest.mark.parametrize(("token", "number"), [("12", 12), ("0", 0), ("-1", -1)])
def test_progress_is_told_by_our_token(token: str, number: int) -> None:
    text = f'{{"jsonrpc":"2.0","method":"notifications/progress","params":{{ "progress":1,"progressToken":{token}}}}}'
    heard = DIALECT.decode(text.encode(), None)
    assert isinstance(heard, CallProgress)
    assert (heard.token, heard.notification.text) == (number, text)


NOT_OURS = ["{}", '{"progressToken":"12"}', '{"progressToken":true}', '{"progressToken":12.0}', "[12]", "null"]


@pytest.mark.parametrize("params", NOT_OURS)
def test_progress_under_a_token_that_cannot_be_ours_is_dropped(params: str) -> None:
    assert (
        DIALECT.decode(f'{{"jsonrpc":"2.0","method":"notifications/progress","params":{params}}}'.encode(), None)
        is None
    )


@pytest.mark.parametrize("method", sorted(RELAYED_NOTICES))
@pytest.mark.parametrize("params", ["", ', "params": {"level":"info","data":{"a":1,"a":2}}'])
def test_a_notification_about_the_session_is_passed_on(method: str, params: str) -> None:
    text = f'{{ "jsonrpc":"2.0","method":"{method}"{params} }}'
    heard = DIALECT.decode(text.encode(), None)
    assert isinstance(heard, SessionNotification)
    assert isinstance(heard.notification, Notification)
    assert heard.notification.text == text


DROPPED = ["notifications/initialized", "notifications/tasks/status", "ping", "nonsense"]


@pytest.mark.parametrize("method", DROPPED)
def test_any_other_notification_is_dropped(method: str) -> None:
    assert DIALECT.decode(f'{{"jsonrpc":"2.0","method":"{method}","params":{{"requestId":1}}}}'.encode(), None) is None


CHANGED = Extension(notifications=frozenset({"notifications/thing/changed"}), eras=frozenset(Era))
OF_ERA = Extension(notifications=frozenset({"notifications/other/changed"}))
CARRYING = LegacyUpstream("0.1.0", ExtensionPolicy(allowed={"com.example/thing": CHANGED, "com.example/other": OF_ERA}))


def changed(thing: str) -> str:
    return f'{{ "jsonrpc":"2.0","method":"notifications/{thing}/changed","params":{{"a": 1.0,"_meta":{{"b":2}}}} }}'


@pytest.mark.parametrize(
    ("thing", "revision", "is_heard"),
    [
        ("thing", Revision.R2025_11_25, True),
        ("thing", Revision.R2026_07_28, True),
        ("other", Revision.R2024_11_05, True),
        ("other", Revision.R2026_07_28, False),
        ("third", Revision.R2025_11_25, False),
    ],
)
def test_a_notification_of_an_extension_is_passed_on_where_it_crosses(
    thing: str, revision: Revision, is_heard: bool
) -> None:
    # X-EXT-23.
    heard = CARRYING.decode(changed(thing).encode(), Peer(revision=revision, capabilities={}, info={}))
    assert (isinstance(heard, SessionNotification) and heard.notification.text) == (is_heard and changed(thing))


def test_a_notification_of_an_extension_is_for_nobody_where_no_host_is_known() -> None:
    # X-EXT-42.
    assert CARRYING.decode(changed("thing").encode(), None) is None


GARBAGE: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"{",
    "a page of HTML": b"<html></html>",
    "no UTF-8": b'{"jsonrpc":"2.0","id":1,"result":"\xff"}',
    "a mark before it": b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"result":{}}',
    "NaN": b'{"jsonrpc":"2.0","id":1,"result":{"a":NaN}}',
    "a batch": b'[{"jsonrpc":"2.0","id":1,"result":{}}]',
    "no version": b'{"id":1,"result":{}}',
    "a null id": b'{"jsonrpc":"2.0","id":null,"result":{}}',
    "no id": b'{"jsonrpc":"2.0","result":{}}',
    "neither result nor error": b'{"jsonrpc":"2.0","id":1}',
    "result and error": b'{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}',
    "an error that is a text": b'{"jsonrpc":"2.0","id":1,"error":"no"}',
    "a repeated member": b'{"jsonrpc":"2.0","id":1,"id":2,"result":{}}',
    "a repeated key of the result": b'{"jsonrpc":"2.0","id":1,"result":{"isError":true,"isError":false}}',
    "a nest too deep": b'{"jsonrpc":"2.0","id":1,"result":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}",
}


@pytest.mark.parametrize("message", GARBAGE.values(), ids=GARBAGE)
def test_what_is_no_message_is_a_failure(message: bytes) -> None:
    with pytest.raises(
        UpstreamFailed, match=r"^The server broke the protocol: a message of it is no JSON-RPC message$"
    ) as failure:
        DIALECT.decode(message, None)
    assert (failure.value.reason, failure.value.dispatched) == ("malformed", True)
    assert failure.value.__cause__ is None


def test_a_nest_just_not_too_deep_is_heard() -> None:
    levels = MAX_DEPTH - 1
    assert DIALECT.decode(b'{"jsonrpc":"2.0","id":1,"result":' + b"[" * levels + b"]" * levels + b"}", None) is not None


# --- outcome -------------------------------------------------------------------------------------------------------


def outcome(member: str) -> CallSucceeded | CallFaulted:
    return DIALECT.outcome(response(f'{{"id":1, {member} , "jsonrpc":"2.0"}}'))


RESULTS: dict[str, tuple[str, bool, str | None]] = {
    "a result": ('{"content":[{"type":"text","text":"x"}]}', False, None),
    "not an error": ('{"content":[],"isError":false}', False, None),
    "an error that is none": ('{"content":[{"type":"text","text":"x"}],"isError":"true"}', False, None),
    "an error that is a number": ('{"content":[],"isError":1}', False, None),
    "empty": ("{ }", False, None),
    "structured only": ('{"structuredContent":{"a":1e999,"a":2},"é":"\\u00e9\\ud800"}', False, None),
    "a result that names a task too": ('{"content":[],"task":{}}', False, None),
    "an error": ('{"content":[{"type":"text","text":"no \\u00e9"}],"isError":true}', True, "no é"),
    "an error in parts": (
        '{"isError":true,"content":[{"type":"text","text":"a"},{"type":"image"},7,null,{"text":1},{"text":"b"}]}',
        True,
        "a\nb",
    ),
    "an error with a lone surrogate": ('{"isError":true,"content":[{"text":"a\\ud800b"}]}', True, "a?b"),
    "an error without a text": ('{"isError":true,"content":[{"type":"image"}]}', True, "The tool reported an error"),
    "an error without content": ('{"isError":true}', True, "The tool reported an error"),
    "an error whose content is no list": (
        '{"isError":true,"content":{"text":"x"}}',
        True,
        "The tool reported an error",
    ),
}


@pytest.mark.parametrize(("text", "tool_error", "message"), RESULTS.values(), ids=RESULTS)
def test_a_result_is_kept_to_the_byte(text: str, tool_error: bool, message: str | None) -> None:
    assert outcome(f'"result" : {text}') == CallSucceeded(result=text, tool_error=tool_error, message=message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{ "code":-32000, "message" :"no \\u00e9","data":{"a":1,"a":1e999} }', "no é"),
        ('{"message":"","code":0}', ""),
        ('{"code":1,"message":"a\\ud800b"}', "a?b"),
    ],
)
def test_an_error_is_kept_to_the_byte(text: str, message: str) -> None:
    assert outcome(f'"error" : {text}') == CallFaulted(error=text, reason=FaultReason.JSONRPC_ERROR, message=message)


@pytest.mark.parametrize("text", ["null", "7", '"x"', "[]", "true", '{"task":{"taskId":"x"}}', '{"task":null}'])
def test_what_no_tool_returns_is_a_failure(text: str) -> None:
    with pytest.raises(
        UpstreamFailed, match=r"^The server broke the protocol: its answer is no tool result$"
    ) as failure:
        outcome(f'"result":{text}')
    assert (failure.value.reason, failure.value.dispatched) == ("malformed", True)
