"""A token endpoint that is slow, broken or no longer what it was: no token comes of it, and nothing is said of it."""

import asyncio
import gzip
import json
import logging
from collections.abc import Callable
from datetime import timedelta
from email.utils import format_datetime
from itertools import pairwise
from typing import Any

import pytest
from aiohttp import web

from helpers.exchange_server import ACCESS_TOKEN, Answer, ExchangeServer
from helpers.server import ScriptedServer
from helpers.waiting import eventually
from taskgate.upstream.credentials.grants import ATTEMPTS
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


REFUSED = "The gateway could not get credentials for the server"
SIGN_IN = f"{REFUSED}: the user must sign in again in the host"
INTERACT = (
    f"{REFUSED}: the identity provider wants the user to act, such as to consent or to confirm a sign-in; "
    "the user must sign in again in the host"
)
TEXTS = {
    "invalid_grant": SIGN_IN,
    "invalid_token": SIGN_IN,
    "interaction_required": INTERACT,
    "login_required": INTERACT,
    "consent_required": INTERACT,
}
"""What a host is told of what its user can do, by the code of the endpoint."""

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
    "busy, by 429": (says(status=429), "unreachable", "status"),
    "no such method": (says(status=501), "unreachable", "status"),
    "another refusal of the token": (says({"error": "invalid_token"}, 400), "refused", "invalid_token"),
    "a user who must act": (says({"error": "interaction_required"}, 400), "refused", "interaction_required"),
    "a user who must log in": (says({"error": "login_required"}, 400), "refused", "login_required"),
    "a user who must consent": (says({"error": "consent_required"}, 400), "refused", "consent_required"),
    "a refusal with a code of Entra": (
        says({"error": "invalid_grant", "error_codes": [65001], "error_description": PLANTED}, 400),
        "refused",
        "invalid_grant AADSTS65001",
    ),
    "a refusal with codes that are none": (
        says({"error": "invalid_grant", "error_codes": [PLANTED]}, 400),
        "refused",
        "invalid_grant",
    ),
    "garbage": (says(b"<html>"), "refused", "not_json"),
    "nothing": (says(b""), "refused", "not_json"),
    "a list": (says([FINE]), "refused", "not_json"),
    "bad UTF-8": (says(b'{"access_token":"\xff"}'), "refused", "not_json"),
    "something packed that breaks off": (says(b"\x1f\x8b\x08", Content_Encoding="gzip"), "refused", "encoding"),
    "something packed otherwise": (says(FINE, Content_Encoding="br"), "refused", "encoding"),
    "more than that packed": (says(gzip.compress(bytes(2**20)), Content_Encoding="gzip"), "refused", "too_large"),
    "no token": (says({"token_type": "Bearer"}), "refused", "no_token"),
    "a number for a token": (says(FINE | {"access_token": 1}), "refused", "no_token"),
    "an empty token": (says(FINE | {"access_token": ""}), "refused", "no_token"),
    "a token with a line end": (says(FINE | {"access_token": "a\r\nX-Admin: yes"}), "refused", "no_token"),
    "a token with a space": (says(FINE | {"access_token": "a b"}), "refused", "no_token"),
    "a token beyond ASCII": (says(FINE | {"access_token": "ä"}), "refused", "no_token"),
    "a token that is too long": (
        says(FINE | {"access_token": "a" * (16 * 1024 + 1)}),
        "refused",
        "too_large credentials.max_token",
    ),
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
    assert (failed.reason, str(failed)) == (reason, TEXTS.get(word.partition(" ")[0], REFUSED))
    assert (server.requests, house.got) == ([], [False])
    assert endpoint.asked == (ATTEMPTS if reason == "unreachable" and answer is not FAULTS["no such method"][0] else 1)
    assert [(record.upstream, record.reason) for record in caplog.records] == [("reports", word)]
    assert PLANTED not in f"{caplog.text} {[vars(record) for record in caplog.records]}"
    endpoint.instead = None
    await house.call(somebody())
    assert house.got == [False, True], "the next call is not hurt"


async def test_an_answer_may_start_with_a_byte_order_mark(
    server: ScriptedServer, endpoint: ExchangeServer, office: NewOffice
) -> None:
    endpoint.instead = says(b"\xef\xbb\xbf" + json.dumps(FINE).encode())
    await office(exchange(endpoint)).call(somebody())
    assert [each.headers["authorization"] for each in server.verbs("POST")][-1] == f"Bearer {PLANTED}"


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


def after(*faults: Answer) -> Answer:
    """Fails in these ways, one after the other, and then grants a token."""
    left = [*faults, says()]

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        return await (left.pop(0) if len(left) > 1 else left[0])(request)

    return answer


BUSY = (says(status=503), says(status=500), says(status=429), hangs_up, breaks_off)


