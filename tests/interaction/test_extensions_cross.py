"""Extensions between a host and a server: what the policy carries crosses both ways in all four pairings, and no more.

A server of either era declares what is known and what nobody knows, and answers its methods; hosts of both eras ask.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import both_eras
from helpers.modern_schema import CAPABILITIES, SUBSCRIPTION, TASKS
from helpers.server import ScriptedServer, Turn, error, note, result, stream
from helpers.waiting import eventually
from requirements import covers

UI, SKILLS, EVENTS = (f"io.modelcontextprotocol/{name}" for name in ("ui", "skills", "events"))
OURS = "com.example/widgets"
SETTINGS = {"mimeTypes": ["text/html;profile=mcp-app"], "nested": {"a": [2, "ä"]}}
DECLARED = {
    "tools": {},
    "extensions": {UI: SETTINGS, SKILLS: {"directoryRead": True}, EVENTS: {}, OURS: {"v": 1}, "com.example/no": {}},
    "events": {"listChanged": True},
    "experimental": {"x": {}},
    "com.example/key": {"a": 1},
}
WIDGETS = {
    "methods": ["widgets/list", "widgets/watch"],
    "notifications": ["notifications/widgets/changed"],
    "filters": ["widgetsChanged"],
    "result_types": ["partial"],
    "cacheable": ["widgets/list"],
    "eras": ["legacy", "modern"],
}
PAIRINGS = [(host, server) for host in ("legacy", "modern") for server in ("legacy", "modern")]
pairings = pytest.mark.parametrize(("era", "serves"), PAIRINGS)


@asynccontextmanager
async def between(serves: str, **extensions: Any) -> AsyncIterator[tuple[ScriptedServer, Gateway]]:
    """A server of that era that declares everything, behind a gateway with those extensions; `mode` is of upgrades."""
    server = ScriptedServer(serves)
    server.capabilities = DECLARED
    async with server:
        upstream = {
            "path": "/reports/mcp",
            "url": server.url,
            "protocol_version": "2025-11-25" if serves == "legacy" else "2026-07-28",
            "extensions": extensions,
        }
        async with serve(configuration({"reports": server.url}, upstreams={"reports": upstream})) as gateway:
            yield server, gateway


def told_of(server: ScriptedServer, serves: str) -> dict[str, Any]:
    """The capabilities of the host, as the server heard them last."""
    if serves == "legacy":
        [handshake] = server.heard("initialize")[-1:]
        return dict(handshake["params"]["capabilities"])
    [request] = [each for each in server.heard("tools/list") if each["params"]["_meta"][CAPABILITIES]][-1:]
    return dict(request["params"]["_meta"][CAPABILITIES])


@covers("X-EXT-5", "X-EXT-6", "X-EXT-50", "X-UE-1")
@pairings
async def test_what_is_known_is_declared_and_what_nobody_allowed_is_not(era: str, serves: str) -> None:
    async with between(serves) as (_, gateway):
        found = (await gateway.host(era=era, tasks=False).handshake())["capabilities"]
    own = {TASKS: {}} if era == "modern" else {}
    assert found.pop("extensions") == {UI: SETTINGS, SKILLS: {"directoryRead": True}} | own
    found.pop("tasks", None)
    assert found == {"tools": {}}


@covers("X-EXT-52")
@pairings
async def test_what_is_denied_is_not_declared(era: str, serves: str) -> None:
    async with between(serves, **{UI: "deny", SKILLS: "deny"}) as (_, gateway):
        found = (await gateway.host(era=era, tasks=False).handshake())["capabilities"]
    assert found.get("extensions", {}) == ({TASKS: {}} if era == "modern" else {})


@covers("X-EXT-7", "X-EXT-55")
@pairings
async def test_by_default_allow_what_nobody_knows_is_declared_within_its_era(era: str, serves: str) -> None:
    async with between(serves, default="allow", **{"com.example/no": "deny"}) as (_, gateway):
        found = (await gateway.host(era=era, tasks=False).handshake())["capabilities"]
    extensions = found.pop("extensions")
    assert (OURS in extensions) == (era == serves)
    assert "com.example/no" not in extensions
    assert EVENTS not in extensions
    assert "events" not in found
    others = {name: found.get(name) for name in ("experimental", "com.example/key")}
    expected = {"experimental": {"x": {}}, "com.example/key": {"a": 1}} if era == serves else dict.fromkeys(others)
    assert others == expected


@covers("X-EXT-6", "X-APP-1")
@pairings
async def test_a_server_is_told_of_the_hosts_extensions_that_cross(era: str, serves: str) -> None:
    said = {"roots": {}, "extensions": {UI: SETTINGS, OURS: {}, "com.example/no": {}}, "experimental": {"y": {}}}
    async with between(serves, **{OURS: WIDGETS}) as (server, gateway):
        host = gateway.host(era=era, capabilities=said, tasks=False)
        await host.handshake()
        await host.ask("tools/list")
        assert told_of(server, serves) == {"roots": {}, "extensions": {UI: SETTINGS, OURS: {}}}


@covers("X-EXT-20", "X-EXT-21", "X-EXT-27", "X-EXT-29")
@pairings
async def test_a_method_crosses_with_its_parameters_and_other_words_of_meta(era: str, serves: str) -> None:
    meta = {"io.modelcontextprotocol/other": 1, "com.example/k": {"a": 1}, "traceparent": "00-x"}
    async with between(serves, **{OURS: WIDGETS}) as (server, gateway):
        server.methods["widgets/list"] = result({"widgets": [1], "_meta": {"io.modelcontextprotocol/other": 2}})
        host = gateway.host(era=era, tasks=False)
        await host.handshake()
        params = {"cursor": None, "x": [1]}
        answer = await host.ask("widgets/list", params, meta=meta)
        [heard] = server.heard("widgets/list")
    assert {name: value for name, value in heard["params"].items() if name != "_meta"} == params
    assert {name: heard["params"]["_meta"].get(name) for name in meta} == meta
    found = dict(answer.result)
    assert found.pop("widgets") == [1]
    assert found.pop("_meta")["io.modelcontextprotocol/other"] == 2
    if era == "legacy":
        assert found == {}
    else:
        assert found == {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


@covers("X-EXT-20", "X-EXT-30", "X-EXT-51")
@pairings
async def test_a_method_that_is_not_listed_never_comes_to_the_server(era: str, serves: str) -> None:
    async with between(serves, default="allow", **{OURS: "allow"}) as (server, gateway):
        host = gateway.host(era=era, capabilities={"extensions": {OURS: {}}}, tasks=False)
        await host.handshake()
        answers = [await host.ask(method) for method in ("widgets/list", "events/list", "skills/other", "a/b")]
        assert [answer.code for answer in answers] == [-32601] * 4
        assert [answer.status for answer in answers] == [404 if era == "modern" else 200] * 4
        assert server.heard("widgets/list") == server.heard("skills/other") == []


@covers("X-EXT-7")
@pairings
async def test_a_method_of_one_era_alone_does_not_cross_to_the_other(era: str, serves: str) -> None:
    async with between(serves, **{OURS: {"methods": ["widgets/list"]}}) as (server, gateway):
        server.methods["widgets/list"] = result({})
        host = gateway.host(era=era, tasks=False)
        found = (await host.handshake())["capabilities"].get("extensions", {})
        answer = await host.ask("widgets/list")
    assert (OURS in found) == (era == serves)
    assert (answer.message.get("error", {}).get("code") == -32601) == (era != serves)
    assert bool(server.heard("widgets/list")) == (era == serves)


@covers("X-EXT-31")
@pairings
async def test_errors_of_events_keep_their_codes_and_those_of_others_mean_what_they_did(era: str, serves: str) -> None:
    listed = {"methods": ["events/list", "events/poll"], "eras": ["legacy", "modern"]}
    async with between(serves, **{EVENTS: listed, OURS: WIDGETS}) as (server, gateway):
        for method, code in (("events/list", -32023), ("events/poll", -32015), ("widgets/list", -32023)):
            server.methods[method] = error(code, "no", status=200)
        host = gateway.host(era=era, tasks=False)
        await host.handshake()
        codes = [(await host.ask(method)).code for method in ("events/list", "events/poll", "widgets/list")]
    assert codes == [-32023, -32015, -32023 if era == "legacy" else -32603]


@covers("X-EXT-22")
@both_eras
async def test_a_type_of_result_that_is_listed_crosses_and_any_other_breaks_the_protocol(era: str) -> None:
    async with between("modern", **{OURS: WIDGETS}) as (server, gateway):
        server.methods["widgets/list"] = result({"resultType": "partial", "a": 1})
        server.methods["widgets/watch"] = result({"resultType": "strange"})
        host = gateway.host(era=era, tasks=False)
        await host.handshake()
        first, second = await host.ask("widgets/list"), await host.ask("widgets/watch")
    assert first.result["a"] == 1
    assert first.result.get("resultType") == ("partial" if era == "modern" else None)
    assert second.code == -32603


@covers("X-EXT-23")
@pairings
async def test_a_notification_in_the_answer_to_a_request_names_the_hosts_own_stream(era: str, serves: str) -> None:
    async with between(serves, **{OURS: WIDGETS}) as (server, gateway):

        async def watched(turn: Turn) -> Any:
            named = {"_meta": {SUBSCRIPTION: turn.id}} if serves == "modern" else {}
            told = [note("notifications/widgets/changed", id=7, **named), note("notifications/gadgets/changed", id=8)]
            return await stream({}, before=told)(turn)

        server.methods["widgets/watch"] = watched
        host = gateway.host(era=era, tasks=False)
        await host.handshake()
        answer = await host.ask("widgets/watch", {}, id="mine")
    [heard] = answer.notices
    named = {"_meta": {SUBSCRIPTION: "mine"}} if era == serves == "modern" else {}
    assert heard == {"jsonrpc": "2.0", "method": "notifications/widgets/changed", "params": {"id": 7, **named}}


@covers("X-EXT-23", "X-EXT-24")
@pairings
async def test_a_notification_of_its_own_accord_is_told_where_it_is_wanted(era: str, serves: str) -> None:
    async with between(serves, **{OURS: WIDGETS}) as (server, gateway):
        host = gateway.host(era=era, tasks=False)
        await host.handshake()
        changed = note("notifications/widgets/changed", id=7)
        if era == "modern":
            async with host.listen(widgetsChanged=True, other=True) as asked:
                granted = await asked.until("notifications/subscriptions/acknowledged")
                assert granted["params"]["notifications"] == {"widgetsChanged": True}
                await _push(server, serves, changed)
                heard = await asked.until("notifications/widgets/changed")
        else:
            async with host.listen() as asked:
                await _push(server, serves, changed)
                heard = await asked.until("notifications/widgets/changed")
    assert heard["params"]["id"] == 7


async def _push(server: ScriptedServer, serves: str, message: Any) -> None:
    if server.era == "modern":
        await server.listens.opened()
        await eventually(lambda: any(each.get("widgetsChanged") for each in server.listens.filters))
    else:
        await server.streaming()
    await server.push(message)
