"""The protocol's reference server, which has one tool for each thing that a server can do, says the same to a host
through taskgate as it says directly, whatever it is spoken to over. Only the tool that insists on the server's own
tasks is left out.
"""

import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, TextIO

import httpx
import pytest
import pytest_asyncio
from mcp import ClientSession, McpError, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from pydantic import BaseModel

from helpers.gateway.configuration import write_configuration
from helpers.gateway.process import gateway_process
from helpers.waiting import bounded, eventually
from interop.hosts import PATIENCE, assert_log_is_discreet
from interop.peers import require_peers
from interop.programs import upstreams
from interop.released import HTTP, SSE, STDIO
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


Streams = AbstractAsyncContextManager[tuple[Any, Any]]
"""What a session of the SDK is made on."""


@asynccontextmanager
async def over_http(url: str) -> AsyncIterator[tuple[Any, Any]]:
    async with (
        httpx.AsyncClient(trust_env=False, timeout=httpx.Timeout(30, read=300)) as http,
        streamable_http_client(url, http_client=http) as (incoming, outgoing, _),
    ):
        yield incoming, outgoing


def directly(upstream: dict[str, Any], log: TextIO) -> Streams:
    """To the server itself, as the section of a configuration has it."""
    match upstream["transport"]:
        case "stdio":
            command, *arguments = upstream["command"]
            return stdio_client(StdioServerParameters(command=command, args=arguments), errlog=log)
        case "sse":
            return sse_client(upstream["url"])
        case _:
            return over_http(upstream["url"])


async def said_to_a_host(streams: Streams, like: Said | None = None) -> Said:
    """Everything, in one session. News travel on streams of their own: there is a moment for those that `like` has."""
    ears, results, seen = Ears(), {}, {}
    async with bounded(PATIENCE), streams as (incoming, outgoing), ears.session(incoming, outgoing) as session:
        await session.initialize()
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
    if tool == "get-env":
        # Whoever starts a program says what its environment is; this stands in each.
        told["content"] = [json.loads(block["text"])["PATH"] for block in told["content"]]
    return told


async def moment_for(predicate: Callable[[], object]) -> None:
    """Waits until that is true, or for two seconds: whether it is will be asserted where it matters."""
    with suppress(AssertionError):
        await eventually(predicate, within=2)


async def _nothing(*_: Any) -> None: ...


def plain(tool: BaseModel) -> dict[str, Any]:
    """The tool as it stood in the list, but for what the gateway tells otherwise: whether it can be a task."""
    return tool.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"execution"})


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=[HTTP, STDIO, SSE])
async def said(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Said, Said]]:
    """To a host of its own, and to one behind the gateway."""
    require_peers()
    folder = tmp_path_factory.mktemp(f"everything-{request.param}")
    async with upstreams({"everything": ("everything-2026-08", request.param)}, folder) as written:
        file = write_configuration(folder, "", upstreams=written, logging={"level": "debug"})
        with (folder / "direct.log").open("w") as log:
            direct = await said_to_a_host(directly(written["everything"], log))
        async with gateway_process(["--config", file], log=folder / "gateway.log") as gateway:
            yield direct, await said_to_a_host(over_http(f"http://{gateway.listen}/everything/mcp"), direct)
        if request.param != STDIO:
            assert_log_is_discreet(folder / "gateway.log", written["everything"]["url"])


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
    # What else it says before a host has a stream of its own is lost, as it is over Streamable HTTP.
    for each in ("questions", "logs"):
        assert through.unasked[each] == direct.unasked[each]
