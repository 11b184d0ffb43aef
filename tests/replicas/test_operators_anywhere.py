"""An operator lists, shows and cancels tasks at any replica, whichever runs their calls."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.asked_store import AskedStore
from helpers.command_line import run
from helpers.gateway.gateway import Gateway
from helpers.gateway.replicas import serve_replicas
from helpers.server import Hold, ScriptedServer, TalkingTool
from helpers.shared_store import SharedServer
from helpers.waiting import bounded, eventually, until
from interaction.operators import ROLES, act, look, look_at_all, stream, tokens
from interaction.rate_limits import CALLS

TASKS, CALLERS, SESSIONS = "/api/v1/tasks", "/api/v1/callers", "/api/v1/sessions"


@pytest.fixture
async def three(server: ScriptedServer, valkey_server: SharedServer, tmp_path: Path) -> AsyncIterator[list[Gateway]]:
    """Three gateways over one store, which know the tokens of operators."""
    sections = {"admin": tokens(tmp_path), "limits": {"rate": [{**CALLS, "burst": 50}]}}
    async with serve_replicas(3, {"reports": server.url}, valkey_server.options(), tmp_path, **sections) as gateways:
        yield gateways


async def test_a_cancel_at_another_replica_reaches_the_server(three: list[Gateway], server: ScriptedServer) -> None:
    server.script["report"] = hold = Hold()
    host = await three[0].greeted()
    task = (await host.start("report"))["taskId"]
    await hold.begun.wait()
    [item] = (await look(three[1], f"{TASKS}?status=working"))["items"]
    shown = await look(three[2], f"{TASKS}/{item['reference']}")
    assert (shown["status"], shown["lease"]["replica"]) == ("working", item["replica"])
    status, body = await act(three[2], f"{TASKS}/{item['reference']}/cancel")
    assert (status, body["status"]) == (200, "cancelled")
    await eventually(lambda: server.cancelled == [hold.turns[0].id])
    assert (await host.task(task))["status"] == "cancelled"
    assert (await look(three[0], f"{TASKS}/{item['reference']}"))["status"] == "cancelled"


async def test_a_stream_has_the_tasks_of_all_replicas_within_two_seconds_and_their_progress(
    three: list[Gateway], server: ScriptedServer
) -> None:
    server.script["report"] = tool = TalkingTool()
    loop = asyncio.get_running_loop()

    async def within(seconds: float, wants: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The event that is wanted, from each stream, so many seconds from now at most."""
        begun, found = loop.time(), dict[str, Any]()
        for events in (here, there):
            while not wants(found := (await events.next("task"))[2]):
                pass
        assert loop.time() - begun < seconds
        return found

    async with stream(three[1], "?kinds=task") as here, stream(three[2], "?kinds=task") as there:
        host = await three[0].greeted()
        task = (await host.start("report"))["taskId"]
        created = await within(2, lambda item: item["status"] == "working")
        [listed] = (await look(three[0], f"{TASKS}?status=working"))["items"]
        assert (created["reference"], created["replica"]) == (listed["reference"], listed["replica"])
        async with bounded():
            await tool.begun.wait()
        for number in (1, 2, 3):
            await tool.note("notifications/progress", progressToken=tool.called.token, progress=number, total=3)
            await within(2, lambda item, text=f"{number}/3": item["progress"] == text)  # type: ignore[misc]
        await tool.finish({"content": []})
        ended = await within(2, lambda item: item["status"] == "completed")
        assert ended["reference"] == created["reference"]
        assert task not in json.dumps(ended)


async def test_a_stream_that_missed_changes_of_other_replicas_gets_a_reset(
    three: list[Gateway], valkey_server: SharedServer
) -> None:
    async with stream(three[1], "?kinds=task") as events:
        valkey_server.ask("CLIENT", "KILL", "TYPE", "pubsub")
        assert (await events.next("reset"))[2] == {"reason": "missed"}
        await (await three[0].greeted()).start("report")
        assert (await events.next("task"))[0] == "task"


