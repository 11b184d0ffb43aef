"""What a server is told, and what is read from its welcome and its catalogue."""

import json

import pytest

from helpers.schema import check_client_message
from taskgate.domain.policy import TaskSupport
from taskgate.domain.versions import LEGACY, Peer, Revision
from taskgate.errors import UpstreamFailed
from taskgate.protocol.discovery import MAX_WELCOME, ListedTool, ToolPage
from taskgate.protocol.extensions import ExtensionPolicy
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.legacy.upstream import LegacyUpstream
from taskgate.protocol.messages import Params, Response

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
    text = DIALECT.list_tools(4, cursor)
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


NO_REVISION, NO_CAPABILITIES = "it speaks no known revision", "it declared no capabilities"
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
        "its welcome repeats a key, or has too many",
    ),
    "more than anybody has to say": (
        f'{{"protocolVersion":"2025-11-25","capabilities":{{}},"instructions":"{"x" * MAX_WELCOME}"}}',
        "its welcome is too long",
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
        UpstreamFailed, match=r"^The server broke the protocol: its list of tools is no list$"
    ) as failure:
        DIALECT.read_tools(result(page))
    assert reason_of(failure) == ("malformed", True)


def test_a_refused_catalogue_is_a_failure_without_a_word_of_the_server() -> None:
    with pytest.raises(UpstreamFailed, match=r"^The server refused to list its tools$") as failure:
        DIALECT.read_tools(response(REFUSED))
    assert reason_of(failure) == ("refused", False)
