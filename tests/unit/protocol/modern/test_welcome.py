"""What servers of the modern era say about themselves."""

import json
from typing import Any

import pytest

from requirements import covers
from taskgate.domain.versions import Revision
from taskgate.errors import UpstreamFailed
from taskgate.protocol.discovery import MAX_WELCOME
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import Response
from taskgate.protocol.modern.welcome import read_discovery, read_tools, sound_page

INFO = "io.modelcontextprotocol/serverInfo"
DISCOVERED = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}


def response(result: Any = None, error: Any = None) -> Response:
    said = {"result": result} if error is None else {"error": error}
    return response_of(json.dumps({"jsonrpc": "2.0", "id": 1, **said}))


def response_of(text: str) -> Response:
    found = parse(text.encode(), max_depth=64)
    assert isinstance(found, Response)
    return found


def test_a_discovery_tells_who_the_server_is() -> None:
    said = {**DISCOVERED, "instructions": "Do", "_meta": {INFO: {"name": "s"}}}
    server = read_discovery(response(said))
    assert server is not None
    assert server.peer.revision is Revision.R2026_07_28
    assert (server.peer.capabilities, server.peer.info) == ({"tools": {}}, {"name": "s"})
    assert (server.capabilities, server.instructions) == ('{"tools": {}}', '"Do"')


@pytest.mark.parametrize("more", [{}, {"_meta": []}, {"_meta": {}}, {"_meta": {INFO: 3}}, {"instructions": 3}])
def test_a_server_need_not_say_who_it_is(more: dict[str, Any]) -> None:
    server = read_discovery(response({**DISCOVERED, **more}))
    assert server is not None
    assert (server.peer.info, server.instructions) == ({}, None)


@covers("V-META-7")
def test_a_discovery_without_a_type_is_complete() -> None:
    said = {name: value for name, value in DISCOVERED.items() if name != "resultType"}
    assert read_discovery(response(said)) is not None


@covers("V-ERA-7")
@pytest.mark.parametrize("versions", [[], ["2025-11-25"], ["2031-01-01", 3, None]])
def test_a_server_of_no_revision_that_we_know_is_none_of_this_era(versions: list[Any]) -> None:
    assert read_discovery(response({**DISCOVERED, "supportedVersions": versions})) is None


@pytest.mark.parametrize("code", [-32022, -32601, -32602, -32600, -32603, -32000, 7])
def test_a_server_that_does_not_refuse_as_one_of_this_era_may_be_none(code: int) -> None:
    assert read_discovery(response(error={"code": code, "message": "no"})) is None


@pytest.mark.parametrize("code", [-32020, -32021])
def test_a_server_that_refuses_as_one_of_this_era_is_one(code: int) -> None:
    with pytest.raises(UpstreamFailed) as failed:
        read_discovery(response(error={"code": code, "message": "no"}))
    assert (failed.value.reason, failed.value.dispatched) == ("refused", False)


@pytest.mark.parametrize(
    "result",
    [
        {**DISCOVERED, "supportedVersions": "2026-07-28"},
        {**DISCOVERED, "capabilities": []},
        {"supportedVersions": ["2026-07-28"]},
        {**DISCOVERED, "resultType": "input_required"},
        [],
    ],
)
def test_a_discovery_that_cannot_be_read_breaks_the_protocol(result: Any) -> None:
    with pytest.raises(UpstreamFailed) as failed:
        read_discovery(response(result))
    assert failed.value.reason == "malformed"


def test_capabilities_that_repeat_a_key_break_the_protocol() -> None:
    text = '{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"tools":{}}}'
    with pytest.raises(UpstreamFailed, match="repeats a key"):
        read_discovery(response_of(f'{{"jsonrpc":"2.0","id":1,"result":{text}}}'))


def test_a_discovery_that_is_too_long_breaks_the_protocol() -> None:
    with pytest.raises(UpstreamFailed, match="too long"):
        read_discovery(response({**DISCOVERED, "instructions": "x" * MAX_WELCOME}))


