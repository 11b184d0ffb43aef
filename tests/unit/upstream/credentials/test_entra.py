"""The token of a caller is exchanged as Entra wants it, and all else is as with RFC 8693."""

from collections.abc import Callable

import pytest

from helpers.exchange_server import ON_BEHALF_OF, ExchangeServer, Terms
from helpers.server import ScriptedServer
from taskgate.upstream.settings import ExchangeProfile
from unit.upstream.offices import Office, exchange, failure, shown, somebody

NewOffice = Callable[..., Office]


@pytest.mark.parametrize(
    ("audience", "scopes", "asked"),
    [
        ("api://server", (), ("api://server/.default",)),
        (None, ("api://server/read", "api://server/write"), ("api://server/read", "api://server/write")),
        ("api://server", ("api://server/read",), ("api://server/read",)),
    ],
)
async def test_the_scopes_name_the_resource(
    server: ScriptedServer,
    endpoint: ExchangeServer,
    office: NewOffice,
    audience: str | None,
    scopes: tuple[str, ...],
    asked: tuple[str, ...],
) -> None:
    endpoint.terms = Terms(grant_type=ON_BEHALF_OF, audience=None, scopes=asked)
    profile = ExchangeProfile.ENTRA
    house = office(exchange(endpoint, profile=profile, audience=audience, scopes=scopes))
    for name in ("alice", "bob", "alice"):
        endpoint.subjects[f"token-1-of-{name}"] = name
        await house.call(somebody(name))
    assert (endpoint.asked, endpoint.refusals) == (2, [])
    assert shown(server) == ["Bearer issued-1.for_alice", "Bearer issued-2.for_bob"]


async def test_a_user_whose_token_is_refused_is_told_to_sign_in(
    server: ScriptedServer, endpoint: ExchangeServer, office: NewOffice
) -> None:
    endpoint.terms = Terms(grant_type=ON_BEHALF_OF, audience=None)
    endpoint.subjects.clear()
    failed = await failure(office(exchange(endpoint, profile=ExchangeProfile.ENTRA)).session(somebody()))
    assert str(failed).endswith(": the user must sign in again in the host")
    assert (endpoint.refusals, server.requests) == (["invalid_grant: assertion"], [])
