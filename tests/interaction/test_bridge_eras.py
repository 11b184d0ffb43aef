"""Which era a server speaks: found out by the gateway, once, without harm to old servers, and anew when it changes."""

import asyncio
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.modern_schema import TASKS
from helpers.server import ScriptedServer, error, result, status
from helpers.server.script import Era
from interaction.bridges import before, modern
from interaction.refusals import refused
from requirements import covers

__all__ = ["modern"]


def methods(server: ScriptedServer) -> list[str]:
    """What it was asked, in order."""
    return [request.message["method"] for request in server.requests if isinstance(request.message, dict)]


def heads_of_calls(server: ScriptedServer) -> list[dict[str, str]]:
    """The headers of every call of a tool."""
    return [each.headers for each in server.requests if each.message and each.message.get("method") == "tools/call"]


def unpinned(server: ScriptedServer, version: str = "auto") -> Any:
    upstream = {"path": "/reports/mcp", "url": server.url, "protocol_version": version}
    return serve(configuration({}, upstreams={"reports": upstream}))


async def echoes(gateway: Gateway) -> bool:
    """Whether a host of either era has its call answered."""
    legacy = await gateway.greeted()
    answers = [await legacy.call("echo", {"a": 1}), await gateway.modern().call("echo", {"a": 1})]
    return all(answer.result["structuredContent"] == {"a": 1} for answer in answers)


@covers("V-ERA-5", "T-17")
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18"])
async def test_a_server_of_an_old_revision_is_never_sent_a_method_that_it_cannot_know(
    server: ScriptedServer, revision: str
) -> None:
    server.revision = revision
    async with unpinned(server) as gateway:
        assert await echoes(gateway)
    assert "server/discover" not in methods(server)


@covers("V-ERA-5", "V-ERA-8")
@pytest.mark.parametrize(
    "said",
    [error(-32601, "no"), error(-32602, "no", status=400), status(404), status(400), result({}), status(405)],
    ids=["unknown", "malformed", "404", "400", "another result", "405"],
)
async def test_a_server_that_does_not_know_discovery_is_of_the_legacy_era_and_asked_once(
    server: ScriptedServer, said: Any
) -> None:
    server.methods["server/discover"] = said
    async with unpinned(server) as gateway:
        assert await echoes(gateway)
        assert await echoes(gateway)
    assert methods(server).count("server/discover") == 1
    server.requests[:] = [each for each in server.requests if (each.message or {}).get("method") != "server/discover"]


@covers("V-ERA-5", "V-ERA-8")
@pytest.mark.parametrize("first", ["legacy", "modern"])
async def test_at_a_server_of_both_eras_each_host_is_served_in_its_own(modern: ScriptedServer, first: str) -> None:
    modern.era = "both"
    async with before(modern) as gateway:
        if first == "modern":
            assert (await gateway.modern().call("echo")).result["content"] == []
        assert await echoes(gateway)
        assert await echoes(gateway)
    calls = [(head["mcp-protocol-version"], "mcp-session-id" in head) for head in heads_of_calls(modern)]
    assert calls[-4:] == [("2025-11-25", True), ("2026-07-28", False)] * 2
    # Each legacy host has a session of its own there, and the first host finds both eras.
    assert methods(modern).count("initialize") == (3 if first == "modern" else 2)
    assert methods(modern)[:3] == ["initialize", "notifications/initialized", "server/discover"]
    assert modern.live == set()
    assert modern.faults == []


@covers("V-ERA-5")
async def test_the_first_legacy_host_of_a_server_of_both_eras_keeps_the_session_that_shows_it(
    modern: ScriptedServer,
) -> None:
    modern.era = "both"
    modern.capabilities = {"tools": {}}
    async with before(modern) as gateway:
        host = await gateway.greeted()
        assert (await host.call("echo")).result["content"] == []
        asked = [method for method in methods(modern) if method != "ping"]
        assert asked == ["initialize", "notifications/initialized", "server/discover", "tools/call"]
        assert len(modern.live) == 1


HANDSHAKE = ["initialize", "notifications/initialized", "GET"]
"""What opens a session of the legacy era, with its event stream."""
MEETINGS: dict[tuple[Era, Era], list[str]] = {
    ("legacy", "legacy"): [*HANDSHAKE, "server/discover"],
    ("legacy", "modern"): [*HANDSHAKE, "server/discover", "tools/list"],
    ("modern", "legacy"): ["initialize", "server/discover", "tools/list"],
    ("modern", "modern"): ["initialize", "server/discover", "tools/list"],
    ("both", "legacy"): [*HANDSHAKE, "server/discover"],
    ("both", "modern"): [*HANDSHAKE, "server/discover", "DELETE", "server/discover", "tools/list"],
}
"""What a server is asked before the first call of its first host, by the era of the server and of the host."""


