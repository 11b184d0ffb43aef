"""What a host asked for once holds at whatever replica it comes to."""

import asyncio
from typing import Any

import pytest

from helpers.gateway.gateway import Gateway
from helpers.server import ScriptedServer
from helpers.waiting import bounded, eventually

SET_LEVEL, SUBSCRIBE, UNSUBSCRIBE = "logging/setLevel", "resources/subscribe", "resources/unsubscribe"
UPDATED: dict[str, Any] = {
    "jsonrpc": "2.0",
    "method": "notifications/resources/updated",
    "params": {"uri": "file:///a"},
}


@pytest.fixture(autouse=True)
def capable(server: ScriptedServer) -> None:
    """The server logs, and has resources."""
    server.capabilities |= {"logging": {}, "resources": {"subscribe": True}}


def sessions(server: ScriptedServer, method: str) -> list[str]:
    """The sessions at the server in which that was asked."""
    requests = [each for each in server.requests if isinstance(each.message, dict)]
    return [each.headers["mcp-session-id"] for each in requests if each.message.get("method") == method]


async def test_a_level_holds_in_every_session_at_the_server(three: list[Gateway], server: ScriptedServer) -> None:
    host = await three[0].greeted()
    await three[1].again(host).ask("ping")
    assert (await host.ask(SET_LEVEL, {"level": "error"})).result == {}
    await eventually(lambda: len(set(sessions(server, SET_LEVEL))) == 2)
    # One that it comes to later hears of it from those that know.
    await three[2].again(host).ask("ping")
    await eventually(lambda: len(set(sessions(server, SET_LEVEL))) == 3)
    assert {message["params"]["level"] for message in server.heard(SET_LEVEL)} == {"error"}


async def test_an_update_of_a_resource_is_heard_once_wherever_the_stream_is(
    three: list[Gateway], server: ScriptedServer
) -> None:
    host = await three[0].greeted()
    await host.ask(SUBSCRIBE, {"uri": "file:///a"})
    (subscribed,) = sessions(server, SUBSCRIBE)
    async with three[1].again(host).listen() as get:
        await server.streaming(2)
        async with bounded():
            while not get.of(UPDATED["method"]):
                await server.push(UPDATED, streams=1)
                await asyncio.sleep(0.01)
    assert sessions(server, SUBSCRIBE) == [subscribed]


async def test_a_subscription_that_is_ended_elsewhere_is_ended_where_it_is(
    three: list[Gateway], server: ScriptedServer
) -> None:
    host = await three[0].greeted()
    await host.ask(SUBSCRIBE, {"uri": "file:///a"})
    (subscribed,) = sessions(server, SUBSCRIBE)
    await three[1].again(host).ask(UNSUBSCRIBE, {"uri": "file:///a"})
    await eventually(lambda: subscribed in sessions(server, UNSUBSCRIBE))


async def test_a_replica_that_ends_hands_its_subscriptions_over(three: list[Gateway], server: ScriptedServer) -> None:
    host = await three[0].greeted()
    await host.ask(SUBSCRIBE, {"uri": "file:///a"})
    async with three[1].again(host).listen():
        await server.streaming(2)
        # Sent in order: once this is done there, so is the news of the stream.
        await three[1].again(host).ask(SET_LEVEL, {"level": "error"})
        await eventually(lambda: len(set(sessions(server, SET_LEVEL))) == 2)
        async with bounded():
            await three[0].close()
        await eventually(lambda: len(set(sessions(server, SUBSCRIBE))) == 2)
