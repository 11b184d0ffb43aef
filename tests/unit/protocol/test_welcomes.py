"""Who the server is, as hosts of either era are told by servers of either: to the byte, but for what is of one hop."""

import json
from dataclasses import replace
from typing import Any

import pytest

from taskgate.domain.versions import NEWEST_LEGACY, Peer, Revision
from taskgate.protocol.base import OpenSession, Server
from taskgate.protocol.envelope import Response
from taskgate.protocol.extensions import ExtensionPolicy
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.protocol.legacy.upstream import LegacyUpstream
from taskgate.protocol.modern.downstream import ModernDownstream
from taskgate.protocol.modern.upstream import ModernUpstream
from taskgate.protocol.welcomes import gateway_info
from unit.protocol.legacy.judge import OTHER_ERA
from unit.protocol.modern.judge import check

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


def welcomed(era: str, info: str | None, *, more: str = "", meta: str = "") -> Server:
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


def told(era: str, server: Server, info: str | None = None) -> str:
    """What a host of that era is told."""
    if era == "modern":
        return ModernDownstream("0.1.0").discovered("h", server, **GIVEN, info=info)
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
