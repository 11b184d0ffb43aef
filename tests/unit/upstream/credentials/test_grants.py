"""A token endpoint that is slow, broken or no longer what it was: no token comes of it, and nothing is said of it."""

import asyncio
import json
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import web

from helpers.exchange_server import ACCESS_TOKEN, Answer, ExchangeServer
from helpers.server import ScriptedServer
from helpers.waiting import eventually
from taskgate.upstream.credentials.grants import basic
from unit.upstream.offices import Office, exchange, failure, shown, somebody

NewOffice = Callable[..., Office]
PLANTED = "s3cret-of-the-endpoint"
FINE = {"access_token": PLANTED, "token_type": "Bearer", "issued_token_type": ACCESS_TOKEN, "expires_in": 300}


def says(body: Any = FINE, status: int = 200, **headers: str) -> Answer:
    """These words, whatever is asked."""

    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(status=status, body=text, headers={"Content-Type": "application/json"} | fields)

    return answer


async def hangs_up(request: web.BaseRequest) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def breaks_off(request: web.BaseRequest) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": "999"})
    await response.prepare(request)
    await response.write(json.dumps(FINE).encode())
    assert request.transport is not None
    request.transport.close()
    return response


async def without_end(request: web.BaseRequest) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" " * 2**14)


FAULTS: dict[str, tuple[Answer, str, str]] = {
    "a redirect": (says(status=302, Location="/elsewhere"), "refused", "redirect"),
    "a redirect that keeps the method": (says(status=307, Location="/oauth/token"), "refused", "redirect"),
    "a refusal": (says({"error": "invalid_client"}, 401), "refused", "invalid_client"),
    "a refusal of the token": (says({"error": "invalid_grant"}, 400), "refused", "invalid_grant"),
    "a refusal in words of its own": (says({"error": PLANTED}, 400), "refused", "status"),
    "a refusal that is no text": (says({"error": [1]}, 400), "refused", "status"),
    "a refusal without JSON": (says(b"<html>", 403), "refused", "status"),
    "a fault of its own": (says(status=500), "unreachable", "status"),
    "busy": (says(status=503), "unreachable", "status"),
    "another success": (says(status=201), "refused", "status"),
    "garbage": (says(b"<html>"), "refused", "not_json"),
    "nothing": (says(b""), "refused", "not_json"),
    "a list": (says([FINE]), "refused", "not_json"),
    "bad UTF-8": (says(b'{"access_token":"\xff"}'), "refused", "not_json"),
    "something packed": (says(b"\x1f\x8b\x08", Content_Encoding="gzip"), "refused", "not_json"),
    "no token": (says({"token_type": "Bearer"}), "refused", "no_token"),
    "a number for a token": (says(FINE | {"access_token": 1}), "refused", "no_token"),
    "an empty token": (says(FINE | {"access_token": ""}), "refused", "no_token"),
    "a token with a line end": (says(FINE | {"access_token": "a\r\nX-Admin: yes"}), "refused", "no_token"),
    "a token with a space": (says(FINE | {"access_token": "a b"}), "refused", "no_token"),
    "a token beyond ASCII": (says(FINE | {"access_token": "ä"}), "refused", "no_token"),
    "a token of 9000 letters": (says(FINE | {"access_token": "a" * 9000}), "refused", "no_token"),
    "no type": (says({"access_token": PLANTED}), "refused", "token_type"),
    "a type that is none": (says(FINE | {"token_type": "N_A"}), "refused", "token_type"),
    "a type that needs a proof": (says(FINE | {"token_type": "DPoP"}), "refused", "token_type"),
    "a type that is no text": (says(FINE | {"token_type": 1}), "refused", "token_type"),
    "a token to get others with": (
        says(FINE | {"issued_token_type": "urn:ietf:params:oauth:token-type:refresh_token"}),
        "refused",
        "token_type",
    ),
    "a token of no known kind": (says(FINE | {"issued_token_type": [1]}), "refused", "token_type"),
    "too much": (says(FINE | {"more": "x" * 64 * 1024}), "refused", "too_large"),
    "more than that without an end": (without_end, "refused", "too_large"),
    "an answer that breaks off": (breaks_off, "unreachable", "broken"),
    "no answer": (hangs_up, "unreachable", "broken"),
}


@pytest.mark.parametrize(("answer", "reason", "word"), FAULTS.values(), ids=FAULTS)
async def test_whatever_goes_wrong_nothing_is_sent_to_the_server_and_nothing_told(
    server: ScriptedServer,
    endpoint: ExchangeServer,
    office: NewOffice,
    caplog: pytest.LogCaptureFixture,
    answer: Answer,
    reason: str,
    word: str,
) -> None:
    endpoint.instead = answer
    house = office(exchange(endpoint))
    with caplog.at_level(logging.DEBUG, "taskgate"):
        failed = await failure(house.session(somebody()))
    assert (failed.reason, str(failed)) == (reason, "The gateway could not get credentials for the server")
    assert (server.requests, house.got, endpoint.asked) == ([], [False], 1)
    assert [(record.upstream, record.reason) for record in caplog.records] == [("reports", word)]
    assert PLANTED not in f"{caplog.text} {[vars(record) for record in caplog.records]}"
    endpoint.instead = None
    await house.call(somebody())
    assert house.got == [False, True], "the next call is not hurt"


