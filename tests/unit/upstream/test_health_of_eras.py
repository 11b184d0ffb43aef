"""How servers of either era are asked whether they are well, and what is shown to them then."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from helpers.exchange_server import ExchangeServer
from helpers.server import ScriptedServer
from helpers.waiting import eventually
from taskgate.domain.versions import Revision
from taskgate.upstream.settings import Breaker, FixedHeader, GrantKind, IdentityHeaders
from unit.upstream.checking import checks, soon
from unit.upstream.conftest import Caller
from unit.upstream.offices import Office, exchange, shown


@pytest.fixture
async def modern() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer("modern") as server:
        yield server


@pytest.mark.parametrize("revision", [None, Revision.R2026_07_28])
async def test_a_server_without_pings_is_asked_who_it_is(
    modern: ScriptedServer, new_caller_of: Callable[..., Caller], revision: Revision | None
) -> None:
    caller = new_caller_of(modern.url, health=soon(lists_tools=False), revision=revision)
    caller.upstream.open()
    assert await checks(caller, 4) == [(True, True)] * 4
    assert len(modern.heard("server/discover")) >= 3
    assert modern.heard("ping") == []


async def test_a_server_of_the_modern_era_is_asked_for_its_tools(
    modern: ScriptedServer, new_caller_of: Callable[..., Caller]
) -> None:
    caller = new_caller_of(modern.url, health=soon(), revision=None)
    caller.upstream.open()
    assert await checks(caller, 3) == [(True, True)] * 3
    assert len(modern.heard("tools/list")) >= 3


async def test_what_checks_find_out_of_the_era_is_theirs_alone(
    server: ScriptedServer, new_caller_of: Callable[..., Caller]
) -> None:
    caller = new_caller_of(server.url, health=soon(), revision=None)
    caller.upstream.open()
    await checks(caller, 2)
    before = len(server.heard("server/discover"))
    await caller.call()
    assert len(server.heard("server/discover")) > before


# --- credentials -----------------------------------------------------------------------------------------------------


async def test_checks_show_the_gateways_own_credentials(server: ScriptedServer, office: Callable[..., Office]) -> None:
    made = office(FixedHeader(name="X-Key", value="k"), health=soon(), identity=IdentityHeaders(context="X-For"))
    made.upstream.open()
    await eventually(lambda: len(server.heard("tools/list")) >= 2)
    assert (shown(server, "x-key"), shown(server, "x-for")) == (["k"], ["gateway"])


async def test_checks_get_a_token_where_the_gateway_can_have_one(
    server: ScriptedServer, endpoint: ExchangeServer, office: Callable[..., Office]
) -> None:
    endpoint.terms = type(endpoint.terms)(grant_type="client_credentials")
    made = office(exchange(endpoint, GrantKind.CLIENT_CREDENTIALS), health=soon())
    made.upstream.open()
    await eventually(lambda: made.upstream.vitals().up is True)
    assert len(made.got) == 1


async def test_a_check_that_has_no_credentials_to_show_says_nothing_of_the_server(
    server: ScriptedServer, endpoint: ExchangeServer, office: Callable[..., Office]
) -> None:
    made = office(exchange(endpoint, GrantKind.CLIENT_CREDENTIALS), health=soon(unhealthy_after=1), breaker=Breaker())
    await endpoint.stop()
    made.upstream.open()
    await eventually(lambda: len(made.got) >= 3)
    assert (made.upstream.vitals()[:2], server.requests) == ((None, "closed"), [])


async def test_a_server_that_wants_somebodys_token_is_not_checked(
    server: ScriptedServer, endpoint: ExchangeServer, office: Callable[..., Office]
) -> None:
    made = office(exchange(endpoint), health=soon(unhealthy_after=1))
    made.upstream.open()
    await asyncio.sleep(60)
    assert (server.requests, made.upstream.vitals().up) == ([], None)
