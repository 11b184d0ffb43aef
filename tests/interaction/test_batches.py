"""Several messages in one body: answered one by one to a host of 2025-03-26, refused to every other."""

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import ACCEPT, Host
from helpers.host.wire import asked, head_of
from helpers.server import Hold, ScriptedServer, TalkingTool, result, stream
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import bounded, eventually, until
from interaction.questions import DONE, ROOTS, capable
from requirements import covers

BATCHING = "2025-03-26"
OTHERS = ["2024-11-05", "2025-06-18", "2025-11-25"]


def request(id: Any, method: str = "ping", **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, **({"params": params} if params else {})}


def call(id: Any, tool: str = "echo", **more: Any) -> dict[str, Any]:
    return request(id, "tools/call", name=tool, arguments={"of": id}, **more)


def notification(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


async def send(host: Host, batch: Any, *, accept: str = ACCEPT) -> tuple[int, str, list[Any]]:
    """Status, content type and messages, those of an array or of events in the order they came."""
    head = head_of(host, Content_Type="application/json", Accept=accept)
    body = batch if isinstance(batch, bytes) else json.dumps(batch).encode()
    async with bounded(), host.http.post(host.url, data=body, headers=head) as response:
        text = await response.text()
        return response.status, response.content_type, _messages(response, text)


def _messages(response: aiohttp.ClientResponse, text: str) -> list[Any]:
    if response.content_type == "text/event-stream":
        return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
    whole = json.loads(text) if text else []
    return whole if isinstance(whole, list) else [whole]


def by_id(messages: list[Any]) -> dict[Any, Any]:
    assert len({message.get("id") for message in messages}) == len(messages)
    return {message.get("id"): message for message in messages}


@pytest.fixture
async def host(gateway: Gateway) -> Host:
    """A host that may send batches."""
    return await gateway.greeted(BATCHING)


@covers("V-INIT-7")
async def test_each_request_is_answered_in_one_array(host: Host, server: ScriptedServer) -> None:
    batch = [call(1), request("two"), notification("notifications/initialized"), request(3, "no/such"), call(4)]
    code, kind, messages = await send(host, batch)
    assert (code, kind) == (200, "application/json")
    answers = by_id(messages)
    assert answers.keys() == {1, "two", 3, 4}
    assert answers[1]["result"]["structuredContent"] == {"of": 1}
    assert answers["two"]["result"] == {}
    assert answers[3]["error"]["code"] == -32601
    assert len(server.heard("tools/call")) == 2


@covers("V-INIT-7")
async def test_what_nobody_has_to_answer_is_accepted(gateway: Gateway, tool: TalkingTool) -> None:
    host = await capable(gateway, BATCHING)
    assert await send(host, [notification("notifications/initialized"), notification("no/such")]) == (
        202,
        "application/octet-stream",
        [],
    )
    async with asked(host, "tools/call", {"name": "report"}) as wire:
        await tool.ask("q", ROOTS, {})
        question = await wire.until(ROOTS)
        response = {"jsonrpc": "2.0", "id": question.message["id"], "result": {"roots": []}}
        assert (await send(host, [response, {**response, "id": "stranger"}]))[0] == 202
        assert (await tool.told("q"))["result"] == {"roots": []}
        await tool.finish(DONE)
        await wire.to_end()


@covers("V-INIT-7")
async def test_one_answer_that_takes_a_stream_makes_all_of_them_events(host: Host, server: ScriptedServer) -> None:
    server.script["report"] = stream(DONE, progress=2)
    code, kind, messages = await send(host, [call(1), call(2, "report", _meta={"progressToken": "t"}), request(3)])
    assert (code, kind) == (200, "text/event-stream")
    answers = by_id([message for message in messages if "method" not in message])
    assert answers.keys() == {1, 2, 3}
    assert answers[2]["result"] == DONE
    told = [message["params"]["progress"] for message in messages if "method" in message]
    assert told == [1, 2]
    assert messages.index(answers[2]) > 1


async def test_a_host_that_takes_no_document_gets_events(host: Host) -> None:
    _, kind, messages = await send(host, [call(1), call(2)], accept="text/event-stream")
    assert kind == "text/event-stream"
    assert by_id(messages).keys() == {1, 2}


@covers("V-INIT-7")
@pytest.mark.parametrize("element", [1, None, "x", [], [request(9)], {}, {"jsonrpc": "1.0", "method": "ping"}])
async def test_an_element_that_is_no_message_has_an_error_of_its_own(host: Host, element: Any) -> None:
    code, _, messages = await send(host, [element, request(1)])
    assert code == 200
    answers = by_id(messages)
    assert answers.keys() == {None, 1}
    assert answers[None]["error"]["code"] == -32600
    assert answers[1]["result"] == {}


async def test_an_element_with_an_id_has_its_error_under_it(host: Host) -> None:
    _, _, messages = await send(
        host, b'[{"jsonrpc":"2.0","id":5,"method":7},{"jsonrpc":"2.0","id":6,"id":6,"method":"a"}]'
    )
    assert [(each.get("id"), each["error"]["code"]) for each in messages] == [(5, -32600), (None, -32600)]


@covers("V-INIT-7")
async def test_no_session_is_opened_in_a_batch(host: Host, server: ScriptedServer) -> None:
    opening = request(
        1, "initialize", protocolVersion=BATCHING, capabilities={}, clientInfo={"name": "h", "version": "1"}
    )
    opened = len(server.heard("initialize"))
    _, _, messages = await send(host, [opening, request(2)])
    answers = by_id(messages)
    assert answers[1]["error"]["code"] == -32600
    assert answers[2]["result"] == {}
    assert len(server.heard("initialize")) == opened
    stranger = host.again()
    stranger.session = None
    code, _, messages = await send(stranger, [opening])
    assert (code, messages[0]["error"]["code"]) == (400, -32600)


@covers("V-INIT-7")
@pytest.mark.parametrize("batch", [[], [request(id_) for id_ in range(65)]], ids=["none", "too-many"])
async def test_an_array_of_none_or_of_too_many_is_refused_whole(
    host: Host, server: ScriptedServer, batch: list[Any]
) -> None:
    code, _, messages = await send(host, batch)
    assert (code, messages[0]["error"]["code"], "id" in messages[0]) == (400, -32600, False)
    assert by_id((await send(host, [request(id_) for id_ in range(64)]))[2]).keys() == {*range(64)}


async def test_an_array_that_is_no_json_is_refused_as_such(host: Host) -> None:
    code, _, messages = await send(host, b'[{"jsonrpc":"2.0","id":1,"method":"ping"},')
    assert (code, messages[0]["error"]["code"]) == (400, -32700)


@covers("V-INIT-7")
@pytest.mark.parametrize("revision", OTHERS)
async def test_any_other_revision_has_no_arrays(gateway: Gateway, server: ScriptedServer, revision: str) -> None:
    host = await gateway.greeted(revision)
    code, _, messages = await send(host, [call(1)])
    assert (code, messages[0]["error"]["code"]) == (400, -32600)
    assert server.heard("tools/call") == []


async def test_one_of_a_batch_can_be_cancelled_from_outside_and_from_within(host: Host, server: ScriptedServer) -> None:
    server.script["report"] = hold = Hold()
    sending = asyncio.create_task(send(host, [call(1, "report"), call(2), request(3)]))
    async with bounded():
        await hold.begun.wait()
        await host.tell("notifications/cancelled", {"requestId": 1})
        _, _, messages = await sending
    assert by_id(messages).keys() == {2, 3}
    await eventually(lambda: server.cancelled)
    cancel = notification("notifications/cancelled", requestId=4)
    code, _, messages = await send(host, [call(4, "report"), cancel, request(5)])
    assert (code, by_id(messages).keys()) == (200, {5})


async def test_every_element_passes_the_rules_and_is_counted(issuer: TokenIssuer, server: ScriptedServer) -> None:
    rules = {"rules": [{"effect": "deny", "tool": "broken"}]}
    async with serve(guarded({"reports": server.url}, issuer, authorization=rules)) as gateway:
        host = await gateway.greeted(BATCHING, token=issuer.token(gateway.url()))
        _, _, messages = await send(host, [call(1), call(2, "broken"), call(3)])
        assert {id_: "error" in answer for id_, answer in by_id(messages).items()} == {1: False, 2: True, 3: False}
        assert len(server.heard("tools/call")) == 2
        calls = await gateway.count("mcp_server_operation_duration_seconds_count", mcp_method_name="tools/call")
        assert calls == 3


async def test_a_batch_of_a_stranger_is_for_nobody(issuer: TokenIssuer, server: ScriptedServer) -> None:
    async with serve(guarded({"reports": server.url}, issuer)) as gateway:
        host = await gateway.greeted(BATCHING, token=issuer.token(gateway.url()))
        host.token = issuer.token(gateway.url(), subject="bob")
        assert (await send(host, [call(1)]))[0] == 404
        host.token = None
        assert (await send(host, [call(1)]))[0] == 401
        assert server.heard("tools/call") == []


async def test_a_drain_refuses_the_requests_of_a_batch_that_begin_something(
    server: ScriptedServer, gateway: Gateway, host: Host
) -> None:
    server.script["report"] = hold = Hold()
    running_one = asyncio.create_task(gateway.modern(tasks=False).call("report"))
    async with bounded():
        await hold.begun.wait()
        draining = asyncio.create_task(gateway.drain())
        await until(lambda: host.call("echo"), lambda answer: "error" in answer.message)
        told = notification("notifications/initialized")
        code, _, messages = await send(host, [call(1), told, request(2)])
        assert code == 200
        assert (by_id(messages)[1]["error"]["code"], by_id(messages)[2]["result"]) == (503, {})
        assert (await send(host, [told, told]))[0] == 202
        hold.release({"content": []})
        assert (await running_one).result["content"] == []
        await draining


async def test_answers_of_any_size_leave_on_a_stream(server: ScriptedServer, gateway: Gateway) -> None:
    server.script["echo"] = result({"content": [{"type": "text", "text": "x" * (3 * 2**20)}]})
    host = await gateway.greeted(BATCHING)
    _, kind, told = await send(host, [call(number) for number in range(6)], accept="text/event-stream")
    assert kind == "text/event-stream"
    assert sorted(message["id"] for message in told) == [*range(6)]


@covers("V-ERA-2")
@pytest.mark.parametrize("method", ["server/discover", "subscriptions/listen", "tools/call"])
async def test_what_is_of_the_modern_era_has_no_place_in_a_batch(
    host: Host, server: ScriptedServer, method: str
) -> None:
    said = {"protocolVersion": "2026-07-28", "clientCapabilities": {}}
    meta = {f"io.modelcontextprotocol/{name}": value for name, value in said.items()}
    odd = request(1, method, name="echo", notifications={}, _meta=meta)
    code, kind, messages = await send(host, [odd, call(2)])
    assert (code, kind) == (200, "application/json")
    assert by_id(messages)[1]["error"]["code"] == -32020
    assert by_id(messages)[2]["result"]["structuredContent"] == {"of": 2}
    assert len(server.heard("tools/call")) == 1


@covers("H-MOD-4", "V-ERA-4")
async def test_under_a_version_of_the_modern_era_nothing_is_a_batch(host: Host, server: ScriptedServer) -> None:
    host.revision = "2026-07-28"
    code, _, messages = await send(host, [call(1), call(2)])
    assert (code, [each["error"]["code"] for each in messages]) == (400, [-32600])
    assert server.heard("tools/call") == []
