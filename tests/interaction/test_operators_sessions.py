"""Operators list sessions of hosts by references, and end one."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.server import Hold, ScriptedServer
from helpers.waiting import eventually
from interaction.audit_logs import audited, lines, of
from interaction.operators import VIEWER, act, look, tokens

SESSIONS = "/api/v1/sessions"
DONE: dict[str, object] = {"content": []}


@pytest.fixture
async def gateway(server: ScriptedServer, other: ScriptedServer, tmp_path: Path) -> AsyncIterator[Gateway]:
    """A gateway with an audit log, and tokens of operators."""
    config = configuration({"reports": server.url, "books": other.url}, admin=tokens(tmp_path), audit=audited(tmp_path))
    async with serve(config, data_directory=tmp_path / "data", source=lambda: config) as gateway:
        yield gateway


async def test_a_session_is_listed_by_a_reference_and_never_by_its_id(gateway: Gateway, server: ScriptedServer) -> None:
    server.script["report"] = hold = Hold()
    host = await gateway.greeted()
    await host.start("report")
    await hold.begun.wait()
    page = await look(gateway, SESSIONS)
    [item] = page["items"]
    assert (item["caller"], item["upstream"], item["protocol"]) == ("c_anonymous", "reports", "2025-11-25")
    assert (item["streams"], item["tasks"], page["next"]) == (0, 1, None)
    assert item["created"] <= item["last_used"] <= page["now"]
    assert host.session is not None
    assert host.session not in json.dumps(page)


async def test_an_ended_session_is_not_found_and_its_task_goes_on(
    gateway: Gateway, server: ScriptedServer, tmp_path: Path
) -> None:
    server.script["report"] = hold = Hold()
    host = await gateway.greeted()
    task = (await host.start("report"))["taskId"]
    await hold.begun.wait()
    [item] = (await look(gateway, SESSIONS))["items"]
    end = f"{SESSIONS}/{item['session']}/end"
    assert (await gateway.operators(end, "POST", Authorization=VIEWER))[0] == 403
    status, ended = await act(gateway, end)
    assert (status, ended["session"]) == (200, item["session"])
    assert (await host.ask("tools/list")).status == 404
    assert (await look(gateway, SESSIONS))["items"] == []
    assert (await act(gateway, end))[0] == 404
    hold.release(DONE)
    again = await gateway.greeted()
    assert (await again.ask("tasks/result", {"taskId": task})).result["content"] == []
    await eventually(lambda: len(of(lines(tmp_path), "admin.request")) == 3)
    assert host.session is not None
    assert host.session not in json.dumps(lines(tmp_path))


async def test_filters_and_pages_have_each_session_once(gateway: Gateway) -> None:
    for _ in range(5):
        await gateway.greeted()
    await gateway.greeted(mount="books")
    found: list[str] = []
    page = await look(gateway, f"{SESSIONS}?limit=2&upstream=reports")
    while True:
        found += [each["session"] for each in page["items"]]
        if page["next"] is None:
            break
        page = await look(gateway, f"{SESSIONS}?limit=2&upstream=reports&cursor={page['next']}")
    assert (len(found), found) == (5, sorted(set(found)))
    assert len((await look(gateway, f"{SESSIONS}?caller=c_anonymous"))["items"]) == 6
    assert (await look(gateway, f"{SESSIONS}?caller=c_other"))["items"] == []
