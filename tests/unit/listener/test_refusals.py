"""A request that is plain HTTP and not for us is refused by a fixed answer, and its connection can be used again."""

import json
from typing import Any

import pytest

from helpers.host.raw import get, post, request_head
from taskgate.streams.exchange import Admission, HttpMethod
from unit.listener.gate import LONG_BODY, PLANTED, Gate, opened

NO_HOST = "Host not allowed: see server.allowed_hosts"
NO_ORIGIN = "Origin not allowed: see server.allowed_origins"
NO_PATH = "No server is mounted at this path"
NO_MEDIA = "The body must be application/json in UTF-8"
NO_ACCEPT = "The Accept header must allow application/json or text/event-stream; for GET, text/event-stream"
NO_EXPECTATION = "Unsupported Expect header: only 100-continue is supported"

REFUSALS: dict[str, tuple[bytes, int, str | None, str]] = {
    "another Host": (post(host="evil.example"), 421, "bad_host", NO_HOST),
    "the Host with another port": (post(host="gate.example:81"), 421, "bad_host", NO_HOST),
    "a Host with a user": (post(host="user@gate.example"), 421, "bad_host", NO_HOST),
    "a page from elsewhere": (post(Origin="https://evil.example"), 403, "bad_origin", NO_ORIGIN),
    "a page without an origin": (post(Origin="null"), 403, "bad_origin", NO_ORIGIN),
    "a page over another scheme": (post(Origin="http://app.example"), 403, "bad_origin", NO_ORIGIN),
    "an allowed page and another": (
        post(Origin="https://app.example\r\nOrigin: https://evil.example"),
        403,
        "bad_origin",
        NO_ORIGIN,
    ),
    "another path": (post(path=f"/{PLANTED}"), 404, "unknown_path", NO_PATH),
    "the root": (get("/"), 404, "unknown_path", NO_PATH),
    "an encoded path": (post(path="/%6dcp"), 404, "unknown_path", NO_PATH),
    "an encoded slash": (post(path="/other%2Fmcp"), 404, "unknown_path", NO_PATH),
    "a double slash": (post(path="//mcp"), 404, "unknown_path", NO_PATH),
    "a slash at the end": (post(path="/mcp/"), 404, "unknown_path", NO_PATH),
    "dots": (post(path="/other/../mcp"), 404, "unknown_path", NO_PATH),
    "another case": (post(path="/MCP"), 404, "unknown_path", NO_PATH),
    "a fragment": (post(path="/mcp#x"), 404, "unknown_path", NO_PATH),
    "a whole URL with another path": (post(path="http://gate.example/nowhere"), 404, "unknown_path", NO_PATH),
    "a whole URL without a path": (post(path="http://gate.example"), 404, "unknown_path", NO_PATH),
    "a whole URL of a file": (post(path="ftp://gate.example/mcp"), 404, "unknown_path", NO_PATH),
    "a whole URL of another host": (post(path="http://evil.example/mcp"), 421, "bad_host", NO_HOST),
    "a whole URL with a user": (post(path="http://user@gate.example/mcp"), 421, "bad_host", NO_HOST),
    "the operators' page": (get("/metrics"), 404, "unknown_path", NO_PATH),
    "text": (post(Content_Type="text/plain"), 415, "media_type", NO_MEDIA),
    "a form": (post(Content_Type="application/x-www-form-urlencoded"), 415, "media_type", NO_MEDIA),
    "no type": (post(Content_Type=""), 415, "media_type", NO_MEDIA),
    "another charset": (post(Content_Type="application/json; charset=utf-16"), 415, "media_type", NO_MEDIA),
    "a type that begins alike": (post(Content_Type="application/json-patch+json"), 415, "media_type", NO_MEDIA),
    "a compressed body": (post(Content_Encoding="gzip"), 415, "media_type", NO_MEDIA),
    "a body compressed twice": (post(Content_Encoding="identity, br"), 415, "media_type", NO_MEDIA),
    "nothing acceptable": (post(Accept="text/html"), 406, "not_acceptable", NO_ACCEPT),
    "both excluded": (post(Accept="*/*;q=0"), 406, "not_acceptable", NO_ACCEPT),
    "GET for JSON": (get(Accept="application/json"), 406, "not_acceptable", NO_ACCEPT),
    "two sessions": (
        post(Mcp_Session_Id=f"{PLANTED}\r\nMCP-Session-Id: other"),
        400,
        "header_mismatch",
        "A header was sent with two values",
    ),
    "two versions": (
        post(MCP_Protocol_Version="2025-11-25\r\nMcp-Protocol-Version: 2025-06-18"),
        400,
        "header_mismatch",
        "A header was sent with two values",
    ),
    "an expectation": (post(Expect="miracles"), 417, None, NO_EXPECTATION),
}


