"""Messages to and from legacy servers."""

import json

import pytest

from helpers.schema import check_client_message
from taskgate.domain.events import CallFaulted, CallSucceeded
from taskgate.domain.policy import TaskSupport
from taskgate.domain.record import FaultReason
from taskgate.domain.versions import LEGACY, Era, Peer, Revision
from taskgate.errors import UpstreamFailed
from taskgate.protocol.discovery import MAX_WELCOME, ListedTool, ToolPage
from taskgate.protocol.extensions import Extension, ExtensionPolicy
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.legacy.upstream import LegacyUpstream
from taskgate.protocol.messages import Notification, Params, Response
from taskgate.protocol.server_messages import (
    MAX_SERVER_DEPTH,
    CallProgress,
    CallResponse,
    ImmediateReply,
    SessionNotification,
)
from taskgate.protocol.vocabulary import RELAYED_NOTICES

# --- requests and responses -------------------------------------------------------------------------------------------


DIALECT = LegacyUpstream("0.1.0", ExtensionPolicy())
REFUSED = '{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"at 10.0.0.7"}}'
NO_OBJECTS = ["null", "true", "7", '"x"', "[]", '[{"tools":[]}]']


def response(text: str) -> Response:
    message = parse(text.encode(), max_depth=64)
    assert isinstance(message, Response)
    return message


def result(text: str) -> Response:
    return response(f'{{ "id":1,"result" :{text} ,"jsonrpc":"2.0"}}')


def reason_of(failure: pytest.ExceptionInfo[UpstreamFailed]) -> tuple[str, bool]:
    return failure.value.reason, failure.value.dispatched


# --- what is told --------------------------------------------------------------------------------------------------


