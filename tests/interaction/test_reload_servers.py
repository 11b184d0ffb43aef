"""Servers that are moved, added or taken away while the gateway runs, and nothing is cut off."""

import asyncio
from typing import Any

import pytest

from helpers.gateway.configuration import GatewayConfig, configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import Host
from helpers.secrets import noted
from helpers.server import Hold, ScriptedServer
from helpers.virtual_time import pass_time
from helpers.waiting import bounded, eventually
from interaction.reloads import DONE, SUCCESS, echoed

# --- servers -------------------------------------------------------------------------------------------------------


async def test_a_server_that_was_moved_is_found_by_new_sessions_and_modern_requests_and_old_ones_go_on(
    server: ScriptedServer, other: ScriptedServer, gateway: Gateway
) -> None:
    old, modern = await gateway.greeted(), gateway.modern()
    assert await echoed(modern) == "the first"
    assert await gateway.reload(configuration({"reports": other.url})) == SUCCESS
    assert [await echoed(host) for host in (old, modern, await gateway.greeted())] == [
        "the first",
        "the other",
        "the other",
    ]


async def test_calls_over_a_server_that_was_moved_end_there_and_then_it_is_let_go(
    server: ScriptedServer, other: ScriptedServer, gateway: Gateway
) -> None:
    hold = server.script["report"] = Hold()
    old, modern = await gateway.greeted(), gateway.modern()
    task = await old.start("report")
    plain = asyncio.create_task(modern.call("report"))
    await eventually(lambda: len(hold.turns) == 2)
    assert await gateway.reload(configuration({"reports": other.url})) == SUCCESS
    assert (await old.task(task["taskId"]))["status"] == "working"
    assert server.verbs("DELETE") == []
    hold.release(DONE)
    async with bounded():
        assert (await plain).result["content"] == []
        assert (await old.ask("tasks/result", {"taskId": task["taskId"]})).result["content"] == []
    assert await old.leave() == 200
    assert await echoed(modern) == "the other"
    # What no host has any more is let go now and then.
    await pass_time(60)
    assert len(server.verbs("DELETE")) == len(server.heard("initialize")) == 2


def keyed(server: ScriptedServer, key: str, **keys: Any) -> GatewayConfig:
    """A server that gets a key."""
    upstream = {"path": "/reports/mcp", "url": server.url, "headers": {"X-Api-Key": key}, **keys}
    return configuration({}, upstreams={"reports": upstream})


async def test_a_secret_that_was_replaced_reaches_the_sessions_that_are_open(server: ScriptedServer) -> None:
    async with serve(keyed(server, "the-first-key")) as gateway:
        host, modern = await gateway.greeted(), gateway.modern()
        for each in (host, modern):
            assert await echoed(each) == "the first"
        before = len(server.heard("initialize"))
        assert await gateway.reload(keyed(server, noted("the-second-key"))) == SUCCESS
        for each in (host, modern):
            assert await echoed(each) == "the first"
        assert len(server.heard("initialize")) == before
        shown = [request.headers["x-api-key"] for request in server.requests]
        assert shown[-2:] == ["the-second-key"] * 2
        assert set(shown[:-2]) == {"the-first-key"}


async def test_a_server_that_was_replaced_gets_later_secrets_too(server: ScriptedServer) -> None:
    async with serve(keyed(server, "the-first-key")) as gateway:
        old = await gateway.greeted()
        assert await gateway.reload(keyed(server, "the-first-key", timeouts={"connect": "4s"})) == SUCCESS
        assert await gateway.reload(keyed(server, noted("the-second-key"), timeouts={"connect": "4s"})) == SUCCESS
        assert await echoed(old) == "the first"
        assert server.requests[-1].headers["x-api-key"] == "the-second-key"


async def test_a_server_is_added_and_another_taken_away_whose_tasks_go_on(
    server: ScriptedServer, other: ScriptedServer, gateway: Gateway
) -> None:
    hold = server.script["report"] = Hold()
    host = await gateway.greeted()
    task = await host.start("report")
    await hold.begun.wait()
    assert await gateway.reload(configuration({"books": other.url})) == SUCCESS
    assert (await host.ask("tasks/get", {"taskId": task["taskId"]})).status == 404
    books = gateway.with_paths(books="/books/mcp")
    assert await echoed(await books.greeted(mount="books")) == "the other"
    hold.release(DONE)
    await gateway.counted("taskgate_tasks_finished_total")
    assert await gateway.reload(configuration({"reports": server.url})) == SUCCESS
    again = await gateway.greeted()
    assert (await again.ask("tasks/result", {"taskId": task["taskId"]})).result["content"] == []
    assert (await books.host("books").ask("ping")).status == 404


