"""What the gateway shows to a server, as the server sees it, and for whom."""

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from helpers.exchange_server import ExchangeServer, Terms
from helpers.server import ScriptedServer, Turn, in_turn, result, status
from helpers.waiting import eventually
from taskgate.upstream.calls import Principal
from taskgate.upstream.credentials.speaking import written
from taskgate.upstream.credentials.tokens import SPARED
from taskgate.upstream.settings import FixedHeader, GrantKind, IdentityHeaders
from unit.upstream.conftest import settings_for
from unit.upstream.offices import Office, exchange, failure, relay, shown, somebody

NewOffice = Callable[..., Office]


# --- the modes


async def test_without_credentials_nothing_is_shown(server: ScriptedServer, office: NewOffice) -> None:
    await office().call(somebody())
    for request in server.requests:
        assert set(request.headers) <= {
            "host",
            "accept",
            "accept-encoding",
            "user-agent",
            "content-type",
            "content-length",
            "mcp-session-id",
            "mcp-protocol-version",
        }
        assert "alice" not in str(request.headers)


async def test_a_fixed_header_is_on_every_request_and_no_token(server: ScriptedServer, office: NewOffice) -> None:
    house = office(FixedHeader(name="X-Api-Key", value="a key"))
    await house.call(somebody())
    await server.streaming()
    await house.sessions[0].close()
    assert {request.verb for request in server.requests} == {"POST", "GET", "DELETE"}
    assert shown(server, "x-api-key") == ["a key"]
    assert shown(server) == [None]


@pytest.mark.parametrize("mode", ["none", "header", "token"])
async def test_fixed_headers_are_on_every_request_beside_each_mode(
    server: ScriptedServer, endpoint: ExchangeServer, office: NewOffice, mode: str
) -> None:
    modes: dict[str, Any] = {
        "none": (None, None),
        "header": (FixedHeader(name="Authorization", value="Basic YTpi"), "Basic YTpi"),
        "token": (exchange(endpoint), "Bearer issued-1.for_alice"),
    }
    credentials, authorization = modes[mode]
    identity = IdentityHeaders(subject="X-Subject")
    house = office(credentials, headers={"X-Api-Key": "a key", "X-Org": "7"}, identity=identity)
    await house.call(somebody())
    await server.streaming()
    await house.sessions[0].close()
    assert {request.verb for request in server.requests} == {"POST", "GET", "DELETE"}
    assert shown(server, "x-api-key") == ["a key"]
    assert shown(server, "x-org") == ["7"]
    assert shown(server, "x-subject") == ["alice"]
    assert shown(server) == [authorization]


async def test_the_gateways_own_token_is_one_for_everybody(
    server: ScriptedServer, endpoint: ExchangeServer, office: NewOffice
) -> None:
    endpoint.terms = Terms(grant_type="client_credentials", resource="https://reports.internal/mcp")
    house = office(exchange(endpoint, GrantKind.CLIENT_CREDENTIALS))
    for principal in (somebody(), somebody("bob"), Principal(context="anonymous")):
        await house.call(principal)
    assert (endpoint.asked, endpoint.refusals) == (1, [])
    assert shown(server) == ["Bearer issued-1.for_taskgate"]
    assert house.got == [True]


@pytest.mark.parametrize(
    "terms",
    [
        Terms(),
        Terms(resource="https://reports.internal/mcp", audience=None, scopes=()),
        Terms(resource="https://a/b?c=d&e", audience="a b+c%20ä", scopes=("a", "b:c/d")),
        Terms(client=("gate:way", "s+c%t: ö&=")),
    ],
)
async def test_a_callers_token_is_exchanged_as_the_standard_says(
    server: ScriptedServer, endpoint: ExchangeServer, office: NewOffice, terms: Terms
) -> None:
    endpoint.terms = terms
    await office(exchange(endpoint)).call(somebody())
    assert (endpoint.asked, endpoint.refusals) == (1, [])
    assert shown(server) == ["Bearer issued-1.for_alice"]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"client_secret": "another"}, "invalid_client: the client"),
        ({"audience": "https://elsewhere"}, "invalid_target: audience"),
        ({"resource": "https://elsewhere"}, "invalid_target: resource"),
        ({"scopes": ()}, "invalid_scope: scope"),
        ({"kind": GrantKind.CLIENT_CREDENTIALS}, "unsupported_grant_type: grant_type"),
    ],
)
async def test_the_endpoint_of_the_tests_refuses_what_is_wrong(
    endpoint: ExchangeServer, server: ScriptedServer, office: NewOffice, wrong: dict[str, Any], told: str
) -> None:
    house = office(exchange(endpoint, **wrong))
    refused = await failure(house.session(somebody()))
    assert (refused.reason, str(refused)) == ("refused", "The gateway could not get credentials for the server")
    assert (endpoint.refusals, house.got, server.requests) == ([told], [False], [])


