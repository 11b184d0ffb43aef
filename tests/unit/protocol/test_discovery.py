"""What servers say of themselves and their tools is read and passed on."""

import json
from dataclasses import replace
from typing import Any

import pytest

from taskgate.domain.policy import APP_ONLY
from taskgate.domain.versions import NEWEST_LEGACY, Peer, Revision
from taskgate.protocol.discovery import (
    CatalogueBounds,
    ListedTool,
    ServerDescription,
    ToolPage,
    filter_tools,
    gateway_info,
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
from unit.protocol.legacy.judge import OTHER_ERA
from unit.protocol.modern.judge import check

# --- welcomes ---------------------------------------------------------------------------------------------------------


P = "io.modelcontextprotocol/"
ODD_INFO = (
    r'{ "name" : "caf\u00e9", "version":"1","title":"\u0043af\u00e9","websiteUrl":"https://example.com",'
    r'"icons":[{"src":"data:image/png;base64,AA==","sizes":["48x48"]}],"x":{"a":1e999, "b" : 1.50} }'
)
OURS = '{"name":"taskgate","version":"0.1.0"}'
GATEWAY = '"io.taskgate/gateway":{"version":"0.1.0"}'
OTHERS = r'"x-vendor": {"a":1e999} , "y":"\u0061"'
HOP_META = (
    f'"{P}protocolVersion":"1","{P}clientCapabilities":{{}},"{P}clientInfo":{{}},"{P}logLevel":"info",'
    f'"{P}subscriptionId":1,"{P}related-task":{{}},"io.taskgate/gateway":{{"version":"9"}},"io.taskgate/x":1'
)
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


def result_of(text: str) -> dict[str, Any]:
    message = json.loads(text)
    assert (message["jsonrpc"], message["id"]) == ("2.0", "h")
    result: dict[str, Any] = message["result"]
    return result


def named(era: str, info: str) -> str:
    """A serverInfo where that era has it."""
    return f'"serverInfo":{info}' if era == "legacy" else f'"{P}serverInfo":{info}'


@pytest.mark.parametrize("server", ERAS)
@pytest.mark.parametrize("host", ERAS)
def test_a_host_is_told_who_the_server_is_to_the_byte(host: str, server: str) -> None:
    text = told(host, welcomed(server, ODD_INFO))
    assert named(host, ODD_INFO) in text
    assert text.count("serverInfo") == 1
    assert f'"_meta":{{{GATEWAY}}}' in text.replace(f"{named('modern', ODD_INFO)},", "")


@pytest.mark.parametrize("server", ERAS)
@pytest.mark.parametrize("host", ERAS)
def test_what_no_revision_defines_crosses_to_the_byte_and_what_is_of_one_hop_does_not(host: str, server: str) -> None:
    text = told(host, welcomed(server, OURS, more=OTHERS, meta=f"{HOP_META},{OWN_META}"))
    result = result_of(text)
    assert OTHERS in text
    assert OWN_META in text
    expected = {"com.example/a", f"{P}other", "traceparent", "io.taskgate/gateway"}
    assert result["_meta"].keys() == expected | ({f"{P}serverInfo"} if host == "modern" else set())
    assert result["_meta"]["io.taskgate/gateway"] == {"version": "0.1.0"}


@pytest.mark.parametrize("server", ERAS)
@pytest.mark.parametrize("host", ERAS)
def test_no_member_of_the_other_era_is_told(host: str, server: str) -> None:
    theirs = {"legacy": '"ttlMs":1,"supportedVersions":[]', "modern": '"protocolVersion":"x","serverInfo":{}'}[server]
    result = result_of(told(host, welcomed(server, OURS, more=theirs)))
    if host == "legacy":
        assert result.keys() == {"protocolVersion", "capabilities", "serverInfo", "_meta"}
        assert not set(OTHER_ERA) & set(result["_meta"])
        assert (result["protocolVersion"], result["serverInfo"]["name"]) == (NEWEST_LEGACY, "taskgate")
    else:
        assert result.keys() == {"resultType", "supportedVersions", "capabilities", "ttlMs", "cacheScope", "_meta"}
        assert (result["ttlMs"], result["cacheScope"]) == (0, "private")
        check(result, "DiscoverResult")


@pytest.mark.parametrize("server", ERAS)
@pytest.mark.parametrize("host", ERAS)
def test_the_gateway_stands_for_the_server_where_that_is_wanted(host: str, server: str) -> None:
    text = told(host, welcomed(server, ODD_INFO, more=OTHERS), gateway_info("0.1.0"))
    assert named(host, OURS) in text
    assert "1e999, " not in text
    assert OTHERS in text


NO_INFOS = [None, "null", '"s"', "[]", "{}", '{"name":"s"}', '{"version":"1"}', '{"name":7,"version":"1"}']


@pytest.mark.parametrize("server", ERAS)
@pytest.mark.parametrize("info", NO_INFOS)
def test_a_server_that_does_not_say_who_it_is_has_the_gateways_name_only_where_one_is_needed(
    server: str, info: str | None
) -> None:
    who = welcomed(server, info)
    assert who.info is None
    assert json.dumps(result_of(told("legacy", who))["serverInfo"]) == json.dumps(json.loads(OURS))
    assert result_of(told("modern", who))["_meta"].keys() == {"io.taskgate/gateway"}


@pytest.mark.parametrize("server", ERAS)
@pytest.mark.parametrize("host", ERAS)
def test_the_instructions_are_the_servers_to_the_byte(host: str, server: str) -> None:
    text = told(host, welcomed(server, OURS, more=r'"instructions":"Use \u00e9\/\n"'))
    assert r'"instructions":"Use \u00e9\/\n"' in text
    assert text.count("instructions") == 1
    assert "instructions" not in told(host, welcomed(server, OURS))


@pytest.mark.parametrize("server", ERAS)
@pytest.mark.parametrize("host", ERAS)
def test_what_was_said_before_a_server_went_down_is_marked_and_nothing_else(host: str, server: str) -> None:
    who = welcomed(server, ODD_INFO, more=OTHERS, meta=OWN_META)
    stale = GATEWAY.replace("}", ',"stale":true}')
    assert told(host, replace(who, is_stale=True)) == told(host, who).replace(GATEWAY, stale)


@pytest.mark.parametrize("meta", ["null", "[]", '"x"', "7"])
def test_a_meta_that_is_no_object_is_not_told(meta: str) -> None:
    said = f'{{"protocolVersion":"2025-06-18",{CAPABILITIES},"_meta":{meta}}}'
    server = LegacyUpstream("0.1.0", ExtensionPolicy()).read_welcome(response(said))
    for era in ERAS:
        assert result_of(told(era, server))["_meta"] == {"io.taskgate/gateway": {"version": "0.1.0"}}


def test_little_is_kept_of_a_welcome_that_is_not_told() -> None:
    server = welcomed("legacy", '{"name":"s","version":"1","icons":[{"src":"data:,x"}]}', meta=HOP_META)
    assert server.peer.info == {"name": "s", "version": "1"}
    assert server.rest == "{}"


# --- tools ------------------------------------------------------------------------------------------------------------


def test_a_tool_of_which_nothing_is_said_may_be_called_in_any_way() -> None:
    tool = ListedTool()

    assert (tool.support, dict(tool.header_paths), dict(tool.hints)) == (None, {}, {})


def test_what_is_said_of_one_tool_is_said_of_no_other() -> None:
    with pytest.raises(TypeError):
        ListedTool().header_paths["Region"] = ("region",)  # type: ignore[index]


KNOWN = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}


