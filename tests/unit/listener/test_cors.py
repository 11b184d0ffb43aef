"""Pages of origins that the operator lists may call the gateway from a browser; no other page reads anything."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from helpers.host.raw import RawAnswer, RawHost, post, request_head
from requirements import covers
from taskgate.streams.exchange import Exchange, HttpReply
from unit.listener.gate import Gate, opened

ORIGIN = "https://app.example"
READABLE = "Mcp-Session-Id, WWW-Authenticate, Retry-After, RateLimit, RateLimit-Policy"
PRM = "/.well-known/oauth-protected-resource"


def preflight(path: str = "/mcp", origin: str = ORIGIN, **fields: str) -> bytes:
    """What a browser sends before a page's POST."""
    asked = {"Access_Control_Request_Method": "POST", "Access_Control_Request_Headers": "content-type", **fields}
    return request_head("OPTIONS", path, Host="gate.example", Origin=origin, **asked)


async def asked(host: RawHost, head: bytes) -> RawAnswer:
    """The answer to a preflight, which has no body."""
    await host.send(head)
    return await host.answer(bodiless=True)


def cors(answer: RawAnswer) -> dict[str, str]:
    """The header fields of an answer that a browser decides by."""
    return {
        name: value for name, value in answer.headers.items() if name == "vary" or name.startswith("access-control")
    }


def is_readable(answer: RawAnswer) -> bool:
    """Whether a browser lets the page read this answer, and the headers of the protocol."""
    return cors(answer) == {
        "access-control-allow-origin": ORIGIN,
        "access-control-expose-headers": READABLE,
        "vary": "Origin",
    }


@pytest.fixture
async def gate() -> AsyncIterator[Gate]:
    async with opened(cors_origins=frozenset({ORIGIN}), documents={PRM: b"{}"}) as gate:
        yield gate


@covers("T31")
@pytest.mark.parametrize(
    "path", ["/mcp", "/other/mcp", "/mcp?session=1", "/nowhere", "/.well-known/openid-configuration"]
)
async def test_a_preflight_is_answered_by_the_listener_alone(gate: Gate, path: str) -> None:
    async with gate.host() as host:
        answer = await asked(host, preflight(path))
        assert (await host.ask(post(Origin=ORIGIN))).status == 200
    assert (answer.status, answer.body) == (204, b"")
    assert {name.removeprefix("access-control-"): value for name, value in cors(answer).items()} == {
        "allow-origin": ORIGIN,
        "allow-methods": "POST, GET, DELETE",
        "allow-headers": "Accept, Authorization, Content-Type, Last-Event-ID, Mcp-Method, Mcp-Name, "
        "Mcp-Protocol-Version, Mcp-Session-Id, X-API-Key, Traceparent, Tracestate",
        "max-age": "7200",
        "expose-headers": READABLE,
        "vary": "Origin",
    }
    assert len(gate.engine.seen) == 1
    assert gate.emitted.refused() == []


async def test_headers_that_repeat_arguments_are_allowed_by_their_names(gate: Gate) -> None:
    names = "content-type, mcp-param-region,MCP-Param-Tenant_2 , x-other, mcp-param-<script>, mcp-param-"
    async with gate.host() as host:
        answer = await asked(host, preflight(Access_Control_Request_Headers=names))
    assert answer.headers["access-control-allow-headers"].endswith("Tracestate, mcp-param-region, mcp-param-tenant_2")


@pytest.mark.parametrize(
    ("origin", "status"), [("https://evil.example", 403), ("null", 403), ("https://app.example:444", 403)]
)
async def test_a_page_of_another_origin_gets_nothing(gate: Gate, origin: str, status: int) -> None:
    async with gate.host() as host:
        for head in (preflight(origin=origin), post(Origin=origin)):
            answer = await host.ask(head)
            assert (answer.status, cors(answer)) == (status, {})


async def test_a_host_without_an_origin_gets_nothing(gate: Gate) -> None:
    async with gate.host() as host:
        for head in (post(), post(path="/nowhere"), preflight(origin=ORIGIN).replace(b"Origin: ", b"X-Origin: ")):
            assert cors(await host.ask(head)) == {}