@pytest.mark.parametrize("fault", BUSY, ids=["503", "500", "429", "no answer", "half an answer"])
@pytest.mark.parametrize("times", [1, ATTEMPTS - 1])
async def test_a_request_for_a_token_is_repeated_while_the_endpoint_has_no_answer_for_now(
    server: ScriptedServer, endpoint: ExchangeServer, office: NewOffice, fault: Answer, times: int
) -> None:
    endpoint.instead = after(*[fault] * times)
    house = office(exchange(endpoint))
    await house.call(somebody())
    assert (endpoint.asked, house.got, shown(server)) == (times + 1, [True], [f"Bearer {PLANTED}"])


async def test_the_pauses_between_attempts_grow(endpoint: ExchangeServer, office: NewOffice) -> None:
    loop, moments = asyncio.get_running_loop(), list[float]()

    async def busy(request: web.BaseRequest) -> web.StreamResponse:
        moments.append(loop.time())
        return await says(status=503)(request)

    endpoint.instead = busy
    await failure(office(exchange(endpoint)).session(somebody()))
    pauses = [later - earlier for earlier, later in pairwise(moments)]
    assert len(pauses) == ATTEMPTS - 1
    assert all(most / 2 <= pause < most + 0.1 for pause, most in zip(pauses, (0.25, 0.5, 1.0), strict=True))


@pytest.mark.parametrize("written", ["3", "Thu, 01 Jan 1970 00:00:00 GMT", "soon", "-1"])
async def test_the_endpoint_may_ask_for_a_longer_pause(
    endpoint: ExchangeServer, office: NewOffice, written: str
) -> None:
    house, loop = office(exchange(endpoint)), asyncio.get_running_loop()
    endpoint.instead = after(says(status=429, Retry_After=written))
    began = loop.time()
    await house.call(somebody())
    assert (loop.time() - began >= 3) is (written == "3")


async def test_a_date_in_place_of_seconds_is_a_pause_too(endpoint: ExchangeServer, office: NewOffice) -> None:
    house, loop = office(exchange(endpoint)), asyncio.get_running_loop()
    moment = format_datetime(house.clock.wall() + timedelta(seconds=4), usegmt=True)
    endpoint.instead = after(says(status=503, Retry_After=moment))
    began = loop.time()
    await house.call(somebody())
    assert 2 < loop.time() - began < 6


async def test_a_pause_beyond_the_time_for_a_token_is_not_waited_for(
    server: ScriptedServer, endpoint: ExchangeServer, office: NewOffice
) -> None:
    house, loop = office(exchange(endpoint)), asyncio.get_running_loop()
    endpoint.instead = after(says(status=429, Retry_After="3600"))
    began = loop.time()
    failed = await failure(house.session(somebody()))
    assert (failed.reason, failed.retry_after, endpoint.asked) == ("unreachable", timedelta(hours=1), 1)
    assert (loop.time() - began, server.requests) == (pytest.approx(0, abs=1), [])


@pytest.mark.parametrize(
    "fine",
    [
        {"access_token": PLANTED},
        FINE | {"token_type": None},
        FINE | {"token_type": "BearerToken"},
        FINE | {"token_type": "bearer_token"},
        FINE | {"token_type": "Bearer Token"},
    ],
)
async def test_a_type_that_is_missing_or_any_spelling_of_bearer_is_bearer(
    server: ScriptedServer, endpoint: ExchangeServer, office: NewOffice, fine: dict[str, Any]
) -> None:
    endpoint.instead = says(fine)
    await office(exchange(endpoint)).call(somebody())
    assert shown(server) == [f"Bearer {PLANTED}"]


async def test_201_grants_a_token_too(server: ScriptedServer, endpoint: ExchangeServer, office: NewOffice) -> None:
    endpoint.instead = says(status=201)
    await office(exchange(endpoint)).call(somebody())
    assert shown(server) == [f"Bearer {PLANTED}"]


@pytest.mark.parametrize(("size", "most"), [(7000, 16 * 1024), (7000, 7000)])
async def test_a_token_may_be_as_long_as_its_key_allows(
    server: ScriptedServer, endpoint: ExchangeServer, office: NewOffice, size: int, most: int
) -> None:
    endpoint.instead = says(FINE | {"access_token": "a" * size})
    await office(exchange(endpoint, max_token=most)).call(somebody())
    assert shown(server) == ["Bearer " + "a" * size]


async def test_a_token_beyond_its_key_is_refused_by_the_name_of_the_key(
    endpoint: ExchangeServer, office: NewOffice, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint.instead = says(FINE | {"access_token": "a" * 1025})
    await failure(office(exchange(endpoint, max_token=1024)).session(somebody()))
    assert [record.reason for record in caplog.records] == ["too_large credentials.max_token"]


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
