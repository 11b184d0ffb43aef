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
from helpers.server import ScriptedServer, error, raw, redirect, status
from helpers.server.replies import Reply
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


async def test_the_pause_that_a_server_asks_for_goes_to_the_host(crm: ScriptedServer) -> None:
    async with serve(before(crm)) as gateway:
        host = await host_of(gateway, crm)
        crm.script["echo"] = raw(b"slow down", content_type="text/plain", status=429, Retry_After="7")
        answer = await host.call("echo")
        assert answer.error["data"]["retryAfterMs"] == 7000
        assert answer.error["message"].endswith("; try again in 7 s")


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