# --- a server that does not take them


async def test_a_token_that_is_revoked_early_is_replaced_and_the_call_sent_once_more(
    server: ScriptedServer, endpoint: ExchangeServer, office: NewOffice
) -> None:
    session = office(exchange(endpoint)).session(somebody())
    await relay(session)
    server.script["echo"] = in_turn(status(401), result({"content": []}))
    assert (await relay(session)).error is None
    assert (len(server.heard("tools/call")), endpoint.asked) == (3, 2)
    assert server.requests[-1].headers["authorization"] == "Bearer issued-2.for_alice"


async def test_the_second_refusal_is_the_answer(
    server: ScriptedServer, endpoint: ExchangeServer, office: NewOffice
) -> None:
    session = office(exchange(endpoint)).session(somebody())
    await relay(session)
    server.script["echo"] = status(401)
    refused = await failure(session)
    assert (refused.reason, str(refused)) == ("refused", "The server refused the gateway's credentials")
    assert (len(server.heard("tools/call")), endpoint.asked) == (3, 2)
    del server.script["echo"]
    await relay(session)
    assert (len(server.heard("tools/call")), endpoint.asked) == (4, 2), "a new token is not replaced by a newer one"


async def test_a_server_that_refuses_each_token_gets_one_request_of_a_call_and_one_token_in_a_while(
    server: ScriptedServer, endpoint: ExchangeServer, office: NewOffice
) -> None:
    house = office(exchange(endpoint))
    session = house.session(somebody())
    await relay(session)
    server.script["echo"] = status(401)
    for _ in range(10):
        await failure(session)
    assert (len(server.heard("tools/call")), endpoint.asked) == (1 + 2 + 9, 2)
    house.clock.advance(timedelta(seconds=SPARED))
    await failure(session)
    assert endpoint.asked == 3


@pytest.mark.parametrize("keeps", [True, False])
async def test_a_token_that_was_requested_for_this_request_is_not_replaced(
    server: ScriptedServer, endpoint: ExchangeServer, office: NewOffice, keeps: bool
) -> None:
    server.methods["initialize"] = status(401)
    await failure(office(exchange(endpoint, keeps=keeps)).session(somebody()))
    assert (len(server.heard("initialize")), endpoint.asked) == (1, 1)


async def test_calls_that_are_refused_together_cost_one_new_token(
    server: ScriptedServer, endpoint: ExchangeServer, office: NewOffice
) -> None:
    session = office(exchange(endpoint)).session(somebody())
    await session.open()
    revoked = f"Bearer {endpoint.issued[0]}"

    async def guarded(turn: Turn) -> Any:
        is_revoked = turn.request.headers["Authorization"] == revoked
        return await (status(401) if is_revoked else result({"content": []}))(turn)

    server.script["echo"] = guarded
    answers = await asyncio.gather(*(relay(session) for _ in range(10)))
    assert [answer.error for answer in answers] == [None] * 10
    assert (endpoint.asked, len(server.heard("tools/call"))) == (2, 20)


# --- secrets that are replaced


def guarded_by(name: str, value: str) -> Any:
    """Takes the calls that have this header, and no others."""

    async def answer(turn: Turn) -> Any:
        return await (result({"content": []}) if turn.request.headers.get(name) == value else status(401))(turn)

    return answer


OLD = FixedHeader(name="Authorization", value="Bearer old")
NEW = FixedHeader(name="Authorization", value="Bearer new")


