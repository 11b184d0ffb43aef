"""What servers say of themselves and their tools is read and passed on."""

from dataclasses import replace
from typing import Any

import pytest

from taskgate.domain.versions import Peer, Revision
from taskgate.protocol.discovery import (
    ListedTool,
    ServerDescription,
    ToolPage,
    filter_tools,
    hints_of,
)
from taskgate.protocol.extensions import ExtensionPolicy
from taskgate.protocol.host_requests import OpenSession
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.protocol.legacy.upstream import LegacyUpstream
from taskgate.protocol.messages import Response
from taskgate.protocol.modern.downstream import ModernDownstream
from taskgate.protocol.modern.upstream import ModernUpstream

# --- welcomes ---------------------------------------------------------------------------------------------------------


P = "io.modelcontextprotocol/"
ODD_INFO = (
    r'{ "name" : "caf\u00e9", "version":"1","title":"\u0043af\u00e9","websiteUrl":"https://example.com",'
    r'"icons":[{"src":"data:image/png;base64,AA==","sizes":["48x48"]}],"x":{"a":1e999, "b" : 1.50} }'
)
GATEWAY = '"io.taskgate/gateway":{"version":"0.1.0"}'
OTHERS = r'"x-vendor": {"a":1e999} , "y":"\u0061"'
OWN_META = rf'"com.example/a": {{"b":1.50}},"{P}other":[ ],"traceparent":"00"'
CAPABILITIES = '"capabilities":{"prompts":{}}'
GIVEN: Any = {"offers_tasks": True, "extensions": ExtensionPolicy()}
ERAS = ["legacy", "modern"]


def response(result: str) -> Response:
    message = parse(f'{{"jsonrpc":"2.0","id":1,"result":{result}}}'.encode(), max_depth=64)
    assert isinstance(message, Response)
    return message


def welcomed(era: str, info: str | None, *, more: str = "", meta: str = "") -> ServerDescription:
    """What a server of that era says of itself, with more members and more in its `_meta`."""
    others = f",{more}" if more else ""
    if era == "legacy":
        name = "" if info is None else f'"serverInfo":{info},'
        said = f'{{"protocolVersion":"2025-06-18",{CAPABILITIES},{name}"_meta":{{{meta}}}{others}}}'
        return LegacyUpstream("0.1.0", ExtensionPolicy()).read_welcome(response(said))
    metas = ",".join(([] if info is None else [f'"{P}serverInfo":{info}']) + ([meta] if meta else []))
    kept = '"resultType":"complete","ttlMs":5,"cacheScope":"public"'
    said = f'{{"supportedVersions":["2026-07-28"],{CAPABILITIES},{kept},"_meta":{{{metas}}}{others}}}'
    server = ModernUpstream("0.1.0", ExtensionPolicy()).read_discovery(response(said))
    assert server is not None
    return server


def told(era: str, server: ServerDescription, info: str | None = None) -> str:
    """What a host of that era is told."""
    if era == "modern":
        return ModernDownstream("0.1.0").discovery("h", server, **GIVEN, info=info)
    intent = OpenSession(id="h", peer=Peer(revision=Revision.R2025_11_25, capabilities={}, info={}))
    return LegacyDownstream("0.1.0").welcome(intent, server, **GIVEN, info=info)


@pytest.mark.parametrize("server", ERAS)
@pytest.mark.parametrize("host", ERAS)
def test_what_was_said_before_a_server_went_down_is_marked_and_nothing_else(host: str, server: str) -> None:
    who = welcomed(server, ODD_INFO, more=OTHERS, meta=OWN_META)
    stale = GATEWAY.replace("}", ',"stale":true}')
    assert told(host, replace(who, is_stale=True)) == told(host, who).replace(GATEWAY, stale)


# --- tools ------------------------------------------------------------------------------------------------------------


def test_a_tool_of_which_nothing_is_said_may_be_called_in_any_way() -> None:
    tool = ListedTool()

    assert (tool.support, dict(tool.header_paths), dict(tool.hints)) == (None, {}, {})


def test_what_is_said_of_one_tool_is_said_of_no_other() -> None:
    with pytest.raises(TypeError):
        ListedTool().header_paths["Region"] = ("region",)  # type: ignore[index]


