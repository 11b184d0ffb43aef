"""A server of HTTP+SSE behind the whole gateway: both eras of hosts have of it what they have of any server."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from helpers.gateway.configuration import GatewayConfig, configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import Host
from helpers.secrets import noted
from helpers.server import FORM, progress_note, server_request
from helpers.server.sse import SseServer
from helpers.waiting import eventually
from interaction.questions import ACCEPTED, ELICIT, capable
from requirements import covers

ENDED = "The server's event stream ended"


def over_sse(server: SseServer, **keys: Any) -> GatewayConfig:
    """A configuration with that server alone, whose revision has to be found out."""
    upstream = {"path": "/reports/mcp", "transport": "sse", "url": server.url, "protocol_version": "auto", **keys}
    return configuration({}, upstreams={"reports": upstream})


@pytest.fixture
async def events() -> AsyncIterator[SseServer]:
    """A server of a newer revision than its transport, as SDKs of 2025 make them."""
    async with SseServer(revision="2025-11-25") as server:
        yield server


@pytest.fixture
async def gateway(events: SseServer) -> AsyncIterator[Gateway]:
    async with serve(over_sse(events)) as gateway:
        yield gateway


@pytest.fixture
async def host(gateway: Gateway) -> Host:
    return await gateway.greeted()


@covers("U-SSE-1")
async def test_hosts_of_both_eras_call_its_tools_and_it_is_never_asked_what_it_need_not_know(
    gateway: Gateway, events: SseServer, host: Host
) -> None:
    for each in (host, gateway.modern()):
        assert [tool["name"] for tool in (await each.ask("tools/list")).result["tools"]] == ["echo"]
        assert (await each.call("echo", {"a": 1})).result["structuredContent"] == {"a": 1}
    task = await host.start("echo", {"a": 2})
    assert (await host.ask("tasks/result", {"taskId": task["taskId"]})).result["structuredContent"] == {"a": 2}
    assert "server/discover" not in [method for stream in events.lines for method in stream.methods()]


@covers("U-SSE-1")
async def test_a_call_as_a_task_asks_its_user_and_tells_how_far_it_is(gateway: Gateway, events: SseServer) -> None:
    events.silent.add("tools/call")
    host = await capable(gateway)
    task = (await host.start("echo"))["taskId"]
    stream, asked = await events.asked("tools/call")
    async with host.asking("tasks/result", {"taskId": task}) as waiting:
        stream.say(progress_note(asked["params"]["_meta"]["progressToken"], 1), server_request("q-1", **FORM))
        question = await waiting.until(ELICIT)
        await host.until(task, "input_required")
        await host.respond(question["id"], ACCEPTED)
        await eventually(lambda: {"jsonrpc": "2.0", "id": "q-1", "result": ACCEPTED} in stream.heard)
        stream.answer(asked, {"content": []})
        assert (await waiting.result())["content"] == []


@covers("U-SSE-3")
async def test_a_stream_that_ends_fails_the_calls_on_it_and_the_next_call_has_another(
    gateway: Gateway, events: SseServer, host: Host
) -> None:
    events.silent.add("tools/call")
    task = (await host.start("echo"))["taskId"]
    await events.asked("tools/call")
    events.last().exit()
    found = await host.until(task, "failed")
    assert found["statusMessage"] == ENDED
    error = (await host.ask("tasks/result", {"taskId": task})).error
    assert (error["code"], error["data"]["reason"], error["data"]["dispatched"]) == (-32603, "closed", True)
    events.silent.clear()
    assert (await host.call("echo", {"a": 1})).result["structuredContent"] == {"a": 1}


@covers("U-SSE-2")
async def test_an_endpoint_elsewhere_is_never_asked_and_hosts_are_not_told_where_it_is(events: SseServer) -> None:
    async with SseServer() as other:
        events.endpoint = f"{other.origin}/messages"
        async with serve(over_sse(events)) as gateway:
            refused = await gateway.host().ask("initialize", GREETING)
        assert other.paths == []
    assert refused.error["data"] == {"origin": "upstream", "reason": "redirect", "dispatched": False}
    assert other.origin not in refused.text


async def test_the_gateways_credentials_go_with_the_stream_and_every_message(events: SseServer) -> None:
    events.token = noted("a-token-for-this-server")
    credentials = {"mode": "header", "header": "Authorization", "value": f"Bearer {events.token}"}
    told = {"context": "X-Whose"}
    async with serve(over_sse(events, credentials=credentials, identity_headers=told)) as gateway:
        host = await gateway.greeted()
        assert (await host.call("echo", {"a": 1})).result["structuredContent"] == {"a": 1}
    sent = [*events.gets, *events.posts]
    assert {headers["authorization"] for headers in sent} == {f"Bearer {events.token}"}
    assert len({headers["x-whose"] for headers in sent}) == 1


async def test_a_secret_that_was_replaced_goes_with_the_next_message_of_an_open_stream(events: SseServer) -> None:
    events.token = noted("a-token-for-this-server")

    def shown() -> GatewayConfig:
        value = f"Bearer {events.token}"
        return over_sse(events, credentials={"mode": "header", "header": "Authorization", "value": value})

    async with serve(shown()) as gateway:
        host = await gateway.greeted()
        events.token = noted("another-token-for-this-server")
        assert (await host.call("echo", {"a": 1})).error["message"] == "The server refused the gateway's credentials"
        assert (await gateway.reload(shown())).result == "success"
        assert (await host.call("echo", {"a": 1})).result["structuredContent"] == {"a": 1}
    assert len(events.lines) == 1


async def test_whether_it_is_well_is_asked_over_a_stream_of_its_own(events: SseServer) -> None:
    async with serve(over_sse(events, health={"interval": "1h"})) as gateway:
        await gateway.upstream_is(up=True)
        assert len(events.lines) == 1


GREETING = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "host", "version": "1"}}
