"""What is not one plain HTTP/1.1 request is refused, its connection ends, and nobody behind the door hears of it."""

import json
from typing import Any

import pytest
from aiohttp.http import HttpRequestParser

from helpers.host.raw import RawAnswer, get, post, request_head
from requirements import covers
from taskgate.listener import chunks
from unit.listener.gate import LONG_HEAD, PLANTED, Gate, opened

TOKEN = f"Authorization: Bearer {PLANTED}\r\n"
START = "POST /mcp HTTP/1.1\r\nHost: gate.example\r\n" + TOKEN
JSON = "Content-Type: application/json\r\n"


def text_of(answer: RawAnswer) -> str:
    """What a refusal says: to a POST that was read in a JSON-RPC error, to all else as text."""
    if answer.headers["content-type"] != "application/json":
        return answer.body.decode().removesuffix("\n")
    text: str = json.loads(answer.body)["error"]["message"]
    return text


BAD_REQUESTS = {
    "words that are no request": f"hello {PLANTED}\r\n\r\n",
    "an unknown method": f"BREW /{PLANTED} HTTP/1.1\r\nHost: gate.example\r\n\r\n",
    "the preface of HTTP/2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "no version number": f"GET /mcp HTTP/x\r\n{TOKEN}\r\n",
    "the hello of TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + PLANTED.encode() + b"\r\n\r\n",
    "a space before the colon": f"{START}X-Odd : 1\r\n\r\n",
    "a space in a name": f"{START}X Odd: 1\r\n\r\n",
    "an empty name": f"{START}: 1\r\n\r\n",
    "a line without a colon": f"{START}{PLANTED}\r\n\r\n",
    "a folded line": f"{START}X-Folded: one\r\n  {PLANTED}\r\n\r\n",
    "a folded first line": f"POST /mcp HTTP/1.1\r\n Host: gate.example\r\n{TOKEN}\r\n",
    "NUL in a value": f"{START}X-Odd: a\0b\r\n\r\n",
    "NUL in a name": f"{START}X\0Odd: 1\r\n\r\n",
    "NUL in the path": f"GET /mcp\0 HTTP/1.1\r\nHost: gate.example\r\n{TOKEN}\r\n",
    "a bare CR in a value": f"{START}X-Odd: a\rb\r\n\r\n",
    "bare LF": f"POST /mcp HTTP/1.1\nHost: gate.example\n{TOKEN}Content-Length: 2\n\n{{}}",
    "bare LF in the head's end": f"{START}Content-Length: 2\r\n\n{{}}",
    "no Host": f"POST /mcp HTTP/1.1\r\n{TOKEN}\r\n",
    "two Hosts": f"{START}Host: gate.example\r\n\r\n",
    "two lengths": f"{START}{JSON}Content-Length: 2\r\nContent-Length: 3\r\n\r\n{{}}",
    "one length twice": f"{START}{JSON}Content-Length: 2\r\nContent-Length: 2\r\n\r\n{{}}",
    "a list of lengths": f"{START}{JSON}Content-Length: 2, 2\r\n\r\n{{}}",
    "a negative length": f"{START}{JSON}Content-Length: -2\r\n\r\n{{}}",
    "a length with a sign": f"{START}{JSON}Content-Length: +2\r\n\r\n{{}}",
    "a length in hex": f"{START}{JSON}Content-Length: 0x2\r\n\r\n{{}}",
    "an empty length": f"{START}{JSON}Content-Length:\r\n\r\n{{}}",
    "a length beyond counting": f"{START}{JSON}Content-Length: {'9' * 40}\r\n\r\n{{}}",
    "a length and chunks": f"{START}{JSON}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and a length": f"{START}{JSON}Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n",
    "chunks, then more codings": f"{START}{JSON}Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "chunked twice": f"{START}{JSON}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a coding that is none": f"{START}{JSON}Transfer-Encoding: identity\r\n\r\n{{}}",
    "a coding without chunks": f"{START}{JSON}Transfer-Encoding: gzip\r\n\r\n{{}}",
    "chunks in HTTP/1.0": (
        f"POST /mcp HTTP/1.0\r\nHost: gate.example\r\n{TOKEN}{JSON}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    ),
}


@covers("T26")
@pytest.mark.parametrize("request_bytes", BAD_REQUESTS.values(), ids=BAD_REQUESTS)
async def test_what_cannot_be_read_in_one_way_is_a_bad_request(gate: Gate, request_bytes: str | bytes) -> None:
    async with gate.host() as host:
        answer = await host.ask(request_bytes)
        assert (answer.status, text_of(answer)) == (400, "Bad request")
        assert answer.headers["connection"] == "close"
        assert answer.headers["server"] == "taskgate"
        assert await host.at_end()
    assert gate.engine.seen == []
    assert [(verb, status) for _, verb, status in gate.emitted.answered()] in ([("POST", 400)], [("_OTHER", 400)])
    assert gate.emitted.refused() == []


REFUSED_PROTOCOLS = {
    "zipped chunks": ("Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501, "Not implemented"),
    "chunks of a kind": ("Transfer-Encoding: xchunked, chunked\r\n\r\n0\r\n\r\n", 501, "Not implemented"),
}


@pytest.mark.parametrize(("rest", "status", "text"), REFUSED_PROTOCOLS.values(), ids=REFUSED_PROTOCOLS)
async def test_what_would_change_the_protocol_is_not_implemented(gate: Gate, rest: str, status: int, text: str) -> None:
    async with gate.host() as host:
        answer = await host.ask(START + JSON + rest)
        assert (answer.status, text_of(answer), answer.headers["connection"]) == (status, text, "close")
        assert await host.at_end()
    assert gate.engine.seen == []
    assert gate.emitted.answered() == [("mcp", "POST", status)]


async def test_a_tunnel_is_not_implemented(gate: Gate) -> None:
    async with gate.host() as host:
        answer = await host.ask(f"CONNECT gate.example:443 HTTP/1.1\r\nHost: gate.example\r\n\r\n{PLANTED}")
        assert (answer.status, answer.headers["connection"]) == (501, "close")
        assert await host.at_end()
    assert gate.emitted.answered() == [("other", "_OTHER", 501)]


OFFERS = {
    "of HTTP/2, as Java's": "Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAEA\r\nUpgrade: h2c\r\n",
    "of websockets": "Connection: Upgrade\r\nUpgrade: websocket\r\n",
    "of TLS": "Connection: Upgrade\r\nUpgrade: TLS/1.2, HTTP/1.1\r\n",
    "of two in two lines": "Connection: upgrade\r\nUpgrade: websocket\r\nUpgrade: tcp\r\n",
    "of nothing": "Connection: Upgrade\r\nUpgrade:\r\n",
    "that the connection does not name": "Upgrade: h2c\r\n",
}
BODIES = {
    "counted": "Content-Length: 2\r\n\r\n{}",
    "in chunks": "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("is_split", [False, True], ids=["whole", "byte by byte"])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("offer", OFFERS.values(), ids=OFFERS)
async def test_an_offer_of_another_protocol_is_not_taken_up(gate: Gate, offer: str, body: str, is_split: bool) -> None:
    # RFC 9110, 7.8. What is behind the body is the next request.
    sent = (START + JSON + offer + body + START + JSON + "Content-Length: 3\r\n\r\n{ }").encode()
    async with gate.host() as host:
        for piece in [bytes([each]) for each in sent] if is_split else [sent]:
            await host.send(piece)
        for _ in range(2):
            answer = await host.answer()
            assert answer.status == 200
            assert "upgrade" not in answer.headers
    assert gate.engine.bodies == [b"{}", b"{ }"]


async def test_what_follows_an_offer_without_a_body_is_the_next_request(gate: Gate) -> None:
    offer = get(Connection="Upgrade", Upgrade="websocket")
    async with gate.host() as host:
        assert (await host.ask(offer + post())).status == 200
        assert (await host.answer()).status == 200


async def test_another_protocol_that_was_not_agreed_on_is_a_bad_request(gate: Gate) -> None:
    offer = START + JSON + OFFERS["of HTTP/2, as Java's"] + BODIES["counted"]
    async with gate.host() as host:
        assert (await host.ask(offer)).status == 200
        assert (await host.ask("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")).status == 400
        assert await host.at_end()


@pytest.mark.parametrize("version", [" HTTP/2.0", " HTTP/0.9", ""])
async def test_another_version_of_http_is_not_supported(gate: Gate, version: str) -> None:
    async with gate.host() as host:
        answer = await host.ask(f"GET /mcp{version}\r\nHost: gate.example\r\n{TOKEN}\r\n")
        assert (answer.status, answer.body) == (505, b"HTTP version not supported: use HTTP/1.1\n")
        assert await host.at_end()
    assert gate.engine.seen == []


LARGE_HEADS = {
    "the path": get(f"/mcp?{PLANTED}{'x' * LONG_HEAD}"),
    "one field": get(Authorization=f"Bearer {PLANTED}{'x' * LONG_HEAD}"),
    "the name of a field": get(**{"x" * (LONG_HEAD + 1): PLANTED}),
    "many fields together": get(**{f"X_Filler_{number}": "x" * 100 for number in range(10)}),
    "the number of fields": get(**{f"X{number}": "x" for number in range(101)}),
}


@covers("S-SEC-6")
@pytest.mark.parametrize("head", LARGE_HEADS.values(), ids=LARGE_HEADS)
async def test_a_head_that_is_too_large_is_refused(gate: Gate, head: bytes) -> None:
    async with gate.host() as host:
        answer = await host.ask(head)
        assert (answer.status, answer.body) == (431, b"Request head too large\n")
        assert await host.at_end()
    assert gate.engine.seen == []
    assert gate.emitted.refused() == ["header_too_large"]


async def test_a_head_that_never_ends_is_refused_once_it_is_too_large(gate: Gate) -> None:
    async with gate.host() as host:
        answer = await host.ask("GET /mcp HTTP/1.1\r\n", *(f"X-{n}: {'x' * 90}\r\n" for n in range(12)))
        assert answer.status == 431
        assert await host.at_end()


async def test_a_large_head_is_noticed_in_two_parts_behind_another_request(gate: Gate) -> None:
    # Neither part is too large, and the first comes together with a request that is answered.
    start = request_head("GET", "/mcp", Host="gate.example", X_Filler="x" * 700)[:-2]
    async with gate.host() as host:
        assert (await host.ask(post() + start)).status == 200
        assert (await host.ask(f"X-More: {'x' * 500}\r\n\r\n")).status == 431
        assert await host.at_end()
    assert len(gate.engine.seen) == 1


async def test_a_head_just_within_bounds_passes() -> None:
    async with opened(max_header=4096) as gate, gate.host() as host:
        assert (await host.ask(post(X_Filler="x" * 3800))).status == 200


@pytest.mark.parametrize("length", [2**63, 2**64 - 1], ids=["2**63", "2**64-1"])
@pytest.mark.parametrize(("path", "method", "status"), [("/", "POST", 404), ("/mcp", "PUT", 405)])
async def test_nothing_of_a_body_of_any_length_is_read_as_a_request(
    gate: Gate, length: int, path: str, method: str, status: int
) -> None:
    async with gate.host() as host:
        await host.send(request_head(method, path, Host="gate.example", Content_Length=str(length)) + post())
        answer = await host.answer()
        assert (answer.status, answer.headers["connection"]) == (status, "close")
        assert await host.at_end()
    assert gate.engine.seen == []


async def test_nothing_behind_a_bad_request_is_answered(gate: Gate) -> None:
    async with gate.host() as host:
        answer = await host.ask(BAD_REQUESTS["a length and chunks"], post())
        assert answer.status == 400
        assert await host.at_end()
    assert gate.engine.seen == []


async def test_whatever_a_parser_chokes_on_is_a_bad_request(monkeypatch: pytest.MonkeyPatch) -> None:
    chokes: list[bool] = []

    class Choking:
        def __init__(self, *args: Any, **options: Any) -> None:
            self._parser = HttpRequestParser(*args, **options)

        def feed_data(self, data: bytes) -> Any:
            if chokes:
                raise ValueError(PLANTED)
            return self._parser.feed_data(data)

    monkeypatch.setattr(chunks, "HttpRequestParser", Choking)
    async with opened() as gate, gate.host() as host:
        assert (await host.ask(post())).status == 200
        chokes.append(True)
        assert (await host.ask(post())).status == 400
        assert await host.at_end()


async def test_requests_that_came_together_with_garbage_are_answered_before_it(gate: Gate) -> None:
    async with gate.host() as host:
        await host.send(post() + post() + b"\0\r\n\r\n")
        assert [(await host.answer()).status for _ in range(3)] == [200, 200, 400]
        assert await host.at_end()
    assert len(gate.engine.seen) == 2


async def test_garbage_behind_a_request_is_refused_after_its_answer(gate: Gate) -> None:
    async with gate.host() as host:
        assert (await host.ask(post())).status == 200
        assert (await host.ask(f"{PLANTED}\r\n\r\n")).status == 400
        assert await host.at_end()
    assert len(gate.engine.seen) == 1
    assert gate.emitted.answered() == [("mcp", "POST", 200), ("other", "_OTHER", 400)]
