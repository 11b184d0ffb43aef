"""Plain calls: they cross unchanged in meaning, payloads to the byte."""

import asyncio
from typing import Any

import pytest

from helpers.gateway.gateway import Gateway
from helpers.host.host import Host
from helpers.schema import available, check_client_message
from helpers.server import Hold, ScriptedServer, error, raw, result, stream
from helpers.waiting import bounded, eventually
from requirements import covers

CROSSING = [
    "tools/list",
    "prompts/list",
    "prompts/get",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "resources/subscribe",
    "resources/unsubscribe",
    "completion/complete",
    "logging/setLevel",
]


@pytest.mark.parametrize("method", CROSSING)
async def test_a_request_crosses_with_its_parameters_and_its_answer(
    server: ScriptedServer, host: Host, method: str
) -> None:
    sent = {"name": "n", "uri": "file:///a", "level": "info", "x": [1, {}]}
    sent |= {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": "b"}}
    answers: dict[str, Any] = {
        "tools/list": {"tools": []},
        "prompts/list": {"prompts": []},
        "prompts/get": {"messages": []},
        "resources/list": {"resources": []},
        "resources/templates/list": {"resourceTemplates": []},
        "resources/read": {"contents": []},
        "completion/complete": {"completion": {"values": ["a"]}},
    }
    value = answers.get(method, {})
    server.methods[method] = result(value)
    assert (await host.ask(method, sent)).result == value
    assert server.heard(method)[-1]["params"] == sent


async def test_a_result_crosses_to_the_byte(server: ScriptedServer, host: Host) -> None:
    odd = (
        '{ "content" : [ ] , "structuredContent":{"n":1.0e2,"big":123456789012345678901234567890,"é":"\\u00e9","n":2}}'
    )
    server.script["echo"] = raw_result(odd)
    answer = await host.call("echo")
    assert odd in answer.text


async def test_arguments_cross_to_the_byte(server: ScriptedServer, host: Host) -> None:
    arguments = b'{"n" : 1.0e2 ,"n":2, "big":123456789012345678901234567890,"e":"\\u00e9\\ud83d\\ude00"}'
    seen: list[bytes] = []
    server.methods["tools/call"] = remembering(seen)
    body = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":' + arguments + b"}}"
    await host.post(body)
    assert arguments in seen[0]


@pytest.mark.parametrize("size", [10_000, 1_000_000])
async def test_a_large_result_arrives_whole_as_json(server: ScriptedServer, host: Host, size: int) -> None:
    text = "ü" * size
    server.script["echo"] = result({"content": [{"type": "text", "text": text}]})
    answer = await host.call("echo")
    assert not answer.streamed
    assert answer.result["content"][0]["text"] == text


async def test_an_error_of_the_server_crosses_whole(server: ScriptedServer, host: Host) -> None:
    server.script["echo"] = raw_error('{"code":-32002,"message":"gone","data":{"uri":"x", "n":1.50}}')
    answer = await host.call("echo")
    assert (answer.status, answer.error) == (200, {"code": -32002, "message": "gone", "data": {"uri": "x", "n": 1.5}})
    assert '"data":{"uri":"x", "n":1.50}' in answer.text


async def test_a_tools_own_error_crosses_as_a_result(server: ScriptedServer, host: Host) -> None:
    value = {"content": [{"type": "text", "text": "no books"}], "isError": True}
    server.script["broken"] = result(value)
    assert (await host.call("broken")).result == value


@covers("H-HTTP-4")
@pytest.mark.parametrize(
    ("accept", "streamed"),
    [
        ("application/json", False),
        ("text/event-stream", True),
        ("application/json, text/event-stream", False),
        ("*/*", False),
    ],
)
@pytest.mark.parametrize("by_stream", [False, True])
async def test_the_host_is_answered_as_it_accepts_however_the_server_answers(
    server: ScriptedServer, host: Host, accept: str, streamed: bool, by_stream: bool
) -> None:
    value = {"content": [{"type": "text", "text": "hello"}]}
    server.script["echo"] = stream(value) if by_stream else result(value)
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}'
    answer = await host.post(body, headers={"Accept": accept})
    assert (answer.streamed, answer.result) == (streamed, value)


@pytest.mark.parametrize("id", [0, -1, 2**53, "", "a" * 256, "7", "ü"])
async def test_the_answer_carries_the_hosts_own_id(host: Host, id: object) -> None:
    answer = await host.ask("tools/call", {"name": "echo"}, id=id)
    assert answer.message is not None
    assert answer.message["id"] == id


