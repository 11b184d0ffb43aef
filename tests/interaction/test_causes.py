"""The cause of a trouble with a server is in every place where operators look: state, log, metric, access line."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.gateway.process import taskgate
from helpers.host.host import Host
from helpers.server import Hold, Reply, ScriptedServer, Turn, error, raw, redirect, status
from helpers.server.sse import SseServer
from helpers.waiting import eventually

CREDENTIALS = "HTTP 401: the server refuses the gateway's credentials"
REFUSALS: dict[str, tuple[Reply, str, str]] = {
    "a revoked key": (status(401), "HTTP 401", CREDENTIALS),
    "a revoked key, as JSON-RPC": (error(-32001, "Unauthorized", status=401), "HTTP 401", CREDENTIALS),
    "a forbidden request": (status(403), "HTTP 403", "HTTP 403: the server forbids the request"),
    "too many requests": (status(429), "HTTP 429", "HTTP 429: the server gets too many requests"),
    "a login page": (
        raw(b"<html>", content_type="text/html"),
        "answers text/html, not MCP",
        "answers text/html, not MCP",
    ),
    "a redirect": (redirect(302, "/login"), "redirect", "it answers with a redirect"),
}
REFUSES, UP = "an upstream refuses requests", "an upstream is up again"


def said(caplog: pytest.LogCaptureFixture, message: str) -> list[Any]:
    """The reasons of the lines with that message."""
    return [vars(record).get("reason") for record in caplog.records if record.getMessage() == message]


def accessed(caplog: pytest.LogCaptureFixture) -> list[tuple[Any, ...]]:
    """Tool and cause of each call that failed."""
    lines = [vars(record) for record in caplog.records if record.getMessage() == "a tool call was handled"]
    return [(line.get("tool"), line["cause"]) for line in lines if "cause" in line]


@pytest.fixture(params=["legacy", "modern"])
async def crm(request: pytest.FixtureRequest) -> Any:
    """A server of one era."""
    async with ScriptedServer(request.param) as server:
        yield server


def before(server: ScriptedServer, **sections: Any) -> Any:
    """The configuration of a gateway before a server of either era."""
    section = {"path": "/reports/mcp", "url": server.url, "protocol_version": "auto"}
    return configuration({}, upstreams={"reports": section}, **sections)


async def host_of(gateway: Gateway, server: ScriptedServer) -> Host:
    """A host of the era of the server, that knows its tools."""
    host = gateway.modern() if server.era == "modern" else await gateway.greeted()
    await host.ask("tools/list")
    return host


@pytest.mark.parametrize(("reply", "cause", "words"), REFUSALS.values(), ids=REFUSALS)
async def test_a_server_that_refuses_is_refusing_everywhere_until_it_serves(
    crm: ScriptedServer, caplog: pytest.LogCaptureFixture, reply: Reply, cause: str, words: str
) -> None:
    caplog.set_level(logging.INFO)
    config = before(crm, logging={"access": True})
    async with serve(config) as gateway:
        host = await host_of(gateway, crm)
        crm.script["echo"] = reply
        for _ in range(3):
            await host.call("echo")
            await asyncio.sleep(1)
        found = await gateway.upstream()
        assert (found["state"], found["cause"], found["recent_failures"]) == ("refusing", words, 3)
        assert await gateway.count("taskgate_upstream_state", upstream="reports", state="refusing") == 1
        assert accessed(caplog) == [("echo", cause)] * 3
        assert said(caplog, REFUSES) == [words]
        del crm.script["echo"]
        await host.call("echo")
        assert (await gateway.upstream())["state"] == "up"
        assert said(caplog, REFUSES) == [words]
    assert said(caplog, UP) == [None]


async def test_a_call_that_finds_no_connection_shows_at_once_that_the_server_is_down(
    crm: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(before(crm)) as gateway:
        host = await host_of(gateway, crm)
        await crm.stop()
        await host.call("echo")
        await host.call("echo")
        found = await gateway.upstream()
        assert (found["state"], found["cause"]) == ("down", "connection refused")
        assert said(caplog, "an upstream is down") == ["connection refused"]


async def test_a_server_that_cannot_serve_is_down(crm: ScriptedServer, caplog: pytest.LogCaptureFixture) -> None:
    async with serve(before(crm)) as gateway:
        host = await host_of(gateway, crm)
        crm.script["echo"] = status(503)
        for _ in range(3):
            await host.call("echo")
            await asyncio.sleep(1)
        await gateway.upstream_is(state="down", cause="HTTP 503: the server cannot serve now")
        assert said(caplog, "an upstream is down") == ["HTTP 503: the server cannot serve now"]


async def test_calls_that_time_out_while_checks_are_answered_are_seen(crm: ScriptedServer) -> None:
    checks = {"interval": "1s", "timeout": "1s", "unhealthy_after": 3, "healthy_after": 1, "method": "auto"}
    section = {"path": "/reports/mcp", "url": crm.url, "protocol_version": "auto", "health": checks}
    section["timeouts"] = {"call": "2s", "ceiling": "2s"}
    async with serve(configuration({}, upstreams={"reports": section})) as gateway:
        host = await host_of(gateway, crm)
        crm.script["echo"] = Hold()
        for _ in range(3):
            await host.call("echo")
        await gateway.upstream_is(state="refusing", cause="calls time out, checks are answered", recent_failures=3)


async def test_a_list_of_tools_in_pages_is_no_request_of_a_host() -> None:
    for era in ("legacy", "modern"):
        async with ScriptedServer(era, page_size=1) as server:
            server.tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("a", "b", "echo")]
            tasks = {"upgrade": [{"tool": "*", "mode": "always", "hints": {"readOnlyHint": True}}]}
            async with serve(before(server, tasks=tasks)) as gateway:
                host = gateway.modern() if era == "modern" else await gateway.greeted()
                await host.call("echo")
                assert len(server.heard("tools/list")) == 3
                found = await gateway.upstream()
                assert (found["state"], found["recent_requests"]) == ("up", 1)


async def test_the_pause_that_a_server_asks_for_goes_to_the_host(crm: ScriptedServer) -> None:
    async with serve(before(crm)) as gateway:
        host = await host_of(gateway, crm)
        crm.script["echo"] = raw(b"slow down", content_type="text/plain", status=429, Retry_After="7")
        answer = await host.call("echo")
        assert answer.error["data"]["retryAfterMs"] == 7000
        assert answer.error["message"].endswith("; try again in 7 s")


def slow_down(seconds: int) -> Reply:
    """Answer with a JSON-RPC error under 429, and ask for a pause."""

    async def reply(turn: Turn) -> Any:
        refusal = {"jsonrpc": "2.0", "id": turn.id, "error": {"code": -32000, "message": "slow down"}}
        return await turn.respond(refusal, status=429, headers={"Retry-After": f"{seconds}"})

    return reply


async def test_the_pause_beside_an_error_under_429_goes_to_the_host_with_the_error(crm: ScriptedServer) -> None:
    async with serve(before(crm)) as gateway:
        host = await host_of(gateway, crm)
        crm.script["echo"] = slow_down(7)
        data = (await host.call("echo")).error["data"]
        assert (data["retryAfterMs"], data["httpStatus"], data["body"]["message"]) == (7000, 429, "slow down")


async def test_a_task_waits_for_the_pause_beside_an_error_under_429(crm: ScriptedServer) -> None:
    async with serve(before(crm, tasks={"upgrade": [{"tool": "*", "mode": "always"}]})) as gateway:
        host = await host_of(gateway, crm)
        crm.script["echo"] = slow_down(20)
        task = (await host.start("echo"))["taskId"]
        await eventually(lambda: len(crm.heard("tools/call")) == 1)
        del crm.script["echo"]
        await host.until(task, "completed")


@pytest.mark.parametrize("refuses", ["a call", "the event stream"])
async def test_the_pause_that_a_server_of_event_streams_asks_for_goes_to_the_host(refuses: str) -> None:
    async with SseServer(revision="2025-11-25") as server:
        section = {"path": "/reports/mcp", "transport": "sse", "url": server.url, "protocol_version": "auto"}
        async with serve(configuration({}, upstreams={"reports": section})) as gateway:
            host = gateway.modern() if refuses == "the event stream" else await gateway.greeted()
            server.refuses_for = "7"
            if refuses == "a call":
                server.refused_tools["echo"] = 429
            else:
                server.get = 429
            answer = await host.call("echo")
            assert answer.error["data"]["retryAfterMs"] == 7000


async def test_a_task_waits_as_long_as_the_server_asks_for(crm: ScriptedServer) -> None:
    async with serve(before(crm, tasks={"upgrade": [{"tool": "*", "mode": "always"}]})) as gateway:
        host = await host_of(gateway, crm)
        crm.script["echo"] = raw(b"slow down", content_type="text/plain", status=429, Retry_After="20")
        loop = asyncio.get_running_loop()
        began, task = loop.time(), (await host.start("echo"))["taskId"]
        await eventually(lambda: len(crm.heard("tools/call")) == 1)
        del crm.script["echo"]
        await host.until(task, "completed")
        assert (len(crm.heard("tools/call")), loop.time() - began >= 20) == (2, True)


async def test_the_age_of_the_oldest_task_is_shown_while_a_task_runs(server: ScriptedServer) -> None:
    server.script["echo"] = hold = Hold()
    tasks = {"upgrade": [{"tool": "*", "mode": "always"}]}
    async with serve(configuration({"reports": server.url}, tasks=tasks)) as gateway:
        host = await gateway.greeted()
        tasks_of_host = [(await host.start("echo"))["taskId"]]
        await asyncio.sleep(50)
        tasks_of_host.append((await host.start("echo"))["taskId"])
        found = (await gateway.readiness())["upstreams"]["reports"]
        assert 50 <= found["oldest_task"] < 60
        hold.release({"content": []})
        for task in tasks_of_host:
            await host.until(task, "completed")
        assert "oldest_task" not in (await gateway.readiness())["upstreams"]["reports"]


async def test_commands_show_the_cause_and_a_hold(server: ScriptedServer, tmp_path: Path) -> None:
    token = tmp_path / "operator.token"
    token.write_text("0123456789abcdef" * 4)
    token.chmod(0o600)
    config = configuration({"reports": server.url}, admin={"token_file": token})

    async with serve(config) as gateway:

        async def said_by(*command: str) -> str:
            options = "--admin", gateway.operators_origin, "--token", str(token)
            return (await asyncio.to_thread(taskgate, *command, *options, folder=tmp_path)).stdout

        host = await host_of(gateway, server)
        server.script["echo"] = status(401)
        for _ in range(3):
            await host.call("echo")
            await asyncio.sleep(1)
        doctor = await asyncio.to_thread(taskgate, "doctor", "--admin", gateway.operators_origin, folder=tmp_path)
        assert f"upstream reports refuses requests: {CREDENTIALS}, since " in doctor.stdout
        assert "3 of 4 requests failed in 5 min" in doctor.stdout
        assert "reports\tREFUSING\t" in await said_by("upstreams", "ls")
        await said_by("upstreams", "hold", "reports")
        assert (await gateway.upstream())["state"] == "held"
        assert await gateway.count("taskgate_upstream_state", upstream="reports", state="held") == 1
        assert "reports\theld\t" in await said_by("upstreams", "ls")


async def test_a_task_whose_server_asks_for_more_time_than_it_has_makes_a_last_attempt(server: ScriptedServer) -> None:
    tasks = {"upgrade": [{"tool": "*", "mode": "always"}], "ttl": {"min": "1s"}}
    async with serve(configuration({"reports": server.url}, tasks=tasks)) as gateway:
        host = await host_of(gateway, server)
        server.script["echo"] = raw(b"slow down", content_type="text/plain", status=429, Retry_After="86400")
        task = (await host.start("echo", ttl=30_000))["taskId"]
        await eventually(lambda: len(server.heard("tools/call")) == 1)
        del server.script["echo"]
        await host.until(task, "completed")
        assert len(server.heard("tools/call")) == 2