def refused_body(request: bytes, status: int, reason: str | None, text: str) -> bytes:
    """What a refusal says: a JSON-RPC error to a POST, a text to all else."""
    if not request.startswith(b"POST"):
        return f"{text}\n".encode()
    data = {} if reason is None else {"data": {"origin": "gateway", "reason": reason}}
    code = status if status in (429, 503) else -32600
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": text, **data}}
    return json.dumps(error, separators=(",", ":")).encode()


@pytest.mark.parametrize(("request_bytes", "status", "reason", "text"), REFUSALS.values(), ids=REFUSALS)
async def test_a_refusal_is_fixed_and_leaves_the_connection_usable(
    gate: Gate, request_bytes: bytes, status: int, reason: str | None, text: str
) -> None:
    async with gate.host() as host:
        answer = await host.ask(request_bytes)
        assert (answer.status, answer.body) == (status, refused_body(request_bytes, status, reason, text))
        assert set(answer.headers) == {"date", "server", "content-length", "content-type"}
        assert gate.engine.seen == []
        assert (await host.ask(post())).status == 200
    assert gate.emitted.refused() == ([reason] if reason else [])
    route = "other" if status == 404 else "mcp"
    verb = request_bytes.split(b" ")[0].decode()
    assert gate.emitted.answered() == [(route, verb, status), ("mcp", "POST", 200)]


@pytest.mark.parametrize("method", ["PUT", "PATCH", "OPTIONS", "TRACE"])
async def test_another_method_is_told_which_there_are(gate: Gate, method: str) -> None:
    async with gate.host() as host:
        answer = await host.ask(request_head(method, "/mcp", Host="gate.example"))
        assert (answer.status, answer.headers["allow"], answer.body) == (
            405,
            "POST, GET, DELETE",
            b"Method not allowed\n",
        )
        assert (await host.ask(post())).status == 200
    assert gate.emitted.answered() == [("mcp", "_OTHER", 405), ("mcp", "POST", 200)]


async def test_head_is_another_method_and_is_answered_without_a_body(gate: Gate) -> None:
    async with gate.host() as host:
        await host.send(request_head("HEAD", "/mcp", Host="gate.example"))
        answer = await host.answer(bodiless=True)
        assert (answer.status, answer.headers["allow"]) == (405, "POST, GET, DELETE")
        assert (await host.ask(post())).status == 200


async def test_a_request_without_a_host_in_http_1_0_is_for_nobody(gate: Gate) -> None:
    async with gate.host() as host:
        answer = await host.ask("GET /mcp HTTP/1.0\r\nAccept: text/event-stream\r\n\r\n")
        assert (answer.status, answer.headers["connection"]) == (421, "close")
        assert await host.at_end()


async def test_the_first_check_that_fails_decides(gate: Gate) -> None:
    async with gate.host() as host:
        everything = {"host": "evil.example", "Origin": "null", "Content_Type": "text/plain", "Accept": "text/html"}
        assert (await host.ask(post(path="/nowhere", **everything))).status == 421
        everything["host"] = "gate.example"
        assert (await host.ask(post(path="/nowhere", **everything))).status == 403


async def test_a_refusal_before_the_body_has_come_ends_the_connection(gate: Gate) -> None:
    async with gate.host() as host:
        answer = await host.ask(post(path="/nowhere", Content_Length="100"))
        assert (answer.status, answer.headers["connection"]) == (404, "close")
        await host.send(PLANTED)
        assert await host.at_end()
    assert gate.engine.seen == []


