"""Tokens for callers: for whom one is had, how often, and for how long it serves."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

from helpers.exchange_server import ExchangeServer
from helpers.manual_clock import ManualClock
from helpers.recording_listener import RecordingListener
from helpers.server import ScriptedServer
from helpers.upstream_calls import task_call
from helpers.waiting import bounded, eventually
from taskgate.errors import UpstreamFailed
from taskgate.upstream.calls import Principal
from taskgate.upstream.credentials.tokens import Granted, Tokens
from taskgate.upstream.settings import IdentityHeaders
from unit.upstream.offices import CALL, Office, exchange, failure, relay, shown, somebody

NewOffice = Callable[..., Office]


async def test_two_contexts_never_share_a_token(
    server: ScriptedServer, endpoint: ExchangeServer, office: NewOffice
) -> None:
    house = office(exchange(endpoint), identity=IdentityHeaders(context="X-Context"))
    for _ in range(3):
        await asyncio.gather(*(house.call(somebody(name)) for name in ("alice", "bob")))
    assert endpoint.asked == 2
    for request in server.requests:
        token = request.headers["authorization"].removeprefix("Bearer ")
        assert request.headers["x-context"] == f"context-of-{endpoint.owners[token]}"


async def test_whoever_comes_with_other_scopes_gets_a_token_for_those(
    endpoint: ExchangeServer, office: NewOffice
) -> None:
    house = office(exchange(endpoint))
    for scopes in ({"read"}, {"read", "admin"}, {"read"}):
        await house.call(somebody(scopes=frozenset(scopes)))
    assert endpoint.asked == 2


async def test_fifty_calls_at_once_ask_for_one_token(
    server: ScriptedServer, endpoint: ExchangeServer, office: NewOffice
) -> None:
    house = office(exchange(endpoint))
    endpoint.gate = asyncio.Event()
    calls = [asyncio.create_task(house.call(somebody())) for _ in range(50)]
    async with bounded():
        await endpoint.begun.wait()
    assert server.requests == []
    endpoint.gate.set()
    await asyncio.gather(*calls)
    assert (endpoint.asked, len(server.heard("tools/call"))) == (1, 50)


async def test_whoever_leaves_does_not_take_the_token_from_the_others(
    endpoint: ExchangeServer, office: NewOffice
) -> None:
    house = office(exchange(endpoint))
    endpoint.gate = asyncio.Event()
    leaving, staying = (asyncio.create_task(house.call(somebody())) for _ in range(2))
    async with bounded():
        await endpoint.begun.wait()
    leaving.cancel()
    await asyncio.wait((leaving,))
    endpoint.gate.set()
    await staying
    assert endpoint.asked == 1


async def test_a_token_serves_for_nine_tenths_of_its_life(
    server: ScriptedServer, endpoint: ExchangeServer, office: NewOffice
) -> None:
    house = office(exchange(endpoint))
    await house.call(somebody())
    house.clock.advance(timedelta(seconds=269.9))
    await house.call(somebody())
    assert endpoint.asked == 1
    house.clock.advance(timedelta(seconds=0.1))
    await house.call(somebody())
    assert shown(server) == ["Bearer issued-1.for_alice", "Bearer issued-2.for_alice"]


async def test_the_life_of_a_token_begins_when_it_is_asked_for(endpoint: ExchangeServer, office: NewOffice) -> None:
    house = office(exchange(endpoint))
    endpoint.gate = asyncio.Event()
    calling = asyncio.create_task(house.call(somebody()))
    async with bounded():
        await endpoint.begun.wait()
        house.clock.advance(timedelta(seconds=100))
        endpoint.gate.set()
        await calling
    house.clock.advance(timedelta(seconds=170))
    await house.call(somebody())
    assert endpoint.asked == 2


async def test_the_newest_token_of_a_caller_is_the_one_that_is_exchanged(
    endpoint: ExchangeServer, office: NewOffice
) -> None:
    speakers = [somebody(turn=turn) for turn in (1, 2)]
    house = office(exchange(endpoint))
    session = house.session(lambda: speakers[0])
    await relay(session)
    del endpoint.subjects["token-1-of-alice"], speakers[0]
    house.clock.advance(timedelta(minutes=5))
    await relay(session)
    assert (endpoint.asked, endpoint.refusals) == (2, [])


async def test_a_failure_is_not_kept_and_the_next_call_asks_with_its_own_token(
    endpoint: ExchangeServer, office: NewOffice
) -> None:
    house = office(exchange(endpoint))
    await failure(house.session(somebody(turn=9)))
    await house.call(somebody(turn=1))
    assert (endpoint.asked, house.got) == (2, [False, True])


async def test_without_the_cache_every_request_is_made_with_a_new_token(
    server: ScriptedServer, endpoint: ExchangeServer, office: NewOffice
) -> None:
    server.streams = False
    await office(exchange(endpoint, keeps=False)).call(somebody())
    assert endpoint.asked == len(server.requests) == len(shown(server)) == 4


async def test_nothing_is_asked_without_a_token_of_the_caller(
    server: ScriptedServer, endpoint: ExchangeServer, office: NewOffice
) -> None:
    house = office(exchange(endpoint))
    await house.call(somebody())
    before = len(server.requests)
    unknown = Principal(context="context-of-alice")
    expired = somebody("bob", good_until=house.clock.now())
    for principal in (unknown, expired):
        refused = await failure(house.session(principal))
        assert refused.reason == "refused"
        assert str(refused) == ("The gateway could not get credentials for the server: the caller has no valid token")
    assert (endpoint.asked, len(server.requests)) == (1, before)


# --- the end, and what is said of it all


async def test_closing_ends_what_is_being_asked(endpoint: ExchangeServer, office: NewOffice) -> None:
    house = office(exchange(endpoint))
    endpoint.gate = asyncio.Event()
    before = asyncio.all_tasks()
    asking = asyncio.create_task(failure(house.session(somebody())))
    async with bounded():
        await endpoint.begun.wait()
        await house.upstream.close()
        await asking
    await failure(house.session(somebody("bob")))
    assert endpoint.asked == 1
    await eventually(lambda: asyncio.all_tasks() <= before)


async def test_a_call_has_no_more_time_for_having_to_ask(
    server: ScriptedServer, endpoint: ExchangeServer, office: NewOffice
) -> None:
    endpoint.gate = asyncio.Event()
    session = office(exchange(endpoint)).session(somebody())
    with pytest.raises(UpstreamFailed) as failed:
        async with bounded():
            await session.call(task_call("echo", CALL, timedelta(milliseconds=50)), RecordingListener())
    assert (failed.value.reason, failed.value.dispatched) == ("timeout", False)


# --- what is kept


class Asked:
    """Gives out tokens by the name of who asks, one after another."""

    def __init__(self) -> None:
        self.names: list[str] = []

    async def __call__(self, principal: Principal) -> Granted:
        self.names.append(principal.context)
        return Granted(f"{principal.context}-{len(self.names)}", 300)


async def test_only_so_many_tokens_are_kept_and_those_that_are_used() -> None:
    asked = Asked()
    tokens = Tokens(asked, clock=ManualClock(), most=2)
    for name in ("a", "b", "a", "c", "a", "b"):
        await tokens.get(name, Principal(context=name))
    assert asked.names == ["a", "b", "c", "b"]


async def test_a_token_that_came_after_the_refused_one_stays() -> None:
    asked = Asked()
    tokens = Tokens(asked, clock=ManualClock())
    alice = Principal(context="alice")
    first = await tokens.get("key", alice)
    tokens.drop("key", first)
    second = await tokens.get("key", alice)
    tokens.drop("key", first)
    tokens.drop("another key", second)
    assert await tokens.get("key", alice) == second == "alice-2"


async def test_who_waits_for_a_token_when_all_ends_is_told() -> None:
    begun = asyncio.Event()

    async def never(_: Principal) -> Granted:
        begun.set()
        return await asyncio.get_running_loop().create_future()

    tokens = Tokens(never, clock=ManualClock())
    waiting = asyncio.create_task(tokens.get("key", Principal(context="alice")))
    async with bounded():
        await begun.wait()
        await tokens.close()
        with pytest.raises(UpstreamFailed) as failed:
            await waiting
    assert (failed.value.reason, failed.value.dispatched) == ("unreachable", False)
