"""Requests of the modern era in unusual spellings, and answers as their hosts take them."""

import json
from typing import Any

import pytest

from helpers.gateway.gateway import Gateway
from helpers.host.host import called
from helpers.modern_schema import CAPABILITIES, LEVEL, RELATED, VERSION
from helpers.server import ScriptedServer, stream
from interaction.refusals import refused
from requirements import covers


@covers("V-ERA-1", "B-CONV-9", "V-META-9")
@pytest.mark.parametrize(
    ("plain", "escaped"), [("/", "\\/"), ("protocolVersion", "protocol\\u0056ersion"), ("_", "\\u005f")]
)
async def test_a_name_is_the_same_however_it_is_escaped(
    gateway: Gateway, server: ScriptedServer, plain: str, escaped: str
) -> None:
    host = gateway.modern()
    message = host.written("tools/call", called("echo", {"a": 1}))
    body = json.dumps(message).replace(plain, escaped).encode()
    assert (await host.post(body, host.routing(message))).result["structuredContent"] == {"a": 1}
    (call,) = server.heard("tools/call")
    assert not [name for name in call["params"].get("_meta", {}) if name.startswith("io.modelcontextprotocol/")]


@covers("B-CONV-9", "V-META-9", "T-7", "X-EXT-27")
async def test_the_keys_of_one_hop_stay_at_the_gateway_and_all_others_cross(
    gateway: Gateway, server: ScriptedServer
) -> None:
    own: dict[str, object] = {
        "traceparent": "00-1-2-01",
        "tracestate": "a=b",
        "baggage": "c=d",
        "org.example/x": {"y": [1]},
    }
    own["io.modelcontextprotocol/whatever"] = 1
    of_hop = {RELATED: {"taskId": "x"}, LEVEL: "info", "io.taskgate/other": 1}
    await gateway.modern().call("echo", meta={**own, **of_hop})
    meta = server.heard("tools/call")[0]["params"]["_meta"]
    assert {name: value for name, value in meta.items() if name != "progressToken"} == own


@covers("H-HTTP-7")
@pytest.mark.parametrize("name", [VERSION, CAPABILITIES, LEVEL, "_meta"])
async def test_a_name_that_stands_twice_is_refused(gateway: Gateway, server: ScriptedServer, name: str) -> None:
    host = gateway.modern()
    message = host.written("tools/call", called("echo"))
    text = json.dumps(message)
    doubled = text.replace(
        '"_meta": {', '"_meta": {}, "_meta": {' if name == "_meta" else f'"_meta": {{"{name}": {{}}, "{name}": {{}}, '
    )
    refused(await host.post(doubled.encode(), host.routing(message)), 400, -32600)
    assert server.requests == []


@covers("H-HTTP-4", "H-MOD-13")
@pytest.mark.parametrize(
    ("accept", "streamed"), [("application/json", False), ("text/event-stream", True), ("*/*", True)]
)
async def test_a_host_is_answered_in_the_form_that_it_takes(
    gateway: Gateway, server: ScriptedServer, accept: str, streamed: bool
) -> None:
    server.script["echo"] = stream({"content": []}, progress=2)
    answer = await gateway.modern().call("echo", meta={"progressToken": 1}, headers={"Accept": accept})
    assert (answer.streamed, len(answer.notices)) == (streamed, 2 if streamed else 0)
    assert answer.result["content"] == []


@covers("H-HTTP-4", "M-SUB-1")
async def test_a_host_that_takes_no_stream_cannot_listen(gateway: Gateway) -> None:
    wanted = {"notifications": {"toolsListChanged": True}}
    answer = await gateway.modern().ask("subscriptions/listen", wanted, headers={"Accept": "application/json"})
    refused(answer, 200, -32602)


@covers("V-INIT-10", "H-MOD-11")
@pytest.mark.parametrize("id", ["", "é", "x" * 200, 0, -1, 2**53, "1"], ids=repr)
async def test_an_answer_has_the_id_of_its_request_in_its_type(gateway: Gateway, id: Any) -> None:
    answers = [await gateway.modern().call("echo", id=id), await gateway.modern().ask("server/discover", id=id)]
    assert [(answer.message or {})["id"] for answer in answers] == [id, id]
