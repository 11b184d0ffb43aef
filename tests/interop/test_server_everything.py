"""The protocol's reference server, which has one tool for each thing that a server can do, says the same to a host
through taskgate as it says directly. Only the tool that insists on the server's own tasks is left out.
"""

import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx
import pytest
import pytest_asyncio
from example.addresses import free_addresses
from mcp import ClientSession, McpError
from mcp.client.streamable_http import streamable_http_client
from pydantic import BaseModel

from helpers.waiting import bounded, eventually
from interop.hosts import PATIENCE, place_for
from interop.peers import require_peers, server_everything
from peers.host_python import Ears, new_seen

# One server and one gateway for all of it: their output is read by the loop that started them.
pytestmark = [pytest.mark.interop, pytest.mark.asyncio(loop_scope="module")]

OWN_TASK = "simulate-research-query"

CALLS: dict[str, dict[str, Any]] = {
    "echo": {"message": "hello"},
    "get-annotated-message": {"messageType": "error", "includeImage": True},
    "get-env": {},
    "get-resource-links": {"count": 3},
    "get-resource-reference": {"resourceType": "Text", "resourceId": 2},
    "get-structured-content": {"location": "Chicago"},
    "get-sum": {"a": 19, "b": 23},
    "get-tiny-image": {},
    "gzip-file-as-resource": {"name": "a.gz", "data": "data:text/plain,hello", "outputType": "resource"},
    "trigger-long-running-operation": {"duration": 0.4, "steps": 2},
    "get-roots-list": {},
    "trigger-elicitation-request": {},
    "trigger-url-elicitation": {"url": "https://example.com/", "elicitationId": "elicitation-1"},
    "trigger-sampling-request": {"prompt": "the sea"},
    "toggle-subscriber-updates": {},
    "toggle-simulated-logging": {},
}
BY_CHANCE = "toggle-simulated-logging"
"""What this one makes the server say, and when, is dice: it comes last, and only its result is compared."""

CHANGING = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d+:\d\d:\d\d [AP]M")
"""A session's id, a time of day."""


class Said(BaseModel):
    """What the server has said to one host."""

    tools: list[dict[str, Any]]
    results: dict[str, dict[str, Any]]
    seen: dict[str, dict[str, list[Any]]]
    unasked: dict[str, list[Any]]
    """What came before the first call."""


@asynccontextmanager
async def host(url: str, ears: Ears) -> AsyncIterator[ClientSession]:
    """A host that can be asked everything, after its handshake."""
    async with (
        httpx.AsyncClient(trust_env=False, timeout=httpx.Timeout(30, read=300)) as http,
        streamable_http_client(url, http_client=http) as (incoming, outgoing, _),
        ears.session(incoming, outgoing) as session,
    ):
        await session.initialize()
        yield session


async def said_to_a_host(url: str, like: Said | None = None) -> Said:
    """Everything, in one session. News travel on streams of their own: there is a moment for those that `like` has."""
    ears, results, seen = Ears(), {}, {}
    async with bounded(PATIENCE), host(url, ears) as session:
        unasked = ears.seen
        await moment_for(lambda: unasked["logs"])
        tools = (await session.list_tools()).tools
        for tool, given in CALLS.items():
            seen[tool] = ears.seen = new_seen()
            results[tool] = await result_of(session, tool, given)
            if like is not None and tool != BY_CHANCE:
                await moment_for(lambda: ears.seen == like.seen[tool])  # noqa: B023  it is awaited at once
    return Said(tools=[plain(tool) for tool in tools], results=results, seen=seen, unasked=unasked)


async def result_of(session: ClientSession, tool: str, given: dict[str, Any]) -> dict[str, Any]:
    """What the call gave, result or error, but for what is never the same."""
    try:
        answer: BaseModel = await session.call_tool(tool, given, progress_callback=_nothing)
    except McpError as refusal:
        answer = refusal.error
    told: dict[str, Any] = json.loads(CHANGING.sub("…", answer.model_dump_json(by_alias=True, exclude_none=True)))
    return told


async def moment_for(predicate: Callable[[], object]) -> None:
    """Waits until that is true, or for two seconds: whether it is will be asserted where it matters."""
    with suppress(AssertionError):
        await eventually(predicate, within=2)


async def _nothing(*_: Any) -> None: ...


def plain(tool: BaseModel) -> dict[str, Any]:
    """The tool as it stood in the list, but for what the gateway tells otherwise: whether it can be a task."""
    return tool.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"execution"})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def said(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Said, Said]]:
    """To a host of its own, and to one behind the gateway."""
    require_peers()
    folder = tmp_path_factory.mktemp("everything")
    port = free_addresses()[0].port
    async with server_everything(folder, port) as upstream:
        place = place_for(upstream, folder)
        direct = await said_to_a_host(upstream)
        async with place.gateway():
            yield direct, await said_to_a_host(place.url, direct)


async def test_the_list_of_tools_is_the_same_and_every_tool_is_called_here(said: tuple[Said, Said]) -> None:
    direct, through = said
    assert {tool["name"] for tool in direct.tools} == {*CALLS, OWN_TASK}
    assert through.tools == direct.tools


@pytest.mark.parametrize("tool", CALLS)
async def test_a_tool_gives_the_same_result_and_the_same_news_and_asks_the_same(
    said: tuple[Said, Said], tool: str
) -> None:
    direct, through = said
    assert not direct.results[tool].get("isError"), "this says nothing if it fails already without a gateway"
    assert through.results[tool] == direct.results[tool]
    assert tool == BY_CHANCE or through.seen[tool] == direct.seen[tool]


async def test_the_server_is_told_the_roots_that_it_asks_for_before_any_call(said: tuple[Said, Said]) -> None:
    direct, through = said
    assert direct.unasked["questions"] == ["roots/list"]
    assert through.unasked == direct.unasked