KNOWN = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}


def test_hints_do_not_change() -> None:
    for tool in ({}, {"annotations": KNOWN}, {"_meta": {"ui": {"visibility": ["app"]}}}):
        with pytest.raises(TypeError):
            hints_of(tool)["readOnlyHint"] = False  # type: ignore[index]


def test_a_page_does_not_change() -> None:
    page = ToolPage(tools={"echo": ListedTool()}, cursor=None)

    with pytest.raises(AttributeError):
        page.cursor = '"2"'  # type: ignore[misc]


# --- filtered tools ---------------------------------------------------------------------------------------------------


SHOWN = '{ "name" : "t", "x":{"a":1e999,"a":2} , "\\u00e9":"\\ud800" }'
HIDDEN = '{"name":"h","inputSchema":{}}'

# The page as its server sent it, and without `h`.
HIDDEN_FROM: dict[str, tuple[str, str]] = {
    "first": (f'{{ "tools" : [ {HIDDEN} , {SHOWN} ],"n":1}}', f'{{ "tools" : [{SHOWN}],"n":1}}'),
    "last": (f'{{"n":1,"tools":[{SHOWN},\n{HIDDEN}]}}', f'{{"n":1,"tools":[{SHOWN}]}}'),
    "between": (f'{{"tools":[{SHOWN},{HIDDEN}, {SHOWN}]}}', f'{{"tools":[{SHOWN},{SHOWN}]}}'),
    "all of them": (f'{{"tools":[{HIDDEN},{HIDDEN}],"nextCursor":"c"}}', '{"tools":[],"nextCursor":"c"}'),
    "by another spelling": (f'{{"to\\u006fls":[{{"n\\u0061me":"\\u0068"}},{SHOWN}]}}', f'{{"to\\u006fls":[{SHOWN}]}}'),
    "none of them": (f'{{"tools":[{SHOWN}]}}', f'{{"tools":[{SHOWN}]}}'),
    "an empty list": ('{"tools":[ ]}', '{"tools":[]}'),
    "no list": ('{"nextCursor":"c"}', '{"nextCursor":"c"}'),
    "a list that is an object": ('{"tools":{"name":"t"}}', '{"tools":{"name":"t"}}'),
    "a list that is null": ('{"tools":null}', '{"tools":null}'),
    "no object": ('[{"name":"t"}]', '[{"name":"t"}]'),
    "tools without a name": (f'{{"tools":[{{}},{{"title":"t"}},{SHOWN}]}}', f'{{"tools":[{SHOWN}]}}'),
    "tools whose name is no text": (
        f'{{"tools":[{{"name":7}},{{"name":null}},{{"name":["t"]}},{SHOWN}]}}',
        f'{{"tools":[{SHOWN}]}}',
    ),
    "tools that are no objects": (f'{{"tools":[null,1,"t",["t"],{SHOWN}]}}', f'{{"tools":[{SHOWN}]}}'),
    "a name that stands twice": (f'{{"tools":[{SHOWN},{{"name":"h","name":"t"}}],"n":1}}', '{"tools":[],"n":1}'),
}


@pytest.mark.parametrize(("page", "seen"), HIDDEN_FROM.values(), ids=HIDDEN_FROM)
def test_tools_that_are_not_for_a_host_are_left_out_and_the_others_keep_every_byte(page: str, seen: str) -> None:
    assert filter_tools(page, lambda tool: tool != "h") == seen


def test_a_large_page_is_left_out_of_as_a_small_one_is() -> None:
    schema = '{"type":"object","properties":{' + ",".join(f'"p{n}":{{"const":"h"}}' for n in range(500)) + "}}"
    tools = [f'{{"name":"t{number}","inputSchema":{schema}}}' for number in range(20)]
    seen = filter_tools(f'{{"tools":[{",".join(tools)}],"n":1}}', lambda tool: tool == "t7")
    assert seen == f'{{"tools":[{tools[7]}],"n":1}}'


def test_each_tool_is_asked_for_once_by_its_name_as_it_is_read() -> None:
    asked: list[str] = []
    filter_tools('{"tools":[{"name":"r\\u00e9"},{"name":""}]}', lambda tool: bool(asked.append(tool)))
    assert asked == ["ré", ""]