async def test_an_origin_that_is_allowed_as_the_gateways_own_gets_nothing() -> None:
    async with opened() as gate, gate.host() as host:
        answer = await host.ask(post(Origin=ORIGIN))
        assert (answer.status, cors(answer)) == (200, {})
        refused = await host.ask(preflight())
        assert (refused.status, cors(refused)) == (405, {})


async def test_two_origins_are_nobodys(gate: Gate) -> None:
    twice = post(Origin=ORIGIN).replace(b"Origin:", b"Origin: https://app.example\r\nOrigin:")
    async with gate.host() as host:
        assert cors(await host.ask(twice)) == {}


async def test_options_without_a_question_of_a_browser_is_no_method(gate: Gate) -> None:
    async with gate.host() as host:
        answer = await host.ask(request_head("OPTIONS", "/mcp", Host="gate.example", Origin=ORIGIN))
    assert answer.status == 405
    assert is_readable(answer)


REFUSED: dict[str, tuple[bytes, int]] = {
    "another path": (post(path="/nowhere", Origin=ORIGIN), 404),
    "another Host": (post(host="evil.example", Origin=ORIGIN), 421),
    "another type": (post(Origin=ORIGIN, Content_Type="text/plain"), 415),
    "no type that is acceptable": (post(Origin=ORIGIN, Accept="text/html"), 406),
    "too large a body": (post(Origin=ORIGIN, Content_Length="100000"), 413),
    "two sessions": (post(Origin=ORIGIN, Mcp_Session_Id="a\r\nMcp-Session-Id: b"), 400),
    "a method of no use": (request_head("PUT", "/mcp", Host="gate.example", Origin=ORIGIN), 405),
}


@pytest.mark.parametrize(("head", "status"), REFUSED.values(), ids=REFUSED)
async def test_a_refusal_of_the_listener_can_be_read(gate: Gate, head: bytes, status: int) -> None:
    async with gate.host() as host:
        answer = await host.ask(head)
    assert answer.status == status
    assert is_readable(answer)


@pytest.mark.parametrize("status", [200, 202, 400, 401, 403, 404, 429, 500, 503])
async def test_an_answer_of_the_gateway_can_be_read_whatever_its_status(status: int) -> None:
    async def script(_: Exchange) -> HttpReply:
        return HttpReply(status, "{}", (("Mcp-Session-Id", "s"),))

    async with opened(script, cors_origins=frozenset({ORIGIN})) as gate, gate.host() as host:
        answer = await host.ask(post(Origin="HTTPS://APP.example"))
    assert (answer.status, answer.headers["mcp-session-id"]) == (status, "s")
    assert is_readable(answer)


async def test_each_request_of_a_connection_has_the_fields_of_its_own_origin(gate: Gate) -> None:
    async with gate.host() as host:
        for _ in range(3):
            assert is_readable(await host.ask(post(Origin=ORIGIN)))
            assert cors(await host.ask(post())) == {}
            assert cors(await host.ask(post(Origin="https://evil.example"))) == {}


async def test_a_large_answer_and_a_stream_can_be_read() -> None:
    async def script(exchange: Exchange) -> HttpReply:
        if exchange.head.path == "/other/mcp":
            exchange.stream()
            await asyncio.sleep(0)
            return HttpReply(body='{"last":1}')
        return HttpReply(body='"' + "a" * 200_000 + '"')

    async with opened(script, cors_origins=frozenset({ORIGIN})) as gate, gate.host() as host:
        for path in ("/mcp", "/other/mcp"):
            answer = await host.ask(post(path=path, Origin=ORIGIN))
            assert answer.status == 200
            assert is_readable(answer)


async def test_a_public_document_stays_for_all_pages(gate: Gate) -> None:
    async with gate.host() as host:
        for answer in (
            await asked(host, preflight(PRM)),
            await host.ask(request_head("GET", PRM, Host="gate.example", Origin=ORIGIN)),
        ):
            assert cors(answer)["access-control-allow-origin"] == "*"
