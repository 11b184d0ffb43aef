"""Calls of real servers' tools as tasks, by the official host: made, polled, fetched, cancelled, and left behind."""

from pathlib import Path

import pytest
from mcp import McpError
from mcp.types import CallToolResult

from helpers.waiting import bounded
from interop.hosts import OFFICIAL, PATIENCE, OfficialHost, official_host, place_for, text_of
from interop.servers import LegacyServer, legacy_server

pytestmark = OFFICIAL

RELATED = "io.modelcontextprotocol/related-task"
MORE_THAN_A_MEBIBYTE = 2**20 + 1
# Releases whose own session ends, with all that runs in it, by notifications/cancelled for one of its requests.
SESSION_DIES_OF_A_CANCEL = {"1.8.1", "1.9.4"}


def answer_of(result: CallToolResult) -> CallToolResult:
    """The result without what only a task's has."""
    return result.model_copy(update={"meta": None})


async def assert_ends_like_a_plain_call(host: OfficialHost, tool: str, **arguments: object) -> None:
    """The same call twice, once as a task: the answers are the same to the SDK."""
    async with bounded(PATIENCE):
        called = await host.session.call_tool(tool, arguments)
    task = await host.start(tool, **arguments)
    last = await host.end_of(task)
    result = await host.result_of(task)
    assert last.status == ("failed" if called.isError else "completed")
    assert not called.isError or text_of(called) in (last.statusMessage or "")
    assert result.meta == {RELATED: {"taskId": task}}
    assert answer_of(result) == called
    assert answer_of(await host.result_of(task)) == called, "a result can be fetched again"


async def test_a_task_ends_as_the_plain_call_does_also_with_more_than_a_mebibyte(
    reports_server: LegacyServer, tmp_path: Path
) -> None:
    place, ledger = place_for(reports_server.url, tmp_path), reports_server.ledger
    async with place.gateway(), official_host(place.url) as host:
        await assert_ends_like_a_plain_call(host, "generate_report", quarter="Q1", seconds=0.2)
        await assert_ends_like_a_plain_call(host, "broken_report", quarter="Q1")
        await assert_ends_like_a_plain_call(host, "quick_sum", a=19, b=23)
        large = "x" * MORE_THAN_A_MEBIBYTE
        await assert_ends_like_a_plain_call(host, "generate_report", quarter=large, seconds=0.1)
    assert ledger.count("finished generate_report Q1") == ledger.count("failed broken_report Q1") == 2
    assert len([line for line in ledger.lines if line.startswith("started")]) == 8


async def test_two_tasks_at_once_are_there_for_a_new_session_after_their_host_hung_up(
    reports_server: LegacyServer, tmp_path: Path
) -> None:
    place, ledger = place_for(reports_server.url, tmp_path), reports_server.ledger
    async with place.gateway():
        async with official_host(place.url, leaves=False) as host:
            tasks = {quarter: await host.start("generate_report", quarter=quarter, seconds=0.5) for quarter in "AB"}
            await ledger.noted("started generate_report B")
        async with official_host(place.url) as host:
            tasks["C"] = await host.start("generate_report", quarter="C", seconds=0.5)
        async with official_host(place.url) as host:
            assert (await host.end_of(tasks["A"])).status == "completed"
            for quarter, task in tasks.items():
                assert f"Report for {quarter}" in text_of(await host.result_of(task))
    assert sorted(ledger.lines[:2]) == ["started generate_report A", "started generate_report B"]
    assert len([line for line in ledger.lines if line.startswith("started")]) == 3


async def test_a_cancel_reaches_the_server_and_spares_other_tasks_unless_the_servers_session_dies_of_it(
    reports_server: LegacyServer, tmp_path: Path
) -> None:
    place, ledger = place_for(reports_server.url, tmp_path), reports_server.ledger
    async with place.gateway(), official_host(place.url) as host:
        unwanted = await host.start("generate_report", quarter="Q1", seconds=60)
        wanted = await host.start("generate_report", quarter="Q2", seconds=1)
        await ledger.noted("started generate_report Q1")
        await ledger.noted("started generate_report Q2")
        await assert_can_be_cancelled(host, unwanted)
        await ledger.noted("cancelled generate_report Q1")
        if reports_server.version in SESSION_DIES_OF_A_CANCEL:
            with pytest.raises(McpError) as failure:
                await host.result_of(wanted)
            assert failure.value.error.data == {"origin": "upstream", "reason": "closed", "dispatched": True}
            await ledger.noted("cancelled generate_report Q2")
        else:
            assert "Report for Q2" in text_of(await host.result_of(wanted))
            assert text_of(await host.session.call_tool("quick_sum", {"a": 1, "b": 2})) == "3"
        async with official_host(place.url) as other:
            assert text_of(await other.session.call_tool("quick_sum", {"a": 3, "b": 4})) == "7"
    assert not [line for line in ledger.lines if line.startswith("finished generate_report Q1")]


@pytest.mark.parametrize("version", sorted(SESSION_DIES_OF_A_CANCEL))
async def test_a_host_can_go_on_after_a_cancel_that_the_servers_session_died_of(version: str, tmp_path: Path) -> None:
    async with legacy_server(version, tmp_path) as server:
        place = place_for(server.url, tmp_path)
        async with place.gateway(), official_host(place.url) as host:
            for number in range(4):
                unwanted = await host.start("generate_report", quarter=f"Q{number}", seconds=60)
                await server.ledger.noted(f"started generate_report Q{number}")
                await host.session.experimental.cancel_task(unwanted)
                # The very next request is another call's, and must not pay for it.
                assert text_of(await host.session.call_tool("quick_sum", {"a": 1, "b": number})) == f"{1 + number}"


async def assert_can_be_cancelled(host: OfficialHost, task: str) -> None:
    """A task that works is cancelled, once, and has no result then."""
    tasks = host.session.experimental
    assert (await tasks.get_task(task)).status == "working"
    assert (await tasks.cancel_task(task)).status == "cancelled"
    with pytest.raises(McpError) as refusal:
        await host.result_of(task)
    assert refusal.value.error.code == -32800
    with pytest.raises(McpError, match="already ended"):
        await tasks.cancel_task(task)
    assert (await tasks.get_task(task)).status == "cancelled"
