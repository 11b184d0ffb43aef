"""Servers that refuse, reset, hang or answer garbage: the exact outcome for a plain call and for a task."""

import asyncio
from typing import Any

import pytest

from helpers.exchange_server import ExchangeServer, Terms
from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import Host
from helpers.loop_pace import pace
from helpers.server import (
    Hold,
    Reply,
    ScriptedServer,
    Turn,
    breaks_off,
    error,
    in_turn,
    note,
    raw,
    redirect,
    resets,
    result,
    server_request,
    status,
    stream,
)
from helpers.waiting import bounded, eventually
from requirements import covers

PAGE = b"<html><body>nginx</body></html>"
UNREADABLE = "application/json; charset*=utf-16''%00"
FAILURES: dict[str, tuple[Reply, str, bool]] = {
    "resets the connection": (resets(), "closed", True),
    "breaks a stream off": (breaks_off(note("notifications/message", level="info", data=1)), "closed", True),
    "ends a stream without an answer": (stream(None), "closed", True),
    "breaks a document off": (breaks_off(document=True), "closed", True),
    "answers 400": (status(400, PAGE, content_type="text/html"), "refused", False),
    "answers 403": (status(403, PAGE, content_type="text/html"), "refused", False),
    "answers 429": (status(429, PAGE, content_type="text/html"), "refused", False),
    "answers 500": (status(500, PAGE, content_type="text/html"), "refused", True),
    "answers 503": (status(503, PAGE), "refused", True),
    "answers HTML": (raw(b"<html>", content_type="text/html"), "malformed", True),
    "answers in a type that cannot be read": (raw(b"{}", content_type=UNREADABLE), "malformed", True),
    "answers no JSON": (raw(b"{"), "malformed", True),
    "answers an array": (raw(b"[]"), "malformed", True),
    "answers under another id": (result({"content": []}, id=424242), "malformed", True),
    "answers in a coding nobody asked for": (raw(b"x", Content_Encoding="br"), "malformed", True),
    "redirects to another origin": (redirect(307, "http://127.0.0.2:1/mcp"), "redirect", False),
    "redirects with a loss of the method": (redirect(302, "/mcp"), "redirect", True),
}


@covers("S-SEC-9")
@pytest.mark.parametrize(("reply", "reason", "dispatched"), FAILURES.values(), ids=FAILURES)
async def test_a_plain_call_to_a_server_that_fails_gets_an_error_that_says_why(
    server: ScriptedServer, host: Host, reply: Reply, reason: str, dispatched: bool
) -> None:
    server.script["broken"] = reply
    answer = await host.call("broken")
    assert (answer.status, answer.code) == (200, -32603)
    assert without_status(answer.error["data"]) == {"origin": "upstream", "reason": reason, "dispatched": dispatched}
    assert_nothing_leaks(server, answer.text)
    assert len(server.heard("tools/call")) == 1
    assert (await host.call("echo", {"a": 1})).result["structuredContent"] == {"a": 1}


# After 429 a task waits: see below.
FAILURES_OF_TASKS = {name: failure for name, failure in FAILURES.items() if name != "answers 429"}


@covers("L-RES-2", "S-SEC-9")
@pytest.mark.parametrize(("reply", "reason", "dispatched"), FAILURES_OF_TASKS.values(), ids=FAILURES_OF_TASKS)
async def test_a_task_on_a_server_that_fails_is_failed_and_says_why(
    server: ScriptedServer, gateway: Gateway, host: Host, reply: Reply, reason: str, dispatched: bool
) -> None:
    server.script["broken"] = reply
    task = await host.start("broken")
    answer = await host.ask("tasks/result", {"taskId": task["taskId"]})
    assert without_status(answer.error["data"]) == {"origin": "upstream", "reason": reason, "dispatched": dispatched}
    last = await host.task(task["taskId"])
    assert (last["status"], last["statusMessage"]) == ("failed", answer.error["message"])
    assert_nothing_leaks(server, answer.text)
    assert len(server.heard("tools/call")) == 1
    assert await gateway.count("taskgate_tasks_finished_total", error_type=reason) <= 1


