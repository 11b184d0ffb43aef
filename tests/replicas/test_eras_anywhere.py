"""Replicas before a server of both eras: a host gets its own era at each of them, and what only that era has."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helpers.gateway.gateway import Gateway
from helpers.gateway.replicas import serve_replicas
from helpers.server import FORM, Hold, ScriptedServer, asks, note, server_request
from helpers.server.sse import SseServer
from helpers.shared_store import SharedServer
from helpers.waiting import bounded, eventually
from interaction.questions import ACCEPTED, ASKED, CAPABLE, DONE, ELICIT, ROOTS, SAID, SAMPLE, capable

ALWAYS = {"upgrade": [{"tool": "report", "mode": "always"}]}
QUESTIONS = {
    ELICIT: (FORM, ACCEPTED),
    SAMPLE: (ASKED, SAID),
    ROOTS: ({}, {"roots": [{"uri": "file:///a", "name": "a"}]}),
}
NOTICES = [
    note("notifications/message", level="error", data="disk full"),
    note("notifications/tools/list_changed"),
    note("notifications/prompts/list_changed"),
    note("notifications/resources/list_changed"),
]


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer("both") as server:
        server.tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "report")]
        changes = {"listChanged": True}
        server.capabilities = {"logging": {}, "tools": changes, "prompts": changes, "resources": changes}
        yield server


@pytest.fixture
async def events() -> AsyncIterator[SseServer]:
    """A server over HTTP+SSE, which is of the legacy era."""
    async with SseServer(revision="2025-11-25") as server:
        yield server


@pytest.fixture
async def two(
    server: ScriptedServer, events: SseServer, valkey_server: SharedServer, tmp_path: Path
) -> AsyncIterator[list[Gateway]]:
    """Two gateways over one store, which find out the eras of both servers."""
    upstreams = {
        "reports": {"path": "/reports/mcp", "url": server.url, "protocol_version": "auto"},
        "events": {"path": "/events/mcp", "url": events.url, "transport": "sse", "protocol_version": "auto"},
    }
    options = valkey_server.options()
    async with serve_replicas(2, {}, options, tmp_path, upstreams=upstreams, tasks=ALWAYS) as gateways:
        yield gateways


def heads(server: ScriptedServer, tool: str) -> list[tuple[str, bool]]:
    """The revision of each call of the tool, and whether it was in a session."""
    calls = [each for each in server.verbs("POST") if (each.message or {}).get("method") == "tools/call"]
    found = [each.headers for each in calls if each.message["params"]["name"] == tool]
    return [(head["mcp-protocol-version"], "mcp-session-id" in head) for head in found]


async def test_each_host_is_served_in_its_era_at_each_replica(two: list[Gateway], server: ScriptedServer) -> None:
    host = await two[0].greeted()
    for gateway in two:
        for each in (gateway.again(host), gateway.modern()):
            assert (await each.call("echo", {"a": 1})).result["structuredContent"] == {"a": 1}
    assert heads(server, "echo") == [("2025-11-25", True), ("2026-07-28", False)] * 2
    # Each replica found the eras of the server, and has a session of its own for the host.
    assert (len(server.heard("server/discover")) >= 2, len(server.live)) == (True, 2)


@pytest.mark.parametrize("method", QUESTIONS)
async def test_a_question_in_a_call_reaches_the_legacy_host_at_another_replica(
    two: list[Gateway], server: ScriptedServer, method: str
) -> None:
    params, answer = QUESTIONS[method]
    server.script["echo"] = asks(server_request("q", method, **params))
    host = await capable(two[0])
    other = two[1].again(host)
    async with other.asking("tools/call", {"name": "echo", "arguments": {}}) as stream:
        asked = await stream.until(method)
        assert (await host.respond(asked["id"], answer)).status == 202
        (told,) = (await stream.result())["structuredContent"]["answers"]
    assert told["result"] == answer
    assert heads(server, "echo") == [("2025-11-25", True)]


async def test_log_lines_and_list_changes_reach_a_legacy_host_at_another_replica(
    two: list[Gateway], server: ScriptedServer
) -> None:
    host = await two[0].greeted()
    async with two[1].again(host).listen() as get, two[0].modern().listen(toolsListChanged=True) as listening:
        await server.streaming(2)
        await server.push(*NOTICES, streams=1)
        for each in NOTICES:
            await get.until(each["method"])
        await listening.until("notifications/tools/list_changed")
    assert [each["params"]["data"] for each in get.of("notifications/message")] == ["disk full"]
    assert len(listening.heard) == 2


@pytest.mark.parametrize("begins", ["legacy", "modern"])
async def test_a_task_is_read_in_both_eras_at_another_replica_and_its_call_stays_in_its_own(
    two: list[Gateway], server: ScriptedServer, begins: str
) -> None:
    server.script["report"] = hold = Hold()
    legacy, modern = await two[0].greeted(), two[0].modern(capabilities=CAPABLE)
    task = (await (legacy if begins == "legacy" else modern).start("report"))["taskId"]
    await eventually(lambda: hold.turns)
    assert (await two[1].again(legacy).task(task))["status"] == "working"
    assert (await two[1].modern().task(task))["status"] == "working"
    hold.release(DONE)
    async with bounded():
        ended = await two[1].again(legacy).ask("tasks/result", {"taskId": task})
    assert ended.result["content"] == DONE["content"]
    assert (await two[1].modern().task(task))["result"]["content"] == DONE["content"]
    expected = ("2025-11-25", True) if begins == "legacy" else ("2026-07-28", False)
    assert heads(server, "report") == [expected]


async def test_a_server_over_event_streams_beside_serves_hosts_of_both_eras_at_each_replica(
    two: list[Gateway], events: SseServer
) -> None:
    host = await two[0].greeted(mount="events")
    for gateway in two:
        for each in (gateway.again(host, "events"), gateway.modern("events")):
            assert (await each.call("echo", {"a": 1})).result["structuredContent"] == {"a": 1}
    assert events.heard("server/discover") == []
