"""A host on the official SDK, and `taskgate serve` before a real server: what the interop tests have in common.

No judgement lives here: the SDK's own models read every answer, and the tests say what must stand in them.
"""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import ClientSession, McpError
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, GetTaskResult, InitializeResult, LoggingMessageNotificationParams, TextContent

from helpers import told
from helpers.gateway.configuration import write_configuration
from helpers.gateway.process import GatewayProcess, gateway_process
from helpers.ports import free_port
from helpers.waiting import bounded

# The SDK announces that its task client will move elsewhere in its next major version; this release has it here.
OFFICIAL = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore:The experimental tasks API is deprecated:DeprecationWarning"),
]

QUARTERS = ("Q1", "Q2", "Q3", "Q4")
PATIENCE = 60.0
"""Seconds for whatever a test asks of a real server."""


async def overhear(response: httpx.Response) -> None:
    """Has an answer judged at the end of the test if it is an error; a hook of httpx."""
    if response.status_code >= 300:
        await response.aread()
        told.now().hear(f"{response.text} {response.headers.get('WWW-Authenticate')}")


class OverheardSession(ClientSession):
    """The SDK's session; errors that a host gets through it are judged at the end of the test."""

    async def send_request(self, *given: Any, **more: Any) -> Any:
        try:
            return await super().send_request(*given, **more)
        except McpError as failure:
            told.now().hear(failure.error.model_dump_json())
            raise


@dataclass(slots=True, kw_only=True)
class OfficialHost:
    """A host after its handshake; `logs` is what the server has said by notifications/message."""

    session: ClientSession
    greeting: InitializeResult
    id: str | None
    logs: list[Any] = field(default_factory=list)

    async def start(self, tool: str, **arguments: object) -> str:
        """Call a tool as a task, which must be working then, and return the task's id."""
        async with bounded(PATIENCE):
            created = await self.session.experimental.call_tool_as_task(tool, arguments)
        assert created.task.status == "working"
        return created.task.taskId

    async def end_of(self, task: str) -> GetTaskResult:
        """Poll as often as the gateway asks for, and return the last answer."""
        async with bounded(PATIENCE):
            return [each async for each in self.session.experimental.poll_task(task)][-1]

    async def result_of(self, task: str) -> CallToolResult:
        """The task's result, waited for; McpError where it has none."""
        async with bounded(PATIENCE):
            return await self.session.experimental.get_task_result(task, CallToolResult)


def text_of(result: CallToolResult) -> str:
    """The text blocks of a tool's result."""
    return " ".join(block.text for block in result.content if isinstance(block, TextContent))


@asynccontextmanager
async def official_host(url: str, *, leaves: bool = True) -> AsyncIterator[OfficialHost]:
    """A host that has a session for the length of the block; then it ends that, or just hangs up."""
    logs: list[Any] = []

    async def note(params: LoggingMessageNotificationParams) -> None:
        logs.append(params.data)

    async with (
        httpx.AsyncClient(
            trust_env=False, timeout=httpx.Timeout(30, read=300), event_hooks={"response": [overhear]}
        ) as http,
        streamable_http_client(url, http_client=http, terminate_on_close=leaves) as (incoming, outgoing, session_id),
        OverheardSession(incoming, outgoing, logging_callback=note) as session,
    ):
        async with bounded(PATIENCE):
            greeting = await session.initialize()
        yield OfficialHost(session=session, greeting=greeting, id=session_id(), logs=logs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A folder with a gateway's configuration and store, so that one gateway after the other may serve at `url`."""

    file: Path
    url: str
    upstream: str

    @asynccontextmanager
    async def gateway(self) -> AsyncIterator[GatewayProcess]:
        """`taskgate serve` for the length of a block; then its log is searched."""
        folder = self.file.parent
        log = folder / f"gateway-{len([*folder.glob('gateway-*')])}.log"
        async with gateway_process(["--config", self.file], log=log) as gateway:
            yield gateway
        assert_log_is_discreet(log, self.upstream)


def place_for(upstream: str, folder: Path) -> Place:
    """A gateway's place before that server, on a port that was free a moment ago."""
    listen = f"127.0.0.1:{free_port()}"
    file = write_configuration(
        folder,
        upstream,
        server={"listen": listen, "drain": {"delay": "0s", "timeout": "5s"}},
        tasks={"poll_interval": {"base": "100ms", "min": "100ms", "adaptive": False}},
        logging={"level": "debug"},
    )
    return Place(file=file, url=f"http://{listen}/reports/mcp", upstream=upstream)


def assert_log_is_discreet(log: Path, upstream: str) -> None:
    """A gateway's log is JSON by lines, and holds nothing of what the server and its hosts have said.

    Where the server is stands in the line about its mount alone. A quarter counts as a word: identifiers are random.
    """
    lines = log.read_text().splitlines()
    events = [json.loads(line)["event"] for line in lines]
    assert "serving" in events
    where = httpx.URL(upstream).netloc.decode()
    assert {event for event, line in zip(events, lines, strict=True) if where in line} == {"an upstream is mounted"}
    for secret in ("Report for", "the books", "revenue", "xxxx", *(rf"\b{quarter}\b" for quarter in QUARTERS)):
        assert not [line for line in lines if re.search(secret, line)], secret