ADMITTED: dict[str, tuple[bytes, dict[str, Any]]] = {
    "the usual": (post('{"a":1}'), {"method": HttpMethod.POST, "accepts_stream": True}),
    "the name of the host in capitals": (post(host="GATE.example"), {}),
    "an allowed page": (post(Origin="https://APP.example"), {}),
    "a query": (post(path="/mcp?x=%2F"), {"path": "/mcp"}),
    "a whole URL": (post(path="http://gate.example/mcp?x=/y"), {"path": "/mcp", "query": "x=/y"}),
    "a whole URL and the Host of another": (post(path="HTTPS://Gate.Example/mcp", host="evil.example"), {}),
    "another mount": (post(path="/other/mcp"), {"path": "/other/mcp"}),
    "a charset": (post(Content_Type='Application/JSON; charset="UTF-8"'), {}),
    "an encoding that changes nothing": (post(Content_Encoding="identity"), {}),
    "no Accept": (post(Accept=""), {"accepts_json": True, "accepts_stream": True}),
    "JSON only": (post(Accept="application/json"), {"accepts_json": True, "accepts_stream": False}),
    "a stream only": (post(Accept="text/event-stream"), {"accepts_json": False, "accepts_stream": True}),
    "Accept in two headers": (
        post(Accept="application/json\r\nAccept: text/event-stream"),
        {"accepts_json": True, "accepts_stream": True},
    ),
    "GET": (get(), {"method": HttpMethod.GET}),
    "DELETE": (request_head("DELETE", "/mcp", Host="gate.example"), {"method": HttpMethod.DELETE}),
    "a session and a version": (
        post(MCP_Session_Id="!~a", mcp_protocol_version="2025-11-25"),
        {"host_session": "!~a", "revision": "2025-11-25"},
    ),
    "a session that cannot be one": (post(Mcp_Session_Id="a b"), {"host_session": "?"}),
    "a session that is too long": (post(Mcp_Session_Id="a" * 257), {"host_session": "?"}),
    "a session that is not ASCII": (post(Mcp_Session_Id="\xe9"), {"host_session": "?"}),
    "an empty session": (post(Mcp_Session_Id=" "), {"host_session": "?"}),
}


@pytest.mark.parametrize(("request_bytes", "expected"), ADMITTED.values(), ids=ADMITTED)
async def test_what_is_admitted_reaches_the_engine(gate: Gate, request_bytes: bytes, expected: dict[str, Any]) -> None:
    async with gate.host() as host:
        answer = await host.ask(request_bytes)
        assert (answer.status, json.loads(answer.body)) == (200, {"answer": 1})
        assert set(answer.headers) == {"date", "server", "content-length", "content-type"}
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["server"] == "taskgate"
    (inbound,), (body,) = gate.engine.seen, gate.engine.bodies
    assert body == request_bytes.partition(b"\r\n\r\n")[2]
    assert {name: getattr(inbound, name) for name in expected} == expected
    assert "host_session" in expected or inbound.host_session is None
    assert isinstance(inbound, Admission)
    assert gate.emitted.refused() == []


async def test_pipelined_requests_are_answered_in_order(gate: Gate) -> None:
    count = 40
    async with gate.host() as host:
        await host.send(b"".join(post(f'{{"number":{number}}}') for number in range(count)))
        answers = [json.loads((await host.answer()).body)["answer"] for _ in range(count)]
    assert answers == list(range(1, count + 1))
    assert [json.loads(body)["number"] for body in gate.engine.bodies] == list(range(count))


async def test_many_pipelined_requests_after_one_whose_body_came_late_are_all_answered(gate: Gate) -> None:
    count = 70
    head, blank, body = post(Expect="100-continue").partition(b"\r\n\r\n")
    async with gate.host() as host:
        await host.send(head + blank)
        assert (await host.head()).status == 100
        assert (await host.ask(body)).status == 200
        await host.send(post() * count)
        assert [(await host.answer()).status for _ in range(count)] == [200] * count


@pytest.mark.parametrize("zeros", [1, 5000])
async def test_a_length_may_begin_with_zeros(zeros: int) -> None:
    async with opened(max_header=8192) as gate, gate.host() as host:
        for _ in range(2):
            assert (await host.ask(post("{}", Content_Length="0" * zeros + "2"))).status == 200
        assert (await host.ask(post("{}", Content_Length="0" * zeros + str(LONG_BODY + 1)))).status == 413


async def test_a_refusal_keeps_its_place_among_pipelined_requests(gate: Gate) -> None:
    async with gate.host() as host:
        await host.send(post() + post(path="/nowhere") + get() + post(Content_Length=str(LONG_BODY + 1)) + post())
        assert [(await host.answer()).status for _ in range(4)] == [200, 404, 200, 413]
        assert await host.at_end()
    assert len(gate.engine.seen) == 2