@pytest.mark.parametrize(
    ("old", "new", "name", "seen"),
    [
        ({"credentials": OLD}, {"credentials": NEW}, "authorization", ["Bearer old", "Bearer new"]),
        ({"headers": {"X-Key": "old"}}, {"headers": {"X-Key": "new"}}, "x-key", ["old", "new"]),
    ],
    ids=["credentials", "headers"],
)
async def test_an_open_session_uses_a_new_secret_at_its_next_request(
    server: ScriptedServer, office: NewOffice, old: dict[str, Any], new: dict[str, Any], name: str, seen: list[str]
) -> None:
    house = office(**old)
    session = house.session(somebody())
    await relay(session)
    house.upstream.renew(settings_for(server.url, **new))
    await relay(session)
    assert shown(server, name) == seen
    assert (len(server.heard("initialize")), house.looks) == (1, 0)


async def test_a_server_that_refuses_a_secret_has_the_gateway_look_for_another_and_gets_the_call_again(
    server: ScriptedServer, office: NewOffice
) -> None:
    house = office(OLD)
    session = house.session(somebody())
    await session.open()
    server.script["echo"] = guarded_by("authorization", "Bearer new")
    house.found = settings_for(server.url, credentials=NEW)
    assert (await relay(session)).error is None
    assert (len(server.heard("tools/call")), house.looks) == (2, 1)


@pytest.mark.parametrize("found", [None, "the same", "another that is wrong"])
async def test_a_secret_that_stays_wrong_is_looked_for_once_and_told(
    server: ScriptedServer, office: NewOffice, found: str | None
) -> None:
    house = office(OLD)
    session = house.session(somebody())
    await session.open()
    server.script["echo"] = status(401)
    if found is not None:
        house.found = settings_for(server.url, credentials=OLD if found == "the same" else NEW)
    refused = await failure(session)
    assert str(refused) == "The server refused the gateway's credentials"
    sent = 2 if found == "another that is wrong" else 1
    assert (len(server.heard("tools/call")), house.looks) == (sent, 1)


async def test_a_header_beside_a_token_may_be_what_was_refused(
    server: ScriptedServer, endpoint: ExchangeServer, office: NewOffice
) -> None:
    grant = exchange(endpoint, keeps=False)
    house = office(grant, headers={"X-Key": "old"})
    session = house.session(somebody())
    await session.open()
    server.script["echo"] = guarded_by("x-key", "new")
    house.found = settings_for(server.url, credentials=grant, headers={"X-Key": "new"})
    assert (await relay(session)).error is None
    assert (len(server.heard("tools/call")), house.looks) == (2, 1)


@pytest.mark.parametrize("is_found", [True, False])
async def test_a_client_secret_that_is_refused_is_looked_for_once(
    server: ScriptedServer, endpoint: ExchangeServer, office: NewOffice, is_found: bool
) -> None:
    house = office(exchange(endpoint))
    endpoint.terms = Terms(client=("taskgate", "another secret"))
    if is_found:
        house.found = settings_for(server.url, credentials=exchange(endpoint))
        await house.call(somebody())
    else:
        await failure(house.session(somebody()))
    assert (endpoint.asked, house.looks, house.got) == (1 + is_found, 1, [is_found])


async def test_a_token_of_the_old_secret_is_used_until_it_ends(
    server: ScriptedServer, endpoint: ExchangeServer, office: NewOffice
) -> None:
    house = office(exchange(endpoint))
    await house.call(somebody())
    endpoint.terms = Terms(client=("taskgate", "another secret"))
    house.upstream.renew(settings_for(server.url, credentials=exchange(endpoint)))
    await house.call(somebody())
    assert endpoint.asked == 1
    house.clock.advance(timedelta(hours=1))
    await house.call(somebody())
    assert (endpoint.asked, endpoint.refusals) == (2, [])


@pytest.mark.parametrize(
    "other",
    [
        {"credentials": FixedHeader(name="X-Other", value="new")},
        {"credentials": None},
        {"credentials": NEW, "headers": {"X-More": "new"}},
    ],
)
async def test_settings_of_another_form_leave_a_session_as_it_is(
    server: ScriptedServer, office: NewOffice, other: dict[str, Any]
) -> None:
    house = office(OLD)
    session = house.session(somebody())
    await relay(session)
    house.upstream.renew(settings_for(server.url, **other))
    await relay(session)
    assert shown(server) == ["Bearer old"]


