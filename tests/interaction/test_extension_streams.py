"""Requests of extensions that last: their bounds are their own, and they end when their hosts leave."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.modern_schema import SUBSCRIPTION
from helpers.server import Hold, ScriptedServer, Turn, event, note, open_stream
from helpers.waiting import eventually
from requirements import covers

EVENTS = "io.modelcontextprotocol/events"
ACTIVE = "notifications/events/active"
eras = pytest.mark.parametrize("era", ["legacy", "modern"])


class EventStream:
    """A reply that says that the stream is active, and nothing more until it is `over`."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.over = asyncio.Event()

    async def __call__(self, turn: Turn) -> web.StreamResponse:
        self.turns.append(turn)
        response = await open_stream(turn.request)
        await response.write(event(note(ACTIVE, cursor="c", _meta={SUBSCRIPTION: turn.id})))
        await self.over.wait()
        await response.write(event(turn.answer({"done": True})))
        await response.write_eof()
        return response


@asynccontextmanager
async def streaming(era: str, **sections: Any) -> AsyncIterator[tuple[ScriptedServer, EventStream, Gateway]]:
    """A server of events of that era, which carry; `sections` are of the configuration."""
    server = ScriptedServer(era)
    server.capabilities = {"tools": {}, "events": {}}
    stream = EventStream()
    server.methods["events/stream"] = stream
    async with server:
        upstream = {
            "path": "/reports/mcp",
            "url": server.url,
            "protocol_version": "2025-11-25" if era == "legacy" else "2026-07-28",
            "extensions": {EVENTS: "allow"},
            **sections.pop("upstream", {}),
        }
        config = configuration({"reports": server.url}, upstreams={"reports": upstream}, **sections)
        async with serve(config) as gateway:
            yield server, stream, gateway


async def meet(gateway: Gateway, era: str) -> Any:
    """A host of that era that has met the server."""
    if era == "legacy":
        return await gateway.greeted()
    host = gateway.modern(tasks=False)
    await host.discover()
    return host


@covers("X-EXT-32")
@eras
async def test_a_stream_outlasts_the_bounds_of_a_request_and_ends_with_its_result(era: str) -> None:
    bounds = {"timeouts": {"call": "200ms", "first_byte": "5s"}}
    async with streaming(era, upstream=bounds) as (server, stream, gateway):
        server.methods["events/list"] = Hold()
        host = await meet(gateway, era)
        async with host.asking("events/stream", {"name": "x"}) as asked:
            active = await asked.until(ACTIVE)
            # A request that began later meets the bound that the stream has not.
            assert (await host.ask("events/list")).code == -32603
            stream.over.set()
            result = await asked.result()
    assert active["params"]["cursor"] == "c"
    assert result["done"] is True


@covers("X-EXT-43")
async def test_a_stream_is_over_for_its_server_when_its_host_leaves() -> None:
    async with streaming("modern") as (server, _, gateway):
        host = await meet(gateway, "modern")
        async with host.asking("events/stream", {"name": "x"}) as asked:
            await asked.until(ACTIVE)
        assert server.era == "modern"
        await server.leaving("events/stream")


async def test_a_stream_of_a_session_is_over_for_its_server_when_its_host_cancels_it() -> None:
    """A host of that era that only leaves may come back to the stream."""
    async with streaming("legacy") as (server, stream, gateway):
        host = await meet(gateway, "legacy")
        async with host.asking("events/stream", {"name": "x"}, id="mine") as asked:
            await asked.until(ACTIVE)
            await host.tell("notifications/cancelled", {"requestId": "mine"})
            await eventually(lambda: server.cancelled == [stream.turns[0].id])


@covers("X-EXT-32")
@eras
async def test_streams_have_a_cap_of_their_own_that_leaves_others_alone(era: str) -> None:
    async with streaming(era, server={"max_streams_per_context": 1}) as (_, stream, gateway):
        host = await meet(gateway, era)
        async with host.asking("events/stream", {"name": "x"}) as asked:
            await asked.until(ACTIVE)
            assert (await host.ask("events/stream", {"name": "y"})).code == 429
            listening = host.listen() if era == "legacy" else host.listen(toolsListChanged=True)
            async with listening:
                assert (await host.ask("tools/list")).result["tools"]
            stream.over.set()
            await asked.result()
        stream.over.set()
        assert (await host.ask("events/stream", {"name": "y"})).result["done"] is True
        assert len(stream.turns) == 2