def test_the_handshake_offers_the_newest_revision_and_no_capability() -> None:
    text = DIALECT.handshake(1, None)
    info = {"name": "taskgate", "version": "0.1.0"}
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
    assert json.loads(text) == {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    check_client_message(text)


@pytest.mark.parametrize("revision", [Revision.R2025_11_25, Revision.R2026_07_28])
def test_the_handshake_tells_what_crosses_of_a_host_beside_what_it_can_be_asked(revision: Revision) -> None:
    # X-EXT-6, X-APP-1.
    ui = {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}
    tasks = {"io.modelcontextprotocol/tasks": {}}
    said = {"roots": {}, "extensions": {**ui, **tasks, "com.example/x": {}}, "experimental": {"x": {}}, "acme": {}}
    host = Peer(revision=revision, capabilities=said, info={})
    assert json.loads(DIALECT.handshake(1, host))["params"]["capabilities"] == {"roots": {}, "extensions": ui}
    check_client_message(DIALECT.handshake(1, host))


@pytest.mark.parametrize(("revision", "told"), [(Revision.R2024_11_05, True), (Revision.R2026_07_28, False)])
def test_the_handshake_tells_what_no_revision_defines_where_others_cross_and_both_are_of_this_era(
    revision: Revision, told: bool
) -> None:
    # X-EXT-55.
    said = {"experimental": {"x": {}}, "acme": {}, "extensions": {"com.example/x": {}}}
    text = LegacyUpstream("0.1.0", ExtensionPolicy(others=True)).handshake(
        1, Peer(revision=revision, capabilities=said, info={})
    )
    assert json.loads(text)["params"]["capabilities"] == (said if told else {})


@pytest.mark.parametrize("revision", LEGACY)
def test_the_handshake_offers_another_revision_where_that_is_wanted(revision: Revision) -> None:
    text = DIALECT.handshake(1, None, revision)
    assert json.loads(text)["params"]["protocolVersion"] == revision.value


def test_a_visit_that_a_server_wants_first_is_a_question_to_a_host_of_the_other_era() -> None:
    request_context = {"mode": "url", "elicitationId": "e", "url": "https://x.example.com", "message": "Pay"}
    refused = {"code": -32042, "message": "Not yet", "data": {"elicitations": [request_context]}}
    host = Peer(revision=Revision.R2026_07_28, capabilities={"elicitation": {"url": {}}}, info={})
    (asked,) = DIALECT.url_questions(response(json.dumps({"jsonrpc": "2.0", "id": 1, "error": refused})), host)
    assert (asked.method, asked.params and json.loads(asked.params.head)) == ("elicitation/create", request_context)
    assert DIALECT.is_accepted('{"result":{"action":"accept"}}')


def test_the_handshake_ends_with_a_notification() -> None:
    text = DIALECT.initialized()
    assert text == '{"jsonrpc":"2.0","method":"notifications/initialized"}'
    check_client_message(text)


ODD = r'"arguments": {"a":1e999,"a":123456789012345678901234567890,"é":"\u00e9\ud800\/"}'


def test_a_call_without_a_token_leaves_as_its_host_wrote_it() -> None:
    text = DIALECT.call(12, "tools/call", Params(f'{{ "name":"t", {ODD} }}'))
    assert text == f'{{"jsonrpc":"2.0","id":12,"method":"tools/call","params":{{ "name":"t", {ODD} }}}}'
    check_client_message(text)


def test_a_call_with_a_token_has_its_id_for_one() -> None:
    text = DIALECT.call(12, "tools/call", Params(f'{{"name":"t",{ODD},"_meta":{{"progressToken": ', ' ,"x":1}}'))
    assert text.endswith(f'"params":{{"name":"t",{ODD},"_meta":{{"progressToken": 12 ,"x":1}}}}}}')
    check_client_message(text)


def test_a_call_without_parameters_has_none() -> None:
    text = DIALECT.call(3, "prompts/list", None)
    assert text == '{"jsonrpc":"2.0","id":3,"method":"prompts/list"}'
    check_client_message(text)


@pytest.mark.parametrize(
    ("cursor", "params"), [(None, "{}"), (r'"\u0063 "', r'{"cursor":"\u0063 "}'), ('""', '{"cursor":""}')]
)
def test_a_cursor_goes_back_as_it_came(cursor: str | None, params: str) -> None:
    # L-LIST-1: opaque, and the empty one is one too.
    text = DIALECT.call(4, "tools/list", DIALECT.page_of_tools(cursor))
    assert text == f'{{"jsonrpc":"2.0","id":4,"method":"tools/list","params":{params}}}'
    check_client_message(text)


@pytest.mark.parametrize("id_", [0, 12, "a"])
def test_a_cancellation_names_the_request_by_our_id(id_: int | str) -> None:
    text = DIALECT.cancel(id_, "The host é left")
    params = {"requestId": id_, "reason": "The host é left"}
    assert json.loads(text) == {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
    check_client_message(text)


# --- the welcome ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", LEGACY)
def test_a_server_may_speak_any_revision_we_know(revision: Revision) -> None:
    capabilities = r'{ "tools" : {}, "x":{"a":1,"a":1e999} }'
    info = '{"name":"s","version":"1"}'
    server = DIALECT.read_welcome(
        result(
            f'{{"protocolVersion":"{revision}","capabilities":{capabilities},'
            f'"instructions": "\\u00e9" ,"serverInfo":{info}}}'
        )
    )
    assert server.peer.revision is revision
    assert server.peer.info == {"name": "s", "version": "1"}
    assert server.peer.capabilities["tools"] == {}
    assert server.capabilities == capabilities
    assert server.instructions == r'"\u00e9"'


@pytest.mark.parametrize("instructions", ["", ',"instructions":null', ',"instructions":7', ',"instructions":["x"]'])
def test_instructions_that_are_no_text_are_none(instructions: str) -> None:
    welcome = f'{{"protocolVersion":"2025-06-18","capabilities":{{}}{instructions}}}'
    assert DIALECT.read_welcome(result(welcome)).instructions is None


def test_empty_instructions_are_instructions() -> None:
    welcome = '{"protocolVersion":"2025-06-18","capabilities":{},"instructions":""}'
    assert DIALECT.read_welcome(result(welcome)).instructions == '""'


@pytest.mark.parametrize("info", ["", ',"serverInfo":null', ',"serverInfo":"s"', ',"serverInfo":[]'])
def test_a_server_that_does_not_say_who_it_is_is_served(info: str) -> None:
    welcome = f'{{"protocolVersion":"2025-06-18","capabilities":{{}}{info}}}'
    assert DIALECT.read_welcome(result(welcome)).peer.info == {}


NO_REVISION, NO_CAPABILITIES = "it chose an unknown protocol revision", "it declared no capabilities"
BAD_WELCOMES: dict[str, tuple[str, str]] = {
    "no revision": ('{"capabilities":{}}', NO_REVISION),
    "a revision to come": ('{"protocolVersion":"2026-07-28","capabilities":{}}', NO_REVISION),
    "a revision of nobody": ('{"protocolVersion":"1","capabilities":{}}', NO_REVISION),
    "a revision that is a number": ('{"protocolVersion":20251125,"capabilities":{}}', NO_REVISION),
    "no capabilities": ('{"protocolVersion":"2025-11-25"}', NO_CAPABILITIES),
    "capabilities that are null": ('{"protocolVersion":"2025-11-25","capabilities":null}', NO_CAPABILITIES),
    "capabilities that are a list": ('{"protocolVersion":"2025-11-25","capabilities":[]}', NO_CAPABILITIES),
    "a capability told twice": (
        '{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"t\\u006fols":{}}}',
        "its result of initialize repeats a key, or has too many keys",
    ),
    "more than anybody has to say": (
        f'{{"protocolVersion":"2025-11-25","capabilities":{{}},"instructions":"{"x" * MAX_WELCOME}"}}',
        "its result of initialize is too long",
    ),
    **{text: (text, NO_REVISION) for text in NO_OBJECTS},
}


@pytest.mark.parametrize(("welcome", "told"), BAD_WELCOMES.values(), ids=BAD_WELCOMES)
def test_a_welcome_that_cannot_be_read_is_a_failure(welcome: str, told: str) -> None:
    with pytest.raises(UpstreamFailed, match=f"^The server broke the protocol: {told}$") as failure:
        DIALECT.read_welcome(result(welcome))
    assert reason_of(failure) == ("malformed", True)


def test_a_refused_handshake_is_a_failure_without_a_word_of_the_server() -> None:
    with pytest.raises(UpstreamFailed, match=r"^The server refused to open a session$") as failure:
        DIALECT.read_welcome(response(REFUSED))
    assert reason_of(failure) == ("refused", False)


# --- the catalogue -------------------------------------------------------------------------------------------------

NATIVE: dict[str, tuple[str, TaskSupport | None]] = {
    "nothing": ("", None),
    "null": (',"execution":null', None),
    "a list": (',"execution":["taskSupport"]', None),
    "an empty object": (',"execution":{}', None),
    "a number": (',"execution":{"taskSupport":1}', None),
    "another word": (',"execution":{"taskSupport":"Required"}', None),
    **{word.value: (f',"execution":{{"taskSupport":"{word}"}}', word) for word in TaskSupport},
}


@pytest.mark.parametrize(("execution", "native"), NATIVE.values(), ids=NATIVE)
def test_a_page_tells_what_the_server_says_of_each_tool(execution: str, native: TaskSupport | None) -> None:
    page = f'{{"tools":[{{"name":"t"{execution}}},{{"name":"\\u00e9"}}]}}'
    listed = {"t": ListedTool(support=native), "é": ListedTool()}
    assert DIALECT.read_tools(result(page)) == ToolPage(tools=listed, cursor=None)


@pytest.mark.parametrize(("header", "mirrored"), [("Region", {"Region": ("region",)}), ("no header", {})])
def test_a_page_tells_which_arguments_hosts_repeat_in_headers(header: str, mirrored: dict[str, tuple[str]]) -> None:
    # What is not sound for a server of the other era is no annotation of one of this era.
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": header}}}
    page = DIALECT.read_tools(result(json.dumps({"tools": [{"name": "t", "inputSchema": schema}]})))
    assert page.tools == {"t": ListedTool(header_paths=mirrored)}


def test_a_page_tells_what_the_server_hints_of_each_tool() -> None:
    page = DIALECT.read_tools(result('{"tools":[{"name":"t","annotations":{"readOnlyHint":true,"title":"T"}}]}'))
    assert page.tools == {"t": ListedTool(hints={"readOnlyHint": True})}


def test_what_is_no_tool_is_left_out() -> None:
    page = '{"tools":[null,7,"t",["name"],{},{"name":null},{"name":7},{"name":"u"},{"name":"","x":1,"x":2}]}'
    assert DIALECT.read_tools(result(page)).tools == {"u": ListedTool(), "": ListedTool()}


CURSORS = [
    ("", None),
    (',"nextCursor":null', None),
    (',"nextCursor":7', None),
    (',"nextCursor":{}', None),
    (',"nextCursor":""', '""'),
    (',"nextCursor": "\\u0063" ', '"\\u0063"'),
]


@pytest.mark.parametrize(("member", "cursor"), CURSORS)
def test_the_next_cursor_is_kept_as_it_is_written(member: str, cursor: str | None) -> None:
    assert DIALECT.read_tools(result(f'{{"tools":[]{member}}}')) == ToolPage(tools={}, cursor=cursor)


@pytest.mark.parametrize("page", [*NO_OBJECTS, "{}", '{"tools":null}', '{"tools":{}}', '{"tools":"t"}'])
def test_a_catalogue_that_is_no_list_is_a_failure(page: str) -> None:
    with pytest.raises(
        UpstreamFailed, match=r"^The server broke the protocol: its list of tools is not valid$"
    ) as failure:
        DIALECT.read_tools(result(page))
    assert reason_of(failure) == ("malformed", True)


def test_a_refused_catalogue_is_a_failure_without_a_word_of_the_server() -> None:
    with pytest.raises(UpstreamFailed, match=r"^The server refused to list its tools$") as failure:
        DIALECT.read_tools(response(REFUSED))
    assert reason_of(failure) == ("refused", False)


# --- messages of servers ----------------------------------------------------------------------------------------------


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
    "a nest too deep": b'{"jsonrpc":"2.0","id":1,"result":' + b"[" * MAX_SERVER_DEPTH + b"]" * MAX_SERVER_DEPTH + b"}",
}


@pytest.mark.parametrize("message", GARBAGE.values(), ids=GARBAGE)
def test_what_is_no_message_is_a_failure(message: bytes) -> None:
    with pytest.raises(
        UpstreamFailed, match=r"^The server broke the protocol: a message of it is not JSON-RPC$"
    ) as failure:
        DIALECT.decode(message, None)
    assert (failure.value.reason, failure.value.dispatched) == ("malformed", True)
    assert failure.value.__cause__ is None


def test_a_nest_just_not_too_deep_is_heard() -> None:
    levels = MAX_SERVER_DEPTH - 1
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
        UpstreamFailed, match=r"^The server broke the protocol: its result is not a tool result$"
    ) as failure:
        outcome(f'"result":{text}')
    assert (failure.value.reason, failure.value.dispatched) == ("malformed", True)


def test_what_is_no_response_is_that_to_no_request() -> None:
    assert DIALECT.response_to(7, b'{"jsonrpc":"2.0","method":"notifications/message"}') is None


@pytest.mark.parametrize("result", ["{}", '{"content":[{"type":"text","text":"done"}]}', '{"content":[ ]}'])
def test_the_response_to_a_request_is_known_by_its_id(result: str) -> None:
    message = f'{{"jsonrpc":"2.0","id":7,"result":{result}}}'.encode()
    own, other = DIALECT.response_to(7, message), DIALECT.response_to(8, message)
    assert own is not None
    assert (own.id, own.text, other) == (7, message.decode(), None)
