"""What the official host sees of a real server through taskgate is what it sees of the server itself, but for tasks."""

from pathlib import Path
from typing import Any

import pytest
from mcp import McpError
from mcp.types import PromptReference
from pydantic import AnyUrl, BaseModel

from helpers.waiting import bounded, eventually
from interop.hosts import OFFICIAL, PATIENCE, OfficialHost, official_host, place_for, text_of
from interop.servers import LegacyServer

pytestmark = OFFICIAL

NEWEST = "2025-11-25"
NEGOTIATED = {"1.8.1": "2024-11-05", "1.9.4": "2025-03-26", "1.12.4": "2025-06-18", "1.23.3": NEWEST}
COMPLETING = {"1.12.4", "1.23.3"}
TASKS = {"cancel": {}, "requests": {"tools": {"call": {}}}}
CHAPTERS = ["revenue", "costs", "staff", "forecast", "summary"]


def plain(model: BaseModel) -> dict[str, Any]:
    """What stood in the message."""
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


async def everything_of(host: OfficialHost) -> dict[str, Any]:
    """All that a host can ask of the reports server short of running a slow tool."""
    ask = host.session
    async with bounded(PATIENCE):
        seen = {
            "tools": await ask.list_tools(),
            "prompts": await ask.list_prompts(),
            "resources": await ask.list_resources(),
            "templates": await ask.list_resource_templates(),
            "resource": await ask.read_resource(AnyUrl("reports://quarters")),
            "templated": await ask.read_resource(AnyUrl("reports://Q3/title")),
            "prompt": await ask.get_prompt("summarise", {"quarter": "Q2"}),
            "sum": await ask.call_tool("quick_sum", {"a": 19, "b": 23}),
            "wrong": await ask.call_tool("quick_sum", {"a": "many"}),
            "broken": await ask.call_tool("broken_report", {"quarter": "Q1"}),
        }
    return {name: plain(answer) for name, answer in seen.items()}


async def test_a_host_gets_the_newest_revision_and_all_that_the_server_has(
    reports_server: LegacyServer, tmp_path: Path
) -> None:
    place = place_for(reports_server.url, tmp_path)
    async with official_host(reports_server.url) as host:
        itself, shown_itself = host.greeting, await everything_of(host)
    async with place.gateway(), official_host(place.url) as host:
        greeting, shown = host.greeting, await everything_of(host)
    assert itself.protocolVersion == NEGOTIATED[reports_server.version]
    assert greeting.protocolVersion == NEWEST
    assert greeting.instructions == itself.instructions
    assert plain(greeting.capabilities) == plain(itself.capabilities) | {"tasks": TASKS}
    assert [tool.pop("execution") for tool in shown["tools"]["tools"]] == [{"taskSupport": "optional"}] * 3
    assert shown == shown_itself
    assert shown["sum"]["content"][0]["text"] == "42"
    assert shown["wrong"]["isError"]
    assert "books for Q1" in shown["broken"]["content"][0]["text"]
    assert shown["templated"]["contents"][0]["text"] == "Report for Q3"


async def test_progress_log_messages_completions_and_errors_come_through(
    reports_server: LegacyServer, tmp_path: Path
) -> None:
    place, progress = place_for(reports_server.url, tmp_path), []

    async def note(done: float, total: float | None, _message: str | None) -> None:
        progress.append((done, total))

    async with place.gateway(), official_host(place.url) as host, bounded(PATIENCE):
        report = {"quarter": "Q2", "seconds": 0.5}
        result = await host.session.call_tool("generate_report", report, progress_callback=note)
        assert text_of(result) == f"Report for Q2: {', '.join(CHAPTERS)}."
        # The SDK forgets its callback with the result, which the last one may not have been faster than.
        assert progress[:4] == [(1, 5), (2, 5), (3, 5), (4, 5)]
        said = ["writing the report for Q2", *(f"{chapter} is done" for chapter in CHAPTERS)]
        await eventually(lambda: host.logs == said)
        reference = PromptReference(type="ref/prompt", name="summarise")
        if reports_server.version in COMPLETING:
            completed = await host.session.complete(reference, {"name": "quarter", "value": "Q"})
            assert completed.completion.values == ["Q1", "Q2", "Q3", "Q4"]
        with pytest.raises(McpError, match="Unknown prompt"):
            await host.session.get_prompt("no such prompt")
        assert await host.session.send_ping() is not None
    assert reports_server.ledger.count("started generate_report Q2") == 1