async def test_changes_of_others_are_read_only_while_a_stream_is_open_and_only_there(
    three: list[Gateway], server: ScriptedServer, valkey_server: SharedServer
) -> None:
    server.script["report"] = tool = TalkingTool()
    await (await three[0].greeted()).start("report")
    async with bounded():
        await tool.begun.wait()
    with AskedStore(valkey_server) as store:
        await store.taken()
        asked = list[str]()
        await tool.note("notifications/progress", progressToken=tool.called.token, progress=1)
        async with bounded():
            while "rows.swap" not in asked:
                asked += await store.taken()
        async with stream(three[1], "?kinds=task") as events:
            # Written a second later: by then a replica that reads had read the first.
            await tool.note("notifications/progress", progressToken=tool.called.token, progress=2)
            assert (await events.next("task"))[2]["progress"] == "2"
        asked += await store.taken()
    # The run reads the record before a write, and the stream of the host after it. The operator's reads owner and head.
    assert (asked.count("rows.swap"), asked.count("HMGET")) == (2, 2 + 2 + 2)


@pytest.mark.parametrize("query", ["limit=2", "limit=2&status=working", "limit=2&status=completed"])
async def test_the_pages_of_a_list_come_from_any_replica(
    three: list[Gateway], server: ScriptedServer, query: str
) -> None:
    if "completed" not in query:
        server.script["report"] = Hold()
    host = await three[0].greeted()
    for _ in range(5):
        task = (await host.start("report"))["taskId"]
        if "completed" in query:
            await host.ask("tasks/result", {"taskId": task})
    found = await look_at_all(three[1], f"{TASKS}?{query}")
    assert len({item["reference"] for item in found}) == len(found) == 5
    first = await look(three[1], f"{TASKS}?{query}")
    second = await look(three[2], f"{TASKS}?{query}&cursor={first['next']}")
    assert not {item["reference"] for item in first["items"]} & {item["reference"] for item in second["items"]}


async def test_rates_and_tasks_of_a_caller_are_those_of_all_replicas(
    three: list[Gateway], server: ScriptedServer
) -> None:
    server.script["report"] = hold = Hold()
    for gateway in three[:2]:
        await (await gateway.greeted()).start("report")
    await eventually(lambda: len(hold.turns) == 2)
    for gateway in three:
        [caller] = (await look(gateway, CALLERS))["items"]
        limits = {each["limit"]: each for each in caller["limits"]}
        assert (caller["caller"], limits["tasks_per_context"]["used"]) == ("c_anonymous", 2)
        assert limits["tasks_per_context"]["is_shared"] is limits["calls"]["is_shared"] is True
        assert (limits["calls"]["used"], limits["calls"]["most"]) == (2, 50)
        running = limits.get("calls_per_context")
        assert (running is None) is (gateway is three[2])
        assert running is None or (running["used"], running["is_shared"]) == (1, False)


async def test_a_session_that_ends_at_one_replica_is_found_at_none(three: list[Gateway]) -> None:
    host = await three[0].greeted()
    assert (await three[1].again(host).ask("tools/list")).status == 200
    [here] = (await look(three[0], SESSIONS))["items"]
    [there] = (await look(three[1], SESSIONS))["items"]
    assert here["session"] == there["session"]
    assert (here["created"] is None, there["created"]) == (False, None)
    end = f"{SESSIONS}/{here['session']}/end"
    assert (await act(three[2], end))[0] == 404
    assert (await act(three[1], end))[0] == 200

    async def status() -> int:
        return (await host.ask("tools/list")).status

    await until(status, lambda found: found == 404)
    assert (await three[2].again(host).ask("tools/list")).status == 404


async def test_the_command_line_reaches_the_tasks_of_all_replicas(
    three: list[Gateway], server: ScriptedServer, tmp_path: Path
) -> None:
    server.script["report"] = hold = Hold()
    host = await three[0].greeted()
    await host.start("report")
    await hold.begun.wait()

    name = next(name for name, (role, _) in ROLES.items() if role == "operator")

    async def told(number: int, *command: str) -> Any:
        to = ("--admin", three[number].operators_origin, "--token", tmp_path / f"{name}.token", "--json")
        status, out, err = await asyncio.to_thread(run, *command, *to)
        assert status == 0, err
        return json.loads(out)

    [item] = (await told(1, "tasks", "ls", "--unfinished"))["items"]
    shown = await told(2, "tasks", "show", item["reference"])
    assert (shown["status"], shown["lease"]["replica"]) == ("working", item["replica"])
    [caller] = (await told(1, "callers"))["items"]
    assert {name: value for name, value in caller["limits"][0].items() if name in ("limit", "used")} == {
        "limit": "tasks_per_context",
        "used": 1,
    }, caller
    await told(2, "tasks", "cancel", item["reference"])
    await eventually(lambda: server.cancelled == [hold.turns[0].id])
    assert (await told(0, "tasks", "show", item["reference"]))["status"] == "cancelled"