async def test_403_is_no_reason_for_another_token(
    server: ScriptedServer, endpoint: ExchangeServer, office: NewOffice
) -> None:
    session = office(exchange(endpoint)).session(somebody())
    server.script["echo"] = status(403)
    await failure(session)
    del server.script["echo"]
    await relay(session)
    assert endpoint.asked == 1


async def test_a_stream_whose_token_is_refused_is_opened_with_another(
    server: ScriptedServer, endpoint: ExchangeServer, office: NewOffice
) -> None:
    stream, opened = server.get_stream, []

    async def once_refused(request: Any) -> Any:
        opened.append(request.headers["Authorization"])
        return await (status(401)(None) if len(opened) == 1 else stream(request))  # type: ignore[arg-type]

    server.get = once_refused
    session = office(exchange(endpoint)).session(somebody())
    await session.open()
    await server.streaming()
    assert opened == ["Bearer issued-1.for_alice", "Bearer issued-2.for_alice"]


async def test_a_stream_that_is_always_refused_is_asked_for_twice_and_no_more(
    server: ScriptedServer, endpoint: ExchangeServer, office: NewOffice
) -> None:
    async def refuse(request: Any) -> Any:
        return await status(401)(None)  # type: ignore[arg-type]

    server.get = refuse
    session = office(exchange(endpoint)).session(somebody())
    await session.open()
    await eventually(lambda: len(server.verbs("GET")) == 2)
    await relay(session)
    assert len(server.verbs("GET")) == 2


# --- for whom


@pytest.mark.parametrize(
    ("subject", "seen"),
    [
        ("alice", "alice"),
        ('auth0|a:b/c@d.example+e="f"', 'auth0|a:b/c@d.example+e="f"'),
        ("a\r\nX-Admin: yes", "a%0D%0AX-Admin:%20yes"),
        ("a\nb", "a%0Ab"),
        ("\0\x7f\t", "%00%7F%09"),
        ("100%", "100%25"),
        ("%0A", "%250A"),
        ("a,b", "a%2Cb"),
        (" a ", "%20a%20"),
        ("jürgen", "j%C3%BCrgen"),
        ("\u2028😀", "%E2%80%A8%F0%9F%98%80"),
    ],
)
async def test_a_server_is_told_for_whom_in_signs_that_can_do_no_harm(
    server: ScriptedServer, office: NewOffice, subject: str, seen: str
) -> None:
    house = office(identity=IdentityHeaders(context="X-Context", subject="X-Subject", issuer="X-Issuer"))
    await house.call(Principal(context="the-context", subject=subject, issuer=subject))
    assert shown(server, "x-subject") == [seen] == [written(subject)]
    assert shown(server, "x-issuer") == [seen]
    assert shown(server, "x-context") == ["the-context"]
    assert shown(server, "x-admin") == shown(server) == [None]


async def test_a_subject_that_is_not_known_is_left_out(server: ScriptedServer, office: NewOffice) -> None:
    await office(identity=IdentityHeaders(subject="X-Subject")).call(Principal(context="c"))
    assert shown(server, "x-subject") == [None]


async def test_no_secret_is_in_a_log_line_or_an_error(
    server: ScriptedServer,
    endpoint: ExchangeServer,
    office: NewOffice,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG):
        house = office(exchange(endpoint))
        await house.call(somebody())
        server.script["echo"] = status(401)
        texts = [str(await failure(house.session(somebody())))]
        texts += [str(await failure(house.session(somebody("bob", turn=turn)))) for turn in (8, 9)]
    assert [(record.name, record.reason) for record in caplog.records if record.name == "taskgate.credentials"] == [
        ("taskgate.credentials", "invalid_grant")
    ], "said once for all calls"
    everything = "\n".join([*texts, *(f"{record.getMessage()} {vars(record)}" for record in caplog.records)])
    for secret in ("token-", "issued-", "client's secret", "Basic ", "subject_token"):
        assert secret not in everything
    assert "token-1" not in repr(somebody())