@pytest.mark.parametrize(
    ("tool", "hints"),
    [
        ({"annotations": KNOWN}, KNOWN),
        ({"annotations": {**KNOWN, "title": "t", "cheapHint": True}}, KNOWN),
        ({"annotations": {"readOnlyHint": 1, "destructiveHint": None, "idempotentHint": "true"}}, {}),
        ({"annotations": {}}, {}),
        ({"annotations": None}, {}),
        ({"annotations": ["readOnlyHint"]}, {}),
        ({}, {}),
    ],
)
def test_hints_are_the_known_annotations_that_are_true_or_false(tool: dict[str, Any], hints: dict[str, bool]) -> None:
    assert dict(hints_of(tool)) == hints


@pytest.mark.parametrize(
    ("meta", "is_app_only"),
    [
        ({"ui": {"visibility": ["app"]}}, True),
        ({"ui": {"visibility": ["app", "other"], "resourceUri": "ui://a"}}, True),
        ({"ui": {"visibility": []}}, True),
        ({"ui": {"visibility": ["app", "model"]}}, False),
        ({"ui": {"visibility": ["model"]}}, False),
        ({"ui": {"visibility": [["model"], "model"]}}, False),
        ({"ui": {"visibility": "app"}}, False),
        ({"ui": {"visibility": {"app": True}}}, False),
        ({"ui": {"visibility": None}}, False),
        ({"ui": {"resourceUri": "ui://a"}}, False),
        ({"ui": ["visibility"]}, False),
        ({"ui/visibility": ["app"]}, False),
        (["ui"], False),
        (None, False),
    ],
)
def test_a_tool_is_for_views_alone_where_its_list_of_callers_lacks_the_model(meta: Any, is_app_only: bool) -> None:
    found = {APP_ONLY: True} if is_app_only else {}
    assert dict(hints_of({"_meta": meta})) == found
    assert dict(hints_of({"_meta": meta, "annotations": KNOWN})) == {**KNOWN, **found}


def test_hints_do_not_change() -> None:
    for tool in ({}, {"annotations": KNOWN}, {"_meta": {"ui": {"visibility": ["app"]}}}):
        with pytest.raises(TypeError):
            hints_of(tool)["readOnlyHint"] = False  # type: ignore[index]


def test_a_page_does_not_change() -> None:
    page = ToolPage(tools={"echo": ListedTool()}, cursor=None)

    with pytest.raises(AttributeError):
        page.cursor = '"2"'  # type: ignore[misc]


def answer(body: str) -> Response:
    read = parse(f'{{"jsonrpc":"2.0","id":1,{body}}}'.encode(), max_depth=64)
    assert isinstance(read, Response)
    return read


@pytest.mark.parametrize(
    ("body", "tools", "size"),
    [
        ('"result":{"tools":[{},1,{}]}', 3, 53),
        ('"result":{"tools":[],"x":"é"}', 0, 55),
        ('"result":{"tools":{}}', 0, 46),
        ('"result":[]', 0, 36),
        ('"result":{"other":[1]}', 0, 47),
        ('"error":{"code":1,"message":"no"}', 0, 58),
    ],
)
def test_a_page_takes_its_tools_and_its_bytes_from_the_bounds(body: str, tools: int, size: int) -> None:
    assert CatalogueBounds(3, 100).after(answer(body)) == CatalogueBounds(3 - tools, 100 - size)


@pytest.mark.parametrize(("bounds", "fits"), [((2, 49), True), ((1, 49), False), ((2, 48), False)])
def test_a_page_beyond_either_bound_leaves_nothing(bounds: tuple[int, int], fits: bool) -> None:
    assert (CatalogueBounds(*bounds).after(answer('"result":{"tools":[1,2]}')) is not None) is fits


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
