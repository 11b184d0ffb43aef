"""Whose declaration a server sees, and what no declaration makes of a request."""

from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import serve
from helpers.host.host import both_eras
from helpers.modern_schema import CAPABILITIES, TASKS
from helpers.server import ScriptedServer, asks, result
from interaction.reloads import SUCCESS
from requirements import covers

UI, SKILLS = "io.modelcontextprotocol/ui", "io.modelcontextprotocol/skills"
OAUTH = "io.modelcontextprotocol/oauth-client-credentials"
WITH_VIEWS = {"extensions": {UI: {"mimeTypes": ["text/html;profile=mcp-app"]}}}
ALWAYS = {"upgrade": [{"tool": "*", "mode": "always"}]}


def upstream(server: ScriptedServer, **more: Any) -> dict[str, Any]:
    """That server at the usual place, spoken to in its own era."""
    revision = "2026-07-28" if server.era == "modern" else "2025-11-25"
    return {"reports": {"path": "/reports/mcp", "url": server.url, "protocol_version": revision, **more}}


@covers("X-EXT-8", "X-EXT-9")
async def test_all_that_is_asked_for_a_host_is_asked_with_its_declaration_and_no_other() -> None:
    """The gateway reads the list of tools of its own accord before it calls one."""
    async with ScriptedServer("modern") as server:
        config = configuration({"reports": server.url}, upstreams=upstream(server), tasks=ALWAYS)
        async with serve(config) as gateway:
            for capabilities in (WITH_VIEWS, {}):
                host = gateway.modern(capabilities=capabilities, tasks=False)
                seen = len(server.requests)
                await host.call("echo")
                said = [each.message["params"]["_meta"][CAPABILITIES] for each in server.requests[seen:]]
                assert len(said) > 1
                assert [each for each in said if each != capabilities] == []


@covers("X-EXT-8")
async def test_each_session_declares_what_its_own_host_does() -> None:
    async with ScriptedServer() as server, serve(configuration({"reports": server.url})) as gateway:
        for capabilities in (WITH_VIEWS, {}):
            host = gateway.host()
            await host.initialize(capabilities=capabilities)
            assert server.heard("initialize")[-1]["params"]["capabilities"] == capabilities


@covers("X-EXT-34")
async def test_a_request_of_an_extension_never_becomes_a_task() -> None:
    async with ScriptedServer("modern") as server:
        server.capabilities = {"tools": {}, "extensions": {SKILLS: {}}}
        server.methods["skills/list"] = result({"skills": []})
        async with serve(configuration({"reports": server.url}, upstreams=upstream(server), tasks=ALWAYS)) as gateway:
            host = gateway.modern()
            found = (await host.ask("skills/list", {"task": {}})).result
    assert found["resultType"] == "complete"
    assert found["skills"] == []


@covers("X-EXT-48")
@both_eras
async def test_extensions_about_authorization_cross_in_no_direction(era: str) -> None:
    async with ScriptedServer(era) as server:
        server.capabilities = {"tools": {}, "extensions": {OAUTH: {}, "com.example/a": {}}}
        every = upstream(server, extensions={"default": "allow"})
        async with serve(configuration({"reports": server.url}, upstreams=every)) as gateway:
            said = {"extensions": {OAUTH: {}, "com.example/a": {}}}
            if era == "legacy":
                host = gateway.host()
                found = (await host.initialize(capabilities=said))["capabilities"]
                heard = server.heard("initialize")[-1]["params"]["capabilities"]
            else:
                modern = gateway.modern(capabilities=said, tasks=False)
                found = (await modern.discover())["capabilities"]
                await modern.ask("tools/list")
                heard = server.heard("tools/list")[-1]["params"]["_meta"][CAPABILITIES]
    assert OAUTH not in found["extensions"]
    assert "com.example/a" in found["extensions"]
    assert heard == {"extensions": {"com.example/a": {}}}


@covers("X-EXT-1")
@pytest.mark.parametrize("settings", [True, [], "on", None, 1])
async def test_settings_that_are_no_object_declare_nothing(settings: Any) -> None:
    async with ScriptedServer() as server:
        server.capabilities = {"tools": {}, "extensions": {UI: settings, SKILLS: {}}}
        async with serve(configuration({"reports": server.url})) as gateway:
            found = await gateway.host().initialize(capabilities={"extensions": {UI: settings}})
            assert found["capabilities"]["extensions"] == {SKILLS: {}}
            assert server.heard("initialize")[-1]["params"]["capabilities"] == {}


@both_eras
async def test_by_default_allow_no_other_spelling_of_what_is_known_is_declared(era: str) -> None:
    odd = {"Io.modelcontextprotocol/Events": {}, "io.modelcontextprotocol/DPoP": {}, "com.example/No": {}}
    async with ScriptedServer(era) as server:
        server.capabilities = {"tools": {}, "Events": {}, "Tasks": {}, "Extensions": {}, "extensions": odd}
        every = upstream(server, extensions={"default": "allow", "com.example/no": "deny"})
        async with serve(configuration({"reports": server.url}, upstreams=every)) as gateway:
            found = await (gateway.host().initialize() if era == "legacy" else gateway.modern().discover())
    found["capabilities"].pop("tasks", None)
    found["capabilities"].get("extensions", {}).pop(TASKS, None)
    assert {name: value for name, value in found["capabilities"].items() if value or name == "tools"} == {"tools": {}}


@covers("X-EXT-26")
async def test_a_request_of_a_server_that_no_revision_defines_is_refused_and_no_host_is_asked() -> None:
    async with ScriptedServer() as server:
        server.capabilities = {"tools": {}, "extensions": {UI: {}}}
        server.script["echo"] = asks({"jsonrpc": "2.0", "id": "q", "method": "ui/ask", "params": {}})
        async with serve(configuration({"reports": server.url})) as gateway:
            host = gateway.host()
            await host.initialize(capabilities=WITH_VIEWS)
            answer = await host.call("echo")
            [reply] = server.replies
    assert reply["error"]["code"] == -32601
    assert [each for each in answer.notices if each["method"] == "ui/ask"] == []


@covers("X-EXT-54")
async def test_another_policy_after_a_reload_is_told_to_the_server_and_the_next_host() -> None:
    async with ScriptedServer() as server:
        server.capabilities = {"tools": {}, "extensions": {UI: {}}}
        async with serve(configuration({"reports": server.url})) as gateway:
            before = gateway.host()
            assert "extensions" in (await before.initialize(capabilities=WITH_VIEWS))["capabilities"]
            denied = {"path": "/reports/mcp", "url": server.url, "extensions": {UI: "deny"}}
            assert await gateway.reload(configuration({}, upstreams={"reports": denied})) == SUCCESS
            after = gateway.host()
            assert "extensions" not in (await after.initialize(capabilities=WITH_VIEWS))["capabilities"]
            assert server.heard("initialize")[-1]["params"]["capabilities"] == {}
            # Whoever was there before goes on, in a session that says what crosses now.
            assert (await before.call("echo", {"a": 1})).result["structuredContent"] == {"a": 1}