async def test_what_is_wrong_is_logged_again_once_it_was_right(
    endpoint: ExchangeServer, office: NewOffice, caplog: pytest.LogCaptureFixture
) -> None:
    house = office(exchange(endpoint))
    told: list[str] = []
    for answer in (says(status=503), says(status=503), says(b""), None, says(b"")):
        endpoint.instead = answer
        await (failure(house.session(somebody())) if answer else house.call(somebody()))
        house.clock.advance(timedelta(days=1))
    told += [record.reason for record in caplog.records if record.name == "taskgate.credentials"]
    assert told == ["status", "not_json", "not_json"]


async def test_an_endpoint_that_is_not_there_is_unreachable(
    server: ScriptedServer, endpoint: ExchangeServer, office: NewOffice
) -> None:
    await endpoint.stop()
    house = office(exchange(endpoint))
    assert (await failure(house.session(somebody()))).reason == "unreachable"
    assert (server.requests, house.got) == ([], [False])


async def test_an_endpoint_has_only_so_long(
    server: ScriptedServer, endpoint: ExchangeServer, office: NewOffice
) -> None:
    server.streams = False
    house = office(exchange(endpoint), connect=timedelta(milliseconds=30), first_byte=timedelta(milliseconds=30))
    session = house.session(somebody())
    await session.open()
    before = len(server.requests)
    house.clock.advance(timedelta(days=1))
    endpoint.gate = asyncio.Event()
    failed = await failure(session)
    assert (failed.reason, len(server.requests), house.got) == ("timeout", before, [True, False])


async def test_an_endpoint_that_redirects_is_not_followed_with_the_secret(
    server: ScriptedServer, endpoint: ExchangeServer, office: NewOffice
) -> None:
    async with ExchangeServer() as other:
        for status in (301, 302, 303, 307, 308):
            endpoint.instead = says(status=status, Location=other.url)
            await failure(office(exchange(endpoint)).session(somebody()))
        assert other.asked == 0


@pytest.mark.parametrize("kind", ["bearer", "BEARER"])
async def test_the_type_may_be_written_in_any_case(
    server: ScriptedServer, endpoint: ExchangeServer, office: NewOffice, kind: str
) -> None:
    endpoint.more = {"token_type": kind, "issued_token_type": "urn:ietf:params:oauth:token-type:jwt"}
    await office(exchange(endpoint)).call(somebody())
    assert shown(server) == ["Bearer issued-1.for_alice"]


@pytest.mark.parametrize(
    ("said", "serves"),
    [
        (300, 270),
        (1, 0.9),
        ("300", 270),
        (300.5, 270.45),
        (None, 54),
        ("soon", 54),
        ("-1", 54),
        (True, 54),
        ([], 54),
        (10**30, 77_760),
        ("9999999999", 77_760),
    ],
)
async def test_how_long_a_token_serves(endpoint: ExchangeServer, office: NewOffice, said: Any, serves: float) -> None:
    endpoint.lifetime = said
    house = office(exchange(endpoint))
    await house.call(somebody())
    house.clock.advance(timedelta(seconds=serves - 0.001))
    await house.call(somebody())
    assert endpoint.asked == 1
    house.clock.advance(timedelta(seconds=0.002))
    await house.call(somebody())
    assert endpoint.asked == 2


@pytest.mark.parametrize("said", [0, -5])
async def test_a_token_that_is_over_at_once_is_not_kept(
    server: ScriptedServer, endpoint: ExchangeServer, office: NewOffice, said: int
) -> None:
    endpoint.lifetime = said
    server.streams = False
    await office(exchange(endpoint)).call(somebody())
    assert endpoint.asked == len(server.requests)


async def test_nothing_of_the_environment_goes_to_the_endpoint(
    endpoint: ExchangeServer, office: NewOffice, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password mine\n")
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    await office(exchange(endpoint)).call(somebody())
    assert endpoint.refusals == []


async def test_no_cookie_is_sent_back(endpoint: ExchangeServer, office: NewOffice) -> None:
    seen: list[str | None] = []

    async def with_cookie(request: web.BaseRequest) -> web.StreamResponse:
        seen.append(request.headers.get("Cookie"))
        return await says(Set_Cookie="a=b; Path=/")(request)

    endpoint.instead = with_cookie
    # Cookies of a bare address would not be kept anyway.
    house = office(exchange(endpoint, token_url=endpoint.url.replace("127.0.0.1", "localhost")))
    for _ in range(2):
        await house.call(somebody())
        house.clock.advance(timedelta(days=1))
    assert seen == [None, None]


async def test_no_connection_to_the_endpoint_is_kept(endpoint: ExchangeServer, office: NewOffice) -> None:
    before = asyncio.all_tasks()
    house = office(exchange(endpoint))
    await house.call(somebody())
    await house.close()
    await eventually(lambda: asyncio.all_tasks() <= before)


def test_a_client_is_named_as_the_standard_says() -> None:
    assert basic("a", "b") == "Basic YTpi"
    assert basic("gate way", "s:%+ö") == "Basic Z2F0ZSt3YXk6cyUzQSUyNSUyQiVDMyVCNg=="