async def test_a_path_changes_without_a_new_session_at_the_server(server: ScriptedServer, gateway: Gateway) -> None:
    modern = gateway.modern()
    assert await echoed(modern) == "the first"
    config = configuration({}, upstreams={"reports": {"path": "/elsewhere", "url": server.url}})
    assert await gateway.reload(config) == SUCCESS
    assert (await modern.call("echo")).status == 404
    moved = gateway.with_paths(reports="/elsewhere")
    assert await echoed(moved.modern()) == "the first"
    assert len(server.heard("initialize")) == 1


async def test_the_end_of_a_gateway_ends_its_sessions_at_a_server_that_it_was_about_to_let_go(
    server: ScriptedServer, other: ScriptedServer
) -> None:
    """A session of a host was the last thing to hold it; the gateway's own, in which it is checked, ends too."""
    first, second = (
        configuration({}, upstreams={"reports": {"path": "/reports/mcp", "url": url, "health": {"interval": "1h"}}})
        for url in (server.url, other.url)
    )
    async with serve(first) as gateway:
        await gateway.greeted()
        await eventually(lambda: server.heard("ping"))
        assert await gateway.reload(second) == SUCCESS
    assert len(server.verbs("DELETE")) == len(server.heard("initialize")) == 2


# --- under load ----------------------------------------------------------------------------------------------------

RELOADS = 20


async def plain_calls(host: Any, over: asyncio.Event, answered: list[int]) -> None:
    """Calls of one host, one after the other, each answered with what it asked."""
    while not over.is_set():
        number = len(answered)
        answer = await host.call("echo", {"number": number})
        assert answer.status == 200
        assert answer.result["structuredContent"] == {"number": number}
        answered.append(number)


async def tasks_in_session(host: Host, over: asyncio.Event, ended: list[int]) -> None:
    while not over.is_set():
        number = len(ended)
        task = await host.start("report", {"number": number})
        answer = await host.ask("tasks/result", {"taskId": task["taskId"]})
        assert answer.result["structuredContent"] == {"number": number}
        ended.append(number)


async def modern_tasks(host: Any, over: asyncio.Event, ended: list[int]) -> None:
    while not over.is_set():
        number = len(ended)
        task = await host.start("report", {"number": number})
        found = await host.until(task["taskId"], "completed")
        assert found["result"]["structuredContent"] == {"number": number}
        ended.append(number)


@pytest.mark.real_time
@pytest.mark.timeout(300)
async def test_nothing_is_dropped_by_twenty_reloads_under_load(server: ScriptedServer) -> None:
    """The server moves to and fro between two addresses, rates and turns change; every answer is the right one."""
    async with ScriptedServer() as other:
        other.tools = server.tools

        def config(turn: int) -> GatewayConfig:
            url = (server, other)[turn % 2].url
            upstreams = {"reports": {"path": "/reports/mcp", "url": url, "concurrency": 4 + turn % 3}}
            rates = [{"name": f"rate-{turn % 5}", "scope": "context", "rate": "10000/s", "burst": 10000}]
            tasks = {"upgrade": [{"tool": "report", "mode": "always"}, {"tool": "echo", "mode": "sync"}]}
            return configuration({}, upstreams=upstreams, limits={"rate": rates}, tasks=tasks)

        async with serve(config(0)) as gateway:
            over, counts = asyncio.Event(), [list[int]() for _ in range(4)]
            loads = [
                asyncio.create_task(load)
                for load in (
                    plain_calls(await gateway.greeted(), over, counts[0]),
                    plain_calls(gateway.modern(), over, counts[1]),
                    tasks_in_session(await gateway.greeted(), over, counts[2]),
                    modern_tasks(gateway.modern(), over, counts[3]),
                )
            ]
            for turn in range(1, RELOADS + 1):
                seen = [len(count) for count in counts]
                assert await gateway.reload(config(turn)) == SUCCESS
                await eventually(
                    lambda seen=seen: (
                        any(task.done() for task in loads)
                        or all(len(count) > before for count, before in zip(counts, seen, strict=True))
                    )
                )
            over.set()
            async with bounded():
                await asyncio.gather(*loads)
    assert len(server.heard("tools/call")) >= RELOADS // 2
    assert len(other.heard("tools/call")) >= RELOADS // 2
