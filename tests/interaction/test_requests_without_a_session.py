"""Hosts that send no session id: refused with the name of the key, or served request by request."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import Host
from helpers.server import Hold, ScriptedServer, result
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import bounded
from requirements import covers

DONE: dict[str, Any] = {"content": [{"type": "text", "text": "done"}]}
REVISION = {"Mcp-Protocol-Version": "2025-11-25"}
UPGRADE = {"upgrade": [{"tool": "*", "mode": "auto"}]}


async def forgetful(gateway: Gateway, **more: Any) -> Host:
    """A host that has opened a session, and sends its id with no request."""
    host = await gateway.greeted(**more)
    host.session = None
    return host


@pytest.fixture
async def gateway(server: ScriptedServer) -> AsyncIterator[Gateway]:
    config = configuration({"reports": server.url}, server={"sessions": "optional"}, tasks=UPGRADE)
    async with serve(config) as gateway:
        yield gateway


@covers("H-LEG-2")
@pytest.mark.parametrize("method", ["ping", "tools/list", "tasks/list"])
async def test_a_session_is_required_unless_the_key_says_otherwise(server: ScriptedServer, method: str) -> None:
    async with serve(configuration({"reports": server.url})) as gateway:
        answer = await (await forgetful(gateway)).ask(method)
    assert answer.status == 400
    assert answer.error is not None
    assert "server.sessions: optional" in answer.error["message"]


@pytest.mark.parametrize("revision", [None, "2025-06-18", "2025-11-25"])
async def test_lists_calls_and_pings_are_served_on_their_own(
    gateway: Gateway, server: ScriptedServer, revision: str | None
) -> None:
    server.script["report"] = result(DONE)
    host = await forgetful(gateway)
    host.revision = revision
    assert (await host.tell("notifications/initialized")).status == 202
    assert (await host.ask("ping")).result == {}
    assert "tools" in ((await host.ask("tools/list")).result or {})
    assert (await host.call("report")).result == DONE
    assert (await host.call("report")).result == DONE


async def test_requests_of_one_caller_share_a_session_at_the_server(gateway: Gateway, server: ScriptedServer) -> None:
    server.script["report"] = result(DONE)
    host = await forgetful(gateway)
    before = len(server.live)
    for _ in range(3):
        assert (await host.call("report")).result == DONE
    assert len(server.live) == before + 1


async def test_a_task_is_made_polled_and_fetched_without_a_session(gateway: Gateway, server: ScriptedServer) -> None:
    server.script["report"] = hold = Hold()
    host = await forgetful(gateway)
    task = await host.start("report")
    assert (await host.task(task["taskId"]))["status"] == "working"
    hold.release(DONE)
    answer = await host.ask("tasks/result", {"taskId": task["taskId"]})
    assert answer.result is not None
    assert answer.result["content"] == DONE["content"]


async def test_a_task_of_a_session_is_found_without_it_and_the_other_way(
    gateway: Gateway, server: ScriptedServer
) -> None:
    server.script["report"] = Hold()
    with_session, without = await gateway.greeted(), await forgetful(gateway)
    for maker, other in ((with_session, without), (without, with_session)):
        task = await maker.start("report")
        assert (await other.task(task["taskId"]))["status"] == "working"
        assert (await other.cancel(task["taskId"])).result is not None


async def test_callers_stay_apart_without_sessions(server: ScriptedServer, tmp_path: Path) -> None:
    issuer = TokenIssuer(tmp_path)
    server.script["report"] = Hold()
    config = guarded({"reports": server.url}, issuer, server={"sessions": "optional"}, tasks=UPGRADE)
    async with serve(config) as gateway:
        hosts = [await forgetful(gateway, token=issuer.token(gateway.url(), subject=name)) for name in ("alice", "bob")]
        task = await hosts[0].start("report")
        assert (await hosts[0].task(task["taskId"]))["status"] == "working"
        refused = await hosts[1].ask("tasks/get", {"taskId": task["taskId"]})
        assert refused.error is not None
        assert "not found" in refused.error["message"]
        before = len(server.live)
        server.script["report"] = result(DONE)
        assert (await hosts[1].call("report")).result == DONE
        assert len(server.live) == before + 1


async def test_a_cancellation_without_a_session_ends_no_call_of_another_host(
    gateway: Gateway, server: ScriptedServer
) -> None:
    server.script["report"] = hold = Hold()
    one, other = await forgetful(gateway), await forgetful(gateway)
    async with one.asking("tools/call", {"name": "report", "arguments": {}}, id=7) as stream:
        async with bounded():
            await hold.begun.wait()
        assert (await other.tell("notifications/cancelled", {"requestId": 7})).status == 202
        hold.release(DONE)
        assert (await stream.answer()).result == DONE


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("logging/setLevel", {"level": "info"}),
        ("resources/subscribe", {"uri": "file:///a"}),
        ("resources/unsubscribe", {"uri": "file:///a"}),
    ],
)
async def test_what_changes_a_session_needs_one(gateway: Gateway, method: str, params: dict[str, Any]) -> None:
    answer = await (await forgetful(gateway)).ask(method, params)
    assert (answer.status, answer.error) == (
        400,
        {"code": -32600, "message": f"{method} needs a session: send Mcp-Session-Id"},
    )


@pytest.mark.parametrize("has_session", [True, False])
async def test_a_stream_without_a_session_is_not_resumable(
    gateway: Gateway, server: ScriptedServer, has_session: bool
) -> None:
    server.script["report"] = result(DONE)
    host = await gateway.greeted() if has_session else await forgetful(gateway)
    head = {**host.head(), **REVISION, "Accept": "text/event-stream", "Content-Type": "application/json"}
    call = {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "report", "arguments": {}}}
    async with bounded(), gateway.http.post(gateway.url(), json=call, headers=head) as response:
        lines = (await response.text()).splitlines()
    assert any('"result"' in line for line in lines)
    assert any(line.startswith("id:") for line in lines) == has_session


@pytest.mark.parametrize("verb", ["GET", "DELETE"])
async def test_streams_and_ends_need_a_session(gateway: Gateway, verb: str) -> None:
    head = {**REVISION, "Accept": "text/event-stream"}
    async with gateway.http.request(verb, gateway.url(), headers=head) as response:
        assert response.status == 400
        assert "session" in await response.text()


async def test_an_unknown_session_is_still_unknown(gateway: Gateway) -> None:
    host = await forgetful(gateway)
    host.session = "unknown"
    assert (await host.ask("ping")).status == 404
