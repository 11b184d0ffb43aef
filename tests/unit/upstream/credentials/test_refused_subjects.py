"""Tokens of callers that an endpoint refuses: what becomes of those who waited with others."""

import asyncio
from collections.abc import Callable

import pytest
from aiohttp import web

from helpers.exchange_server import ExchangeServer
from helpers.manual_clock import ManualClock
from helpers.virtual_time import turns
from helpers.waiting import bounded, eventually
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.upstream import failures
from taskgate.upstream.calls import Principal
from taskgate.upstream.credentials.tokens import Granted, Tokens
from taskgate.upstream.settings import GrantKind
from unit.upstream.offices import Office, exchange, somebody

NewOffice = Callable[..., Office]


def refusing(endpoint: ExchangeServer, code: str, status: int = 400) -> None:
    """Have the endpoint say of whatever it refuses that it is that."""

    async def refuse(_: web.BaseRequest) -> web.StreamResponse:
        endpoint.instead = None
        return web.json_response({"error": code}, status=status)

    endpoint.instead = refuse


async def together(endpoint: ExchangeServer, house: Office, *speakers: Principal) -> list[bool]:
    """Whether each got a token, who all asked while the endpoint was busy with the first."""
    endpoint.gate = asyncio.Event()
    asking = [asyncio.create_task(house.call(speakers[0]))]
    async with bounded():
        await endpoint.begun.wait()
        asking += [asyncio.create_task(house.call(principal)) for principal in speakers[1:]]
        await turns()
        endpoint.gate.set()
        got = await asyncio.gather(*asking, return_exceptions=True)
    return [not isinstance(each, UpstreamFailed) for each in got]


@pytest.mark.parametrize("code", ["invalid_grant", "invalid_request", "invalid_token"])
async def test_whoever_waits_with_another_token_asks_again_where_the_first_one_is_refused(
    endpoint: ExchangeServer, office: NewOffice, code: str
) -> None:
    house = office(exchange(endpoint))
    refusing(endpoint, code)
    first, second = somebody(turn=1), somebody(turn=2)
    assert await together(endpoint, house, first, second, first, second, second) == [False, True, False, True, True]
    assert (endpoint.asked, endpoint.refusals, house.got) == (2, [], [False, True])
    await house.call(first)
    assert endpoint.asked == 2, "what the second brought is kept"


async def test_each_token_of_those_who_wait_is_tried_once_and_no_more(
    endpoint: ExchangeServer, office: NewOffice
) -> None:
    house = office(exchange(endpoint))
    speakers = [somebody(turn=turn) for turn in (7, 8, 9, 8, 1, 9, 1)]
    assert await together(endpoint, house, *speakers) == [False, False, False, False, True, False, True]
    assert endpoint.asked == 4
    assert endpoint.refusals == ["invalid_grant: subject_token"] * 3


@pytest.mark.parametrize(
    ("code", "status"), [("invalid_client", 401), ("invalid_target", 400), ("slow_down", 400), ("invalid_grant", 501)]
)
async def test_what_is_not_about_the_token_is_the_same_for_all_who_wait(
    endpoint: ExchangeServer, office: NewOffice, code: str, status: int
) -> None:
    house = office(exchange(endpoint))
    refusing(endpoint, code, status)
    assert await together(endpoint, house, somebody(turn=1), somebody(turn=2)) == [False, False]
    assert endpoint.asked == 1


async def test_the_gateways_own_token_that_is_refused_is_asked_for_once_for_all(
    endpoint: ExchangeServer, office: NewOffice
) -> None:
    house = office(exchange(endpoint, GrantKind.CLIENT_CREDENTIALS))
    refusing(endpoint, "invalid_grant")
    assert await together(endpoint, house, somebody(), somebody("bob")) == [False, False]
    assert endpoint.asked == 1


async def test_a_token_that_expired_meanwhile_is_nobody_elses_loss(endpoint: ExchangeServer, office: NewOffice) -> None:
    house = office(exchange(endpoint))
    expired = somebody(turn=1, good_until=house.clock.now())
    got = await asyncio.gather(
        *(house.call(principal) for principal in (expired, somebody(turn=2), expired)), return_exceptions=True
    )
    assert [not isinstance(each, UpstreamFailed) for each in got] == [False, True, False]
    assert (endpoint.asked, endpoint.refusals) == (1, [])


async def test_whoever_asks_again_is_told_when_all_ends() -> None:
    begun, gate = asyncio.Event(), asyncio.Event()
    asked: list[str | None] = []

    async def ask(principal: Principal) -> Granted:
        asked.append(principal.token)
        if len(asked) == 1:
            await gate.wait()
            raise failures.SubjectRefused(failures.no_credentials(UpstreamReason.REFUSED))
        begun.set()
        return await asyncio.get_running_loop().create_future()

    tokens = Tokens(ask, clock=ManualClock())
    first, second = (asyncio.create_task(tokens.get("key", somebody(turn=turn))) for turn in (1, 2))
    async with bounded():
        await eventually(lambda: asked)
        gate.set()
        await begun.wait()
        await tokens.close()
        got = await asyncio.gather(first, second, return_exceptions=True)
    assert [each.reason for each in got if isinstance(each, UpstreamFailed)] == ["refused", "unreachable"]
    assert asked == ["token-1-of-alice", "token-2-of-alice"]
