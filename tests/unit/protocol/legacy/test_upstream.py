"""Messages to and from legacy servers."""

import json

import pytest

from helpers.schema import check_client_message
from taskgate.domain.events import CallFaulted, CallSucceeded
from taskgate.domain.versions import LEGACY, Era, Peer, Revision
from taskgate.errors import UpstreamFailed
from taskgate.protocol.discovery import MAX_WELCOME, ListedTool
from taskgate.protocol.extensions import Extension, ExtensionPolicy
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.legacy.upstream import LegacyUpstream
from taskgate.protocol.messages import Response
from taskgate.protocol.server_messages import (
    MAX_SERVER_DEPTH,
    SessionNotification,
)

# --- requests and responses -------------------------------------------------------------------------------------------


DIALECT = LegacyUpstream("0.1.0", ExtensionPolicy())
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


def test_the_handshake_ends_with_a_notification() -> None:
    text = DIALECT.initialized()
    assert text == '{"jsonrpc":"2.0","method":"notifications/initialized"}'
    check_client_message(text)


@pytest.mark.parametrize(
    ("cursor", "params"), [(None, "{}"), (r'"\u0063 "', r'{"cursor":"\u0063 "}'), ('""', '{"cursor":""}')]
)
def test_a_cursor_goes_back_as_it_came(cursor: str | None, params: str) -> None:
    # L-LIST-1: opaque, and the empty one is one too.
    text = DIALECT.call(4, "tools/list", DIALECT.page_of_tools(cursor))
    assert text == f'{{"jsonrpc":"2.0","id":4,"method":"tools/list","params":{params}}}'
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


# --- the catalogue -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("header", "mirrored"), [("Region", {"Region": ("region",)}), ("no header", {})])
def test_a_page_tells_which_arguments_hosts_repeat_in_headers(header: str, mirrored: dict[str, tuple[str]]) -> None:
    # What is not sound for a server of the other era is no annotation of one of this era.
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": header}}}
    page = DIALECT.read_tools(result(json.dumps({"tools": [{"name": "t", "inputSchema": schema}]})))
    assert page.tools == {"t": ListedTool(header_paths=mirrored)}


@pytest.mark.parametrize("page", [*NO_OBJECTS, "{}", '{"tools":null}', '{"tools":{}}', '{"tools":"t"}'])
def test_a_catalogue_that_is_no_list_is_a_failure(page: str) -> None:
    with pytest.raises(
        UpstreamFailed, match=r"^The server broke the protocol: its list of tools is not valid$"
    ) as failure:
        DIALECT.read_tools(result(page))
    assert reason_of(failure) == ("malformed", True)


# --- hear ----------------------------------------------------------------------------------------------------------


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


# --- outcome -------------------------------------------------------------------------------------------------------


def outcome(member: str) -> CallSucceeded | CallFaulted:
    return DIALECT.outcome(response(f'{{"id":1, {member} , "jsonrpc":"2.0"}}'))


@pytest.mark.parametrize("text", ["null", "7", '"x"', "[]", "true", '{"task":{"taskId":"x"}}', '{"task":null}'])
def test_what_no_tool_returns_is_a_failure(text: str) -> None:
    with pytest.raises(
        UpstreamFailed, match=r"^The server broke the protocol: its result is not a tool result$"
    ) as failure:
        outcome(f'"result":{text}')
    assert (failure.value.reason, failure.value.dispatched) == ("malformed", True)