async def waits(host: Host, task: dict[str, Any]) -> None:
    """Wait until the task says that it waits for its server."""
    shown: dict[str, Any] = {}
    async with bounded():
        while not str(shown.get("statusMessage")).startswith("Waits for the server: "):
            # Not so often that polls are refused.
            await asyncio.sleep(0.1 * pace())
            shown = await host.task(task["taskId"])


async def test_a_task_whose_server_asked_and_then_knew_no_session_has_run(
    server: ScriptedServer, gateway: Gateway
) -> None:
    lost, was_shown = error(-32000, "Session not found"), asyncio.Event()

    async def asks_and_refuses(turn: Turn) -> Any:
        await turn.send(server_request("q-1", message="Which?", requestedSchema={"type": "object", "properties": {}}))
        await was_shown.wait()
        return await lost(turn)

    host = await gateway.greeted(capabilities={"elicitation": {}})
    await host.call("echo")
    server.script["report"], server.methods["ping"] = asks_and_refuses, lost
    task = await host.start("report")
    while (await host.task(task["taskId"]))["status"] != "input_required":
        await asyncio.sleep(0.01)
    was_shown.set()
    failed = await host.ask("tasks/result", {"taskId": task["taskId"]})
    assert (failed.code, failed.error["message"]) == (-32000, "Session not found")
    assert [message["params"]["name"] for message in server.heard("tools/call")] == ["echo", "report"]


async def test_a_task_whose_server_is_away_waits_for_it_and_runs_once(server: ScriptedServer, host: Host) -> None:
    await host.start("echo")
    await server.stop()
    task = await host.start("echo", {"a": 1})
    await waits(host, task)
    await server.come_back()
    answer = await host.ask("tasks/result", {"taskId": task["taskId"]})
    assert answer.result["structuredContent"] == {"a": 1}
    # The first attempt at the new process is refused: it knows no session.
    assert [message["params"]["arguments"] for message in server.heard("tools/call")][-1] == {"a": 1}
    assert (await host.task(task["taskId"])).get("statusMessage") is None


async def test_a_task_waits_for_its_server_though_the_tools_of_a_new_session_were_not_read_yet(
    server: ScriptedServer, host: Host
) -> None:
    await host.start("echo")
    await server.stop()
    await server.come_back()
    await host.call("echo")
    await server.stop()
    assert (await host.call("unlisted", task={})).error["data"]["reason"] == "unreachable"
    task = await host.start("echo", {"a": 1})
    await waits(host, task)
    await server.come_back()
    answer = await host.ask("tasks/result", {"taskId": task["taskId"]})
    assert answer.result["structuredContent"] == {"a": 1}


async def test_a_task_waits_for_a_server_that_refuses_it_for_now(server: ScriptedServer, host: Host) -> None:
    server.script["broken"] = in_turn(status(429), status(429), result({"content": []}))
    task = await host.start("broken")
    assert (await host.ask("tasks/result", {"taskId": task["taskId"]})).result["content"] == []
    assert len(server.heard("tools/call")) == 3


async def test_a_task_that_waits_for_its_server_can_be_cancelled_and_is_not_sent_later(
    server: ScriptedServer, host: Host
) -> None:
    await host.start("echo")
    await server.stop()
    task = await host.start("report")
    await waits(host, task)
    assert (await host.cancel(task["taskId"])).result["status"] == "cancelled"
    await server.come_back()
    await host.call("echo")
    assert [message["params"]["name"] for message in server.heard("tools/call")] == ["echo", "echo", "echo"]


async def test_a_task_waits_for_its_server_no_longer_than_its_rule_allows(server: ScriptedServer) -> None:
    rules = {"upgrade": [{"tool": "*", "mode": "always", "deadline": "20s"}]}
    async with serve(configuration({"reports": server.url}, tasks=rules)) as gateway:
        host = await gateway.greeted()
        await host.start("echo")
        await server.stop()
        task = await host.start("echo")
        answer = await host.ask("tasks/result", {"taskId": task["taskId"]})
        assert answer.error["data"]["reason"] == "unreachable"
        assert answer.error["data"]["dispatched"] is False


