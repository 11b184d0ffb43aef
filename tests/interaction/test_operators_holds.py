"""Operators see how each server does, and hold one: new calls are refused, and running ones go on."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Environment, Gateway, serve
from helpers.server import Hold, ScriptedServer
from helpers.waiting import eventually, until
from interaction.operators import OPS, VIEWER, act, look, tokens
from interaction.programs import who, with_program
from interaction.reloads import DONE, SUCCESS, echoed, refused

UPSTREAMS = "/api/v1/upstreams"
REPORTS = f"{UPSTREAMS}/reports"


@pytest.fixture
async def gateway(server: ScriptedServer, other: ScriptedServer, tmp_path: Path) -> AsyncIterator[Gateway]:
    """A gateway that knows the tokens of operators."""
    config = configuration({"reports": server.url, "books": other.url}, admin=tokens(tmp_path))
    async with serve(config, Environment()) as gateway:
        yield gateway


async def test_each_server_is_listed_with_its_load(gateway: Gateway, server: ScriptedServer) -> None:
    server.script["report"] = hold = Hold()
    await (await gateway.greeted()).start("report")
    await hold.begun.wait()
    listed = await look(gateway, UPSTREAMS)
    books, reports = listed["items"]
    assert (books["name"], books["calls"], books["tasks"]) == ("books", 0, 0)
    assert (reports["name"], reports["path"], reports["calls"], reports["tasks"]) == ("reports", "/reports/mcp", 1, 1)
    assert (reports["requests"], reports["waiting"], reports["circuit"]) == (1, 0, "closed")
    assert reports["processes"] is None
    assert await look(gateway, REPORTS) == {**reports, "replica": listed["replica"]}
    assert (await gateway.operators(f"{UPSTREAMS}/unknown", Authorization=VIEWER))[0] == 404


async def test_a_held_server_gets_no_new_call_and_its_running_ones_go_on(
    gateway: Gateway, server: ScriptedServer
) -> None:
    server.script["report"] = hold = Hold()
    host, modern = await gateway.greeted(), gateway.modern()
    task = (await host.start("report"))["taskId"]
    await hold.begun.wait()
    status, held = await act(gateway, f"{REPORTS}/hold")
    assert (status, held["is_held"], held["calls"]) == (200, True, 1)
    assert (await gateway.upstream())["held"] is True
    for each in (await host.call("echo"), await host.call("echo", task={}), await modern.call("echo")):
        assert refused(each) == (429, "queue")
        assert each.error["message"].startswith("An operator holds the server reports: no new call is sent")
    assert (await host.ask("tools/list")).result["tools"]
    assert await echoed(await gateway.greeted(mount="books")) == "the other"
    hold.release(DONE)
    assert (await host.ask("tasks/result", {"taskId": task})).result["content"] == []
    assert await gateway.count("taskgate_queue_rejections_total", upstream="reports", reason="full") == 3
    status, released = await act(gateway, f"{REPORTS}/release")
    assert (status, released["is_held"]) == (200, False)
    assert await echoed(host) == await echoed(modern) == "the first"


async def test_calls_that_wait_stay_in_the_queue_of_a_held_server(server: ScriptedServer, tmp_path: Path) -> None:
    server.script["report"] = hold = Hold()
    section = {"reports": {"path": "/reports/mcp", "url": server.url, "concurrency": 1}}
    async with serve(configuration({}, upstreams=section, admin=tokens(tmp_path))) as gateway:
        host = await gateway.greeted()
        tasks = [(await host.start("report"))["taskId"] for _ in range(2)]
        await hold.begun.wait()
        await act(gateway, f"{REPORTS}/hold")
        hold.release(DONE)
        await host.ask("tasks/result", {"taskId": tasks[0]})
        await until(lambda: look(gateway, REPORTS), lambda found: (found["calls"], found["waiting"]) == (0, 1))
        await act(gateway, f"{REPORTS}/release")
        await eventually(lambda: len(hold.turns) == 2)
        assert (await host.ask("tasks/result", {"taskId": tasks[1]})).result["content"] == []


async def test_a_hold_outlives_a_reload_even_to_another_place(
    gateway: Gateway, server: ScriptedServer, other: ScriptedServer, tmp_path: Path
) -> None:
    await act(gateway, f"{REPORTS}/hold")
    for url in (server.url, other.url, server.url):
        config = configuration({"reports": url, "books": other.url}, admin=tokens(tmp_path))
        assert (await gateway.reload(config)).result in (SUCCESS.result, "unchanged")
        assert (await look(gateway, REPORTS))["is_held"]
    await act(gateway, f"{REPORTS}/release")
    assert await echoed(await gateway.greeted()) == "the first"


async def test_a_hold_outlives_reloads_that_remove_a_server_and_add_it_again(
    gateway: Gateway, server: ScriptedServer, other: ScriptedServer, tmp_path: Path
) -> None:
    await act(gateway, f"{REPORTS}/hold")
    for servers in ({"books": other.url}, {"books": other.url}, {"reports": server.url, "books": other.url}):
        await gateway.reload(configuration(servers, admin=tokens(tmp_path)))
    assert (await look(gateway, REPORTS))["is_held"]
    await act(gateway, f"{REPORTS}/release")
    for servers in ({"books": other.url}, {"reports": server.url, "books": other.url}):
        await gateway.reload(configuration(servers, admin=tokens(tmp_path)))
    assert not (await look(gateway, REPORTS))["is_held"]


async def test_a_viewer_holds_no_server(gateway: Gateway) -> None:
    for path, bearer, expected in (
        (f"{REPORTS}/hold", VIEWER, 403),
        (f"{UPSTREAMS}/unknown/hold", OPS, 404),
        (f"{UPSTREAMS}/unknown/release", OPS, 404),
    ):
        assert (await gateway.operators(path, "POST", Authorization=bearer))[0] == expected
    assert not (await look(gateway, REPORTS))["is_held"]


async def test_a_server_of_programs_is_listed_with_their_number(tmp_path: Path) -> None:
    async with serve(with_program(sections={"admin": tokens(tmp_path)}), Environment()) as gateway:
        host = await gateway.greeted()
        await who(host)
        assert (await look(gateway, REPORTS))["processes"] == 1