@covers("T-25")
async def test_a_call_that_its_host_cancels_is_cancelled_at_the_server(server: ScriptedServer, host: Host) -> None:
    server.script["report"] = hold = Hold()
    calling = asyncio.create_task(host.ask("tools/call", {"name": "report"}, id="call-1"))
    async with bounded():
        await hold.begun.wait()
        assert (await host.tell("notifications/cancelled", {"requestId": "call-1"})).status == 202
        answer = await calling
    assert answer.message is None
    await eventually(lambda: server.cancelled == [hold.turns[0].id])


@covers("H-LEG-10", "T-11")
async def test_a_host_that_drops_its_connection_has_cancelled_nothing(server: ScriptedServer, host: Host) -> None:
    server.script["report"] = hold = Hold()
    calling = asyncio.create_task(host.call("report"))
    async with bounded():
        await hold.begun.wait()
        calling.cancel()
        await asyncio.wait([calling])
        assert (await host.ask("ping")).result == {}
    assert not hold.left.is_set()
    assert server.cancelled == []
    hold.release({"content": []})


@covers("V-INIT-10", "V-INIT-8", "L-CAP-3", "U-HTTP-1")
async def test_a_server_hears_only_sound_messages_with_ids_of_their_own(server: ScriptedServer, host: Host) -> None:
    for _ in range(3):
        await host.call("echo", task={"ttl": 60_000})
        await host.call("echo")
    await host.ask("tools/list")
    async with bounded():
        while len(server.heard("tools/call")) < 6:
            await asyncio.sleep(0)
    messages = [request.message for request in server.requests if request.message is not None]
    ids = [message["id"] for message in messages if "id" in message]
    assert len(ids) == len(set(ids))
    for message in messages:
        if available():
            check_client_message(message)
    for request in server.requests[1:]:
        assert request.headers["mcp-session-id"] == "session-1"
        assert request.headers["mcp-protocol-version"] == "2025-11-25"


@covers("V-INIT-5", "U-HTTP-3")
@pytest.mark.parametrize("on_get_stream", [False, True])
async def test_a_servers_ping_is_answered_and_its_other_requests_refused(
    server: ScriptedServer, host: Host, on_get_stream: bool
) -> None:
    questions = [
        {"jsonrpc": "2.0", "id": "p", "method": "ping"},
        {"jsonrpc": "2.0", "id": 5, "method": "elicitation/create", "params": {"message": "?", "requestedSchema": {}}},
        {"jsonrpc": "2.0", "id": 6, "method": "roots/list"},
    ]
    if on_get_stream:
        await server.streaming()
        await server.push(*questions)
    else:
        server.script["echo"] = stream({"content": []}, before=questions)
        await host.call("echo")
    await eventually(lambda: len(server.replies) == 3)
    replies = {reply["id"]: reply for reply in server.replies}
    assert replies["p"]["result"] == {}
    assert [replies[id]["error"]["code"] for id in (5, 6)] == [-32601, -32601]


@pytest.mark.parametrize("code", [-32601, -32602])
async def test_an_unknown_tool_is_the_servers_to_refuse_when_it_is_called_plainly(
    server: ScriptedServer, host: Host, code: int
) -> None:
    server.script["none"] = error(code, "Unknown tool")
    assert (await host.call("none")).error == {"code": code, "message": "Unknown tool"}


@pytest.mark.parametrize("method", ["server/discover", "tasks/list", "tasks/update", "sampling/createMessage", "x", ""])
async def test_what_no_server_of_the_era_knows_is_answered_here_and_never_forwarded(
    server: ScriptedServer, gateway: Gateway, host: Host, method: str
) -> None:
    before = len(server.requests)
    answer = await host.ask(method)
    assert (answer.status, answer.code) == (200, -32601)
    assert len(server.requests) == before


@covers("H-HTTP-5")
@pytest.mark.parametrize(
    "method", ["notifications/roots/list_changed", "notifications/unheard", "notifications/cancelled"]
)
async def test_a_notification_gets_202_and_no_body(host: Host, method: str) -> None:
    answer = await host.tell(method)
    assert (answer.status, answer.text) == (202, "")


def raw_result(value: str) -> Any:
    """A reply whose result is exactly this text."""
    return _raw("result", value)


def raw_error(value: str) -> Any:
    """A reply whose error is exactly this text."""
    return _raw("error", value)


def _raw(member: str, value: str) -> Any:
    async def reply(turn: Any) -> Any:
        return await raw(f'{{"jsonrpc":"2.0","id":{turn.id},"{member}":{value}}}'.encode())(turn)

    return reply


def remembering(bodies: list[bytes]) -> Any:
    """A reply that keeps the body it answers."""

    async def reply(turn: Any) -> Any:
        bodies.append(await turn.request.read())
        return await result({"content": []})(turn)

    return reply