@covers("V-ERA-5", "V-ERA-8")
@pytest.mark.parametrize(("era", "first"), MEETINGS)
async def test_a_server_is_asked_no_more_than_that_at_its_first_meeting(era: Era, first: Era) -> None:
    async with ScriptedServer(era) as server:
        server.capabilities = {"tools": {}}
        async with before(server) as gateway:
            host = await gateway.greeted() if first == "legacy" else gateway.modern()
            assert (await host.call("echo")).result["content"] == []
            asked = [(each.message or {}).get("method", each.verb) for each in server.requests]
    assert sorted(asked) == sorted([*MEETINGS[era, first], "tools/call"])


@covers("V-ERA-5")
async def test_a_server_of_both_eras_that_makes_tasks_itself_is_used_in_the_era_of_its_tasks(
    modern: ScriptedServer,
) -> None:
    modern.era = "both"
    modern.capabilities = {"tools": {}, "extensions": {TASKS: {}}}
    async with before(modern) as gateway:
        assert await echoes(gateway)
    assert [head["mcp-protocol-version"] for head in heads_of_calls(modern)] == ["2026-07-28"] * 2
    assert (methods(modern).count("initialize"), modern.live) == (1, set())


@covers("V-ERA-5", "T-17")
@pytest.mark.parametrize("code", [400, 404, 405, -32022, -32601, -32602, -32000])
async def test_a_server_that_knows_no_handshake_is_asked_for_discovery(modern: ScriptedServer, code: int) -> None:
    modern.era = "both"
    modern.methods["initialize"] = status(code) if code > 0 else error(code, "no")
    async with before(modern) as gateway:
        assert await echoes(gateway)
    assert methods(modern).count("initialize") == 1


@covers("V-ERA-7")
@pytest.mark.parametrize("code", [401, 403, 429, 500, 503])
async def test_a_server_that_lets_nobody_in_has_said_nothing_of_its_era(modern: ScriptedServer, code: int) -> None:
    modern.era = "both"
    modern.methods["initialize"] = status(code)
    async with before(modern) as gateway:
        answer = await gateway.modern().call("echo")
        assert refused(answer, 200, -32603)["data"]["dispatched"] is False
        assert "server/discover" not in methods(modern)
        del modern.methods["initialize"]
        assert await echoes(gateway)


@covers("V-ERA-7")
async def test_a_discovery_that_names_no_version_of_this_era_is_a_word_for_the_other(modern: ScriptedServer) -> None:
    modern.era = "both"
    modern.versions = ["2025-11-25"]
    told = {"supportedVersions": modern.versions, "capabilities": {}, **modern.cache}
    modern.methods["server/discover"] = result(told)
    async with before(modern) as gateway:
        assert await echoes(gateway)
    assert {"mcp-session-id" in head for head in heads_of_calls(modern)} == {True}


@covers("V-ERA-8")
async def test_a_server_that_changes_its_era_is_found_in_the_other(modern: ScriptedServer) -> None:
    modern.era = "both"
    async with before(modern) as gateway:
        assert await echoes(gateway)
        # From now on it is of the legacy era alone, as after an update that was taken back.
        for method in ("server/discover", "tools/call", "tools/list"):
            modern.methods[method] = old_only
        for number in range(2):
            answer = await gateway.modern().call("echo", {"a": number})
            assert answer.result["structuredContent"] == {"a": number}


async def old_only(turn: Any) -> Any:
    """A server that has no word of the modern era."""
    if "mcp-session-id" not in {name.lower() for name in turn.request.headers}:
        return await status(400)(turn)
    if turn.message["method"] == "tools/list":
        return await result({"tools": turn.server.tools})(turn)
    if turn.message["method"] == "tools/call":
        said = {"content": [], "structuredContent": turn.message["params"].get("arguments", {})}
        return await result(said)(turn)
    return await error(-32601, "no")(turn)


@covers("V-ERA-8")
async def test_many_who_come_at_once_find_out_together(modern: ScriptedServer) -> None:
    async with before(modern) as gateway:
        hosts = [gateway.modern(capabilities={"roots": {}} if number % 2 else {}) for number in range(12)]
        answers = await asyncio.gather(*(host.call("echo", {"a": 1}) for host in hosts))
    assert all(answer.result["structuredContent"] == {"a": 1} for answer in answers)
    assert methods(modern).count("initialize") == 1


@covers("V-ERA-5")
@pytest.mark.parametrize(("version", "asked"), [("2026-07-28", "server/discover"), ("2025-06-18", "initialize")])
async def test_a_server_whose_version_is_configured_is_spoken_to_in_that(
    modern: ScriptedServer, version: str, asked: str
) -> None:
    modern.era = "both"
    modern.revision = version
    async with unpinned(modern, version) as gateway:
        assert await echoes(gateway)
    assert {"initialize", "server/discover"} & set(methods(modern)) <= {asked}
