"""Real processes that end at the wrong time: taskgate asked to, taskgate killed, the server killed, the server away."""

from contextlib import suppress
from pathlib import Path
from signal import SIGTERM

import httpx
import pytest
from mcp import McpError

from helpers.gateway.process import GatewayProcess
from helpers.waiting import bounded
from interop.hosts import OFFICIAL, PATIENCE, OfficialHost, official_host, overhear, place_for, text_of
from interop.servers import LegacyServer, legacy_server

pytestmark = OFFICIAL

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": "the first",
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "host", "version": "1"},
    },
}


async def post(url: str, message: dict[str, object], session: str | None = None) -> httpx.Response:
    """One message as bare HTTP, for what the SDK hides."""
    head = {"Accept": "application/json, text/event-stream"}
    if session is not None:
        head |= {"Mcp-Session-Id": session, "MCP-Protocol-Version": "2025-11-25"}
    async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE, event_hooks={"response": [overhear]}) as http:
        return await http.post(url, json=message, headers=head)


async def stop(gateway: GatewayProcess) -> None:
    """SIGTERM, as a supervisor asks."""
    gateway.ask(SIGTERM)
    assert await gateway.exit_status() == 0


async def assert_call_lost(host: OfficialHost, task: str) -> None:
    """The task failed, and nobody claims to know what the server made of it."""
    last = await host.end_of(task)
    assert last.status == "failed"
    assert "may or may not have completed" in (last.statusMessage or "")
    with pytest.raises(McpError) as failure:
        await host.result_of(task)
    assert failure.value.error.data == {"origin": "gateway", "reason": "call_lost", "dispatched": True}


async def test_a_finished_task_and_its_hosts_session_outlive_a_restart(
    reports_server: LegacyServer, tmp_path: Path
) -> None:
    place, ping = place_for(reports_server.url, tmp_path), {"jsonrpc": "2.0", "id": 9, "method": "ping"}
    async with place.gateway() as gateway:
        async with official_host(place.url) as left:
            task = await left.start("generate_report", quarter="Q1", seconds=0.1)
            assert (await left.end_of(task)).status == "completed"
        # This host notices nothing but a stream that ends: same session, same SDK transport.
        async with official_host(place.url) as host:
            await host.session.send_ping()  # what the handshake sends last is not waited for, but goes before this
            await stop(gateway)
            async with place.gateway():
                assert "Report for Q1" in text_of(await host.result_of(task))
                async with bounded(PATIENCE):
                    assert text_of(await host.session.call_tool("quick_sum", {"a": 1, "b": 2})) == "3"
                again = await host.start("quick_sum", a=2, b=3)
                assert text_of(await host.result_of(again)) == "5"
                assert (await post(place.url, ping, host.id)).status_code == 200
                for gone in (left.id, "never-heard-of"):
                    assert (await post(place.url, ping, gone)).status_code == 404
                async with official_host(place.url) as other:
                    assert "Report for Q1" in text_of(await other.result_of(task))
    assert reports_server.ledger.count("started generate_report Q1") == 1


async def test_a_task_that_ran_when_the_gateway_was_killed_failed_and_is_not_run_again(
    reports_server: LegacyServer, tmp_path: Path
) -> None:
    place, ledger = place_for(reports_server.url, tmp_path), reports_server.ledger
    async with place.gateway() as gateway, official_host(place.url, leaves=False) as host:
        task = await host.start("generate_report", quarter="Q1", seconds=1.0)
        await ledger.noted("started generate_report Q1")
        gateway.kill()
        assert await gateway.exit_status() < 0
        async with place.gateway():
            await assert_call_lost(host, task)
            # No release notices that its caller is gone: the run ends as if nothing had been.
            await ledger.noted("finished generate_report Q1")
            async with official_host(place.url) as other:
                await assert_call_lost(other, task)
                async with bounded(PATIENCE):
                    assert text_of(await other.session.call_tool("quick_sum", {"a": 1, "b": 2})) == "3"
    assert ledger.count("started generate_report Q1") == 1


async def test_a_server_killed_in_the_middle_fails_the_task_and_is_used_again_when_it_is_back(
    server_version: str, tmp_path: Path
) -> None:
    async with legacy_server(server_version, tmp_path) as server:
        place = place_for(server.url, tmp_path)
        async with place.gateway(), official_host(place.url) as host:
            task = await host.start("generate_report", quarter="Q1", seconds=60)
            await server.ledger.noted("started generate_report Q1")
            server.process.kill()
            last = await host.end_of(task)
            assert last.status == "failed"
            with pytest.raises(McpError) as failure:
                await host.result_of(task)
            assert failure.value.error.data == {"origin": "upstream", "reason": "closed", "dispatched": True}
            await server.process.wait()
            await assert_away(place.url, host)
            assert server.ledger.lines == ["started generate_report Q1"]
            async with legacy_server(server_version, tmp_path, port=httpx.URL(server.url).port or 0) as back:
                for url in (server.url, place.url):
                    async with official_host(url) as other, bounded(PATIENCE):
                        assert text_of(await other.session.call_tool("quick_sum", {"a": 1, "b": 2})) == "3"
                async with bounded(PATIENCE):
                    # The new process does not know the old one's sessions: a call may learn that, and is not repeated.
                    with suppress(McpError):
                        await host.session.call_tool("quick_sum", {"a": 2, "b": 2})
                    assert text_of(await host.session.call_tool("quick_sum", {"a": 2, "b": 3})) == "5"
                await back.ledger.noted("finished quick_sum 2+3")
                assert back.ledger.count("started quick_sum 2+2") <= 1
                assert not [line for line in back.ledger.lines if "generate_report" in line]
                back.process.kill()  # asked politely it may wait for the gateway's stream to end


async def assert_away(url: str, host: OfficialHost) -> None:
    """Of a server that is away a new host gets the last welcome, marked, and a call fails. No word of its address."""
    answer = await post(url, INITIALIZE)
    assert answer.json()["id"] == "the first"
    assert answer.json()["result"]["_meta"]["io.taskgate/gateway"]["stale"] is True
    assert "127.0.0.1" not in answer.text
    with pytest.raises(McpError) as failure:
        await host.session.call_tool("quick_sum", {"a": 1, "b": 2})
    assert failure.value.error.data["origin"] == "upstream"