# --- the catalogue


def tool(name: Any, **properties: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object", "properties": properties}}


def test_a_page_has_the_tools_and_where_the_next_begins() -> None:
    found = read_tools(response({"tools": [tool("a"), tool("b")], "nextCursor": "süd"}))
    assert (set(found.page.tools), found.page.cursor, found.refused) == ({"a", "b"}, '"s\\u00fcd"', ())
    assert found.page.tools["a"].support is None


@pytest.mark.parametrize("cursor", [{}, {"nextCursor": None}, {"nextCursor": 3}])
def test_the_last_page_has_no_next(cursor: dict[str, Any]) -> None:
    assert read_tools(response({"tools": [], **cursor})).page.cursor is None


@covers("H-MOD-5")
def test_a_tool_tells_what_headers_repeat() -> None:
    found = read_tools(response({"tools": [tool("a", region={"type": "string", "x-mcp-header": "Region"})]}))
    assert found.page.tools["a"].header_paths == {"Region": ("region",)}


def test_a_tool_tells_what_its_server_hints() -> None:
    found = read_tools(response({"tools": [tool("a") | {"annotations": {"idempotentHint": False}}]}))
    assert found.page.tools["a"].hints == {"idempotentHint": False}


@covers("H-MOD-5")
def test_a_tool_whose_annotations_are_not_sound_is_left_out_and_named() -> None:
    odd = tool("odd", n={"type": "number", "x-mcp-header": "N"})
    found = read_tools(response({"tools": [odd, tool("a")]}))
    assert (set(found.page.tools), found.refused) == ({"a"}, ("odd",))


@pytest.mark.parametrize("odd", [3, None, {}, {"name": 3}])
def test_what_is_no_tool_is_passed_over(odd: Any) -> None:
    found = read_tools(response({"tools": [odd, tool("a")]}))
    assert (set(found.page.tools), found.refused) == ({"a"}, ())


def test_a_server_that_refuses_to_list_its_tools_fails() -> None:
    with pytest.raises(UpstreamFailed) as failed:
        read_tools(response(error={"code": -32601, "message": "no"}))
    assert failed.value.reason == "refused"


@pytest.mark.parametrize("result", [{}, {"tools": {}}, [], {"tools": [], "resultType": "task"}])
def test_a_list_that_cannot_be_read_breaks_the_protocol(result: Any) -> None:
    with pytest.raises(UpstreamFailed) as failed:
        read_tools(response(result))
    assert failed.value.reason == "malformed"


# --- as hosts may see it


def page_of(text: str) -> str | None:
    return sound_page(response_of(f'{{"jsonrpc":"2.0","id":1,"result":{text}}}'))


ODD = '{"name":"odd","inputSchema":{"properties":{"n":{"type":"number","x-mcp-header":"N"}}}}'
SOUND = '{ "name":"a", "inputSchema":{"properties":{"r":{"type":"string","x-mcp-header":"R"}}}, "x":1e999 }'


@covers("H-MOD-5")
def test_hosts_do_not_see_a_tool_whose_annotations_are_not_sound_and_the_rest_to_the_byte() -> None:
    page = f'{{"ttlMs":1, "tools":[{ODD}, {SOUND}],"nextCursor":"c"}}'
    assert page_of(page) == f'{{"ttlMs":1, "tools":[{SOUND}],"nextCursor":"c"}}'


@pytest.mark.parametrize(
    "page",
    [
        f'{{"tools":[{SOUND}]}}',
        '{"tools":[3,{},{"name":4,"inputSchema":{"x-mcp-header":"R"}}]}',
        '{"tools":{}}',
        "{}",
        "[]",
        "null",
    ],
)
def test_a_page_of_which_nothing_is_left_out_is_as_it_was(page: str) -> None:
    assert page_of(page) is None


def test_an_error_is_no_page() -> None:
    assert sound_page(response(error={"code": 1, "message": "no"})) is None