async def test_an_initialize_at_a_server_that_is_not_there_fails_with_its_id() -> None:
    async with serve(configuration({"reports": "http://127.0.0.1:1/mcp"})) as gateway:
        params: dict[str, Any] = {"protocolVersion": "2025-11-25", "capabilities": {}}
        answer = await gateway.host().ask("initialize", params | {"clientInfo": {"name": "h", "version": "1"}}, id="i")
        assert await gateway.ready() == 200
    assert (answer.status, answer.code) == (200, -32603)
    assert answer.error["data"] == {"origin": "upstream", "reason": "unreachable", "dispatched": False}
    assert "127.0.0.1" not in answer.text


@covers("V-INIT-9", "T-25")
@pytest.mark.parametrize("as_task", [False, True])
async def test_a_call_that_outlives_its_bound_is_cancelled_at_the_server(server: ScriptedServer, as_task: bool) -> None:
    server.script["report"] = hold = Hold()
    written = {"path": "/reports/mcp", "url": server.url, "timeouts": {"call": "100ms"}}
    async with serve(configuration({"reports": server.url}, upstreams={"reports": written})) as gateway:
        host = await gateway.greeted()
        if as_task:
            task = await host.start("report")
            answer = await host.ask("tasks/result", {"taskId": task["taskId"]})
        else:
            answer = await host.call("report")
        assert answer.error["data"] == {"origin": "upstream", "reason": "timeout", "dispatched": True}
        await eventually(lambda: server.cancelled == [hold.turns[0].id])


@pytest.mark.parametrize("as_task", [False, True])
async def test_a_call_whose_time_is_up_while_its_token_is_had_was_never_sent_and_is_not_cancelled(
    server: ScriptedServer, as_task: bool
) -> None:
    async with ExchangeServer(Terms(grant_type="client_credentials", audience=None, scopes=())) as endpoint:
        endpoint.lifetime = 0
        client, secret = endpoint.terms.client
        credentials = {"mode": "client_credentials", "token_url": endpoint.url}
        credentials |= {"client_id": client, "client_secret": secret}
        written = {"path": "/reports/mcp", "url": server.url, "timeouts": {"call": "1s"}, "credentials": credentials}
        async with serve(configuration({"reports": server.url}, upstreams={"reports": written})) as gateway:
            host = await gateway.greeted()
            task = await host.start("echo")
            assert (await host.ask("tasks/result", {"taskId": task["taskId"]})).result
            await server.streaming()
            endpoint.gate = asyncio.Event()
            if as_task:
                task = await host.start("echo")
                answer = await host.ask("tasks/result", {"taskId": task["taskId"]})
            else:
                answer = await host.call("echo")
            assert answer.error["data"] == {"origin": "upstream", "reason": "timeout", "dispatched": False}
            endpoint.gate.set()
            assert (await host.call("echo")).result
    assert (len(server.heard("tools/call")), server.cancelled) == (2, [])


@covers("V-INIT-9")
async def test_an_initialize_that_hangs_is_given_up_and_not_cancelled(server: ScriptedServer) -> None:
    server.methods["initialize"] = Hold()
    written = {"path": "/reports/mcp", "url": server.url, "timeouts": {"first_byte": "100ms"}}
    async with serve(configuration({"reports": server.url}, upstreams={"reports": written})) as gateway:
        params: dict[str, Any] = {"protocolVersion": "2025-11-25", "capabilities": {}}
        answer = await gateway.host().ask("initialize", params | {"clientInfo": {"name": "h", "version": "1"}})
    assert answer.error["data"]["reason"] == "timeout"
    assert server.cancelled == []


@covers("H-HTTP-4")
async def test_a_redirect_within_the_servers_origin_is_followed_with_method_and_body(server: ScriptedServer) -> None:
    async with serve(configuration({"reports": f"{server.url}/elsewhere"})) as gateway:
        host = await gateway.greeted()
        assert (await host.call("echo", {"a": 1})).result["structuredContent"] == {"a": 1}


def without_status(data: dict[str, Any]) -> dict[str, Any]:
    """The data of an error without the HTTP status, which only a refusal has."""
    assert ("httpStatus" in data) == (data["reason"] == "refused")
    return {name: value for name, value in data.items() if name != "httpStatus"}


def assert_nothing_leaks(server: ScriptedServer, text: str) -> None:
    """No address of the server, no class of ours or of a library."""
    assert server.origin.removeprefix("http://") not in text
    assert all(word not in text for word in ("Traceback", "aiohttp", "Error(", "taskgate."))
