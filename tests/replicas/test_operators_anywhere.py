"""An operator lists, shows and cancels tasks at any replica, whichever runs their calls."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helpers.scripted_upstream import Hold, ScriptedServer
from helpers.several_gateways import at, several
from helpers.shared_store import SharedServer
from helpers.waiting import eventually, until
from helpers.whole_gateway import WholeGateway
from interaction.limiting import CALLS
from interaction.operating import act, look, look_at_all, tokens

TASKS, CALLERS, SESSIONS = "/api/v1/tasks", "/api/v1/callers", "/api/v1/sessions"


@pytest.fixture
async def three(
    server: ScriptedServer, valkey_server: SharedServer, tmp_path: Path
) -> AsyncIterator[list[WholeGateway]]:
    """Three gateways over one store, which know the tokens of operators."""
    sections = {"admin": tokens(tmp_path), "limits": {"rate": [{**CALLS, "burst": 50}]}}
    async with several(3, {"reports": server.url}, valkey_server.options(), tmp_path, **sections) as gateways:
        yield gateways


async def test_a_cancel_at_another_replica_reaches_the_server(
    three: list[WholeGateway], server: ScriptedServer
) -> None:
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


@pytest.mark.parametrize("query", ["limit=2", "limit=2&status=working", "limit=2&status=completed"])
async def test_the_pages_of_a_list_come_from_any_replica(
    three: list[WholeGateway], server: ScriptedServer, query: str
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
    three: list[WholeGateway], server: ScriptedServer
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


async def test_a_session_that_ends_at_one_replica_is_found_at_none(three: list[WholeGateway]) -> None:
    host = await three[0].greeted()
    assert (await at(host, three[1]).ask("tools/list")).status == 200
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
    assert (await at(host, three[2]).ask("tools/list")).status == 404
