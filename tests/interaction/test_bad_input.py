"""Malformed messages: one clean answer each, with its id where there is one; nothing is stored, and life goes on."""

import json
from typing import Any

import pytest

from helpers.gateway.gateway import Gateway
from helpers.host.host import Host
from helpers.server import ScriptedServer
from requirements import covers

UNPARSABLE: dict[str, bytes] = {
    "nothing": b"",
    "a space": b" ",
    "half an object": b'{"jsonrpc":"2.0","id":1',
    "two values": b'{"jsonrpc":"2.0","id":1,"method":"ping"}{}',
    "NaN": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":NaN}}',
    "a byte order mark": b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"ping"}',
    "bad UTF-8": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"\xff"}}',
    "UTF-16": '{"jsonrpc":"2.0","id":1,"method":"ping"}'.encode("utf-16"),
    "a control character": b'{"jsonrpc":"2.0","id":1,"method":"pi\x01ng"}',
    "a comment": b'{"jsonrpc":"2.0","id":1,/**/"method":"ping"}',
    "nested too deep": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":' + b"[" * 80 + b"]" * 80 + b"}}",
    "nested without end": b"[" * 200_000,
}
MALFORMED: dict[str, tuple[bytes, Any]] = {
    "null": (b"null", None),
    "a string": (b'"ping"', None),
    "an array": (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', None),
    "an empty array": (b"[]", None),
    "an empty object": (b"{}", None),
    "no version": (b'{"id":3,"method":"ping"}', 3),
    "another version": (b'{"jsonrpc":"1.0","id":3,"method":"ping"}', 3),
    "a version that is a number": (b'{"jsonrpc":2.0,"id":3,"method":"ping"}', 3),
    "no method": (b'{"jsonrpc":"2.0","id":3}', 3),
    "a method that is a number": (b'{"jsonrpc":"2.0","id":"x","method":7}', "x"),
    "an id that is null": (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', None),
    "an id that is a fraction": (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', None),
    "an id that is true": (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', None),
    "an id that is an object": (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', None),
    "a long id": (b'{"jsonrpc":"2.0","id":"' + b"x" * 300 + b'","method":"ping"}', None),
    "both call and response": (b'{"jsonrpc":"2.0","id":3,"method":"ping","result":{}}', 3),
    "two ids": (b'{"jsonrpc":"2.0","id":3,"id":4,"method":"ping"}', None),
    "two methods": (b'{"jsonrpc":"2.0","id":3,"method":"ping","method":"tools/call"}', 3),
    "two params": (b'{"jsonrpc":"2.0","id":3,"method":"ping","params":{},"params":{}}', 3),
    "two names": (b'{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"a","name":"b"}}', 3),
    "two tasks": (b'{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"a","task":{},"task":{}}}', 3),
    "two tokens": (
        b'{"jsonrpc":"2.0","id":3,"method":"tools/call",'
        b'"params":{"name":"a","_meta":{"progressToken":1,"progressToken":2}}}',
        3,
    ),
    "two TTLs": (b'{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"a","task":{"ttl":1,"ttl":2}}}', 3),
    "a lone surrogate as the name": (
        b'{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"\\ud800"}}',
        3,
    ),
}
BAD_PARAMS: dict[str, Any] = {
    "params that are an array": ["echo"],
    "params that are a string": "echo",
    "no name": {},
    "a name that is a number": {"name": 7},
    "a name that is null": {"name": None},
    "a name too long": {"name": "x" * 257},
    "arguments that are an array": {"name": "echo", "arguments": []},
    "a task that is true": {"name": "echo", "task": True},
    "a task that is an array": {"name": "echo", "task": []},
    "a TTL below zero": {"name": "echo", "task": {"ttl": -1}},
    "a TTL that is a fraction": {"name": "echo", "task": {"ttl": 1.5}},
    "a TTL that is true": {"name": "echo", "task": {"ttl": True}},
    "a TTL that is a string": {"name": "echo", "task": {"ttl": "60000"}},
    "a _meta that is an array": {"name": "echo", "_meta": []},
    "a token that is a fraction": {"name": "echo", "_meta": {"progressToken": 1.5}},
    "a token that is an object": {"name": "echo", "_meta": {"progressToken": {}}},
}


@covers("H-HTTP-7", "H-HTTP-8", "T-23")
@pytest.mark.parametrize("body", UNPARSABLE.values(), ids=UNPARSABLE)
async def test_what_is_not_json_gets_400_and_parse_error(host: Host, body: bytes) -> None:
    answer = await host.post(body)
    assert (answer.status, answer.code) == (400, -32700)
    assert answer.message is not None
    assert "id" not in answer.message
    assert (await host.ask("ping")).result == {}


@covers("H-HTTP-3", "H-HTTP-7", "T-23", "V-INIT-7")
@pytest.mark.parametrize(("body", "id"), MALFORMED.values(), ids=MALFORMED)
async def test_what_is_no_message_gets_400_and_its_id_where_it_has_one(
    server: ScriptedServer, host: Host, body: bytes, id: object
) -> None:
    answer = await host.post(body)
    assert (answer.status, answer.code) == (400, -32600)
    assert answer.message is not None
    assert answer.message.get("id") == id
    assert ("id" in answer.message) == (id is not None)
    assert server.heard("tools/call") == []
    assert (await host.ask("ping")).result == {}


@covers("L-CREATE-5")
@pytest.mark.parametrize("params", BAD_PARAMS.values(), ids=BAD_PARAMS)
async def test_wrong_parameters_get_their_id_and_invalid_params(
    server: ScriptedServer, gateway: Gateway, host: Host, params: Any
) -> None:
    answer = await host.ask("tools/call", params, id="mine")
    assert (answer.status, answer.code) == (200, -32602)
    assert answer.message is not None
    assert answer.message["id"] == "mine"
    assert server.heard("tools/call") == []
    assert await gateway.count("taskgate_tasks_started_total") == 0


@pytest.mark.parametrize("params", [None, {}, {"protocolVersion": 1}, {"protocolVersion": None}, [], "x"])
async def test_an_initialize_that_names_no_revision_is_refused(gateway: Gateway, params: Any) -> None:
    answer = await gateway.host().ask("initialize", params)
    assert (answer.status, answer.code) == (200, -32602)


async def test_nothing_of_a_bad_message_is_told_back(host: Host) -> None:
    planted = "tok3n-of-mine"
    for body in (planted, json.dumps({planted: planted}), f'{{"jsonrpc":"2.0","id":1,"method":"{planted}"}}'):
        assert planted not in (await host.post(body.encode())).text


@covers("H-HTTP-7")
async def test_a_body_that_is_too_large_gets_413(host: Host) -> None:
    assert (await host.post(b" " * (4 * 1024 * 1024 + 1))).status == 413
    assert (await host.ask("ping")).result == {}


@covers("H-HTTP-7", "T31")
@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-16"]
)
async def test_a_body_of_another_type_gets_415(host: Host, kind: str) -> None:
    assert (await host.post(b"{}", headers={"Content-Type": kind})).status == 415


@covers("H-HTTP-1")
@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1"])
async def test_a_foreign_origin_gets_403_on_every_method(gateway: Gateway, host: Host, origin: str) -> None:
    head = {"Origin": origin, "Mcp-Session-Id": host.session or ""}
    statuses = []
    for method in ("POST", "GET", "DELETE"):
        async with gateway.http.request(method, host.url, headers=head) as response:
            statuses.append(response.status)
    assert statuses == [403, 403, 403]
    assert (await host.ask("ping", headers={"Origin": host.url.removesuffix("/reports/mcp")})).result == {}


async def test_no_answer_of_a_mount_is_for_pages_of_other_origins(gateway: Gateway, host: Host) -> None:
    own = host.url.removesuffix("/reports/mcp")
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "mcp-session-id"}
    for method, head in (("POST", {}), ("GET", {}), ("DELETE", {}), ("OPTIONS", asked)):
        for origin in (own, "http://evil.example"):
            async with gateway.http.request(method, host.url, headers={**head, "Origin": origin}) as response:
                assert [name for name in response.headers if name.lower().startswith("access-control")] == []
    assert not any(name.lower().startswith("access-control") for name in (await host.ask("ping")).headers)


@covers("T30")
async def test_a_name_that_was_rebound_gets_421(host: Host) -> None:
    assert (await host.ask("ping", headers={"Host": "evil.example"})).status == 421


@pytest.mark.parametrize("path", ["/", "/reports", "/reports/mcp//", "/reports//mcp", "/reports/mcp%2f", "/other/mcp"])
async def test_another_path_gets_404(gateway: Gateway, host: Host, path: str) -> None:
    host.url = host.url.removesuffix("/reports/mcp") + path
    assert (await host.ask("ping")).status == 404


async def test_a_path_with_a_slash_at_its_end_is_the_same(gateway: Gateway, host: Host) -> None:
    host.url += "/"
    assert (await host.ask("ping")).result == {}


async def test_a_response_that_answers_nothing_is_accepted_and_dropped(host: Host) -> None:
    assert (await host.post(b'{"jsonrpc":"2.0","id":99,"result":{}}')).status == 202
