"""How servers do, as operators are told: and that one which is away is no reason to send its hosts elsewhere."""

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import serve
from helpers.server import Hold, ScriptedServer, error

NOWHERE = "http://127.0.0.1:9/mcp"
OFTEN = {"method": "ping", "interval": "100ms", "timeout": "1s", "unhealthy_after": 1, "healthy_after": 1}


async def test_a_server_that_is_away_is_seen_and_the_gateway_stays_ready(server: ScriptedServer) -> None:
    upstreams = {
        "reports": {"path": "/reports/mcp", "url": server.url, "health": OFTEN},
        "away": {"path": "/away", "url": NOWHERE, "health": OFTEN},
        "unasked": {"path": "/unasked", "url": NOWHERE},
    }
    async with serve(configuration({}, upstreams=upstreams)) as gateway:
        await gateway.upstream_is("reports", up=True)
        await gateway.upstream_is("away", up=False)
        assert (await gateway.upstream("unasked"))["up"] is None
        assert await gateway.ready() == 200


async def test_a_circuit_that_is_open_is_seen(server: ScriptedServer) -> None:
    section = {"path": "/reports/mcp", "url": NOWHERE, "retries": {"attempts": 1}, "circuit_breaker": {"failures": 1}}
    async with serve(configuration({}, upstreams={"reports": section})) as gateway:
        assert (await gateway.upstream())["circuit"] == "closed"
        assert (await gateway.modern().call("echo")).error["data"]["reason"] == "unreachable"
        assert (await gateway.upstream())["circuit"] == "open"


async def test_the_turns_that_are_taken_and_those_who_wait_are_seen(server: ScriptedServer) -> None:
    hold = server.script["report"] = Hold()
    section = {"path": "/reports/mcp", "url": server.url, "concurrency": 1}
    async with serve(configuration({}, upstreams={"reports": section})) as gateway:
        host = await gateway.greeted()
        for _ in range(3):
            await host.start("report")
        await hold.begun.wait()
        found = await gateway.upstream()
        assert isinstance(found.pop("oldest_task"), int)
        # The list of tools was read, and no host has an answer yet.
        assert found == {
            "state": "up",
            "cause": None,
            "since": None,
            "recent_requests": 0,
            "recent_failures": 0,
            "up": None,
            "circuit": "closed",
            "in_use": 1,
            "limit": 1,
            "queued": 2,
            "held": False,
        }
        hold.release({"content": []})


async def test_a_server_that_was_moved_is_seen_as_it_is_now(server: ScriptedServer) -> None:
    """What the one before still does is not taken for its successor's."""
    away, here = (
        configuration({}, upstreams={"reports": {"path": "/reports/mcp", "url": url, "health": OFTEN}})
        for url in (NOWHERE, server.url)
    )
    server.methods["ping"] = error(-32601, "no such method")
    async with serve(away) as gateway:
        await gateway.upstream_is(up=False)
        assert await gateway.count("taskgate_upstream_state", upstream="reports", state="down") == 1
        assert (await gateway.reload(here)).result == "success"
        await gateway.upstream_is(up=True)
        assert await gateway.count("taskgate_upstream_state", upstream="reports", state="up") == 1
