"""Hosts of both eras that call a tool as a task, under a key or not, in the same words for a test."""

import asyncio
from typing import Any, Protocol

from helpers.mcp_host import Answer, McpHost
from helpers.modern_host import ModernHost
from helpers.server import ScriptedServer
from helpers.waiting import bounded
from helpers.whole_gateway import WholeGateway

KEY = "io.taskgate/idempotency-key"
YEAR = {"year": 2026}


class Repeating(Protocol):
    """A host that calls `report`, which becomes a task."""

    async def call(self, key: str | None = "k", arguments: Any = None, tool: str = "report") -> Answer: ...

    async def task(self, id: str) -> dict[str, Any]: ...

    async def start(self, key: str | None = "k", arguments: Any = None) -> str: ...


class OfSession:
    """One of the legacy era."""

    def __init__(self, host: McpHost) -> None:
        self.host = host

    async def call(self, key: str | None = "k", arguments: Any = None, tool: str = "report") -> Answer:
        """Call the tool as a task."""
        meta = {} if key is None else {"_meta": {KEY: key, "x": 1}}
        return await self.host.call(tool, YEAR if arguments is None else arguments, task={}, **meta)

    async def start(self, key: str | None = "k", arguments: Any = None) -> str:
        """The id of the task."""
        task: str = (await self.call(key, arguments)).result["task"]["taskId"]
        return task

    async def task(self, id: str) -> dict[str, Any]:
        """The task as it is."""
        return await self.host.task(id)


class Modern:
    """One of the modern era."""

    def __init__(self, host: ModernHost) -> None:
        self.host = host

    async def call(self, key: str | None = "k", arguments: Any = None, tool: str = "report") -> Answer:
        """Call the tool, which becomes a task."""
        meta = {} if key is None else {KEY: key, "x": 1}
        return await self.host.call(tool, YEAR if arguments is None else arguments, meta=meta)

    async def start(self, key: str | None = "k", arguments: Any = None) -> str:
        """The id of the task."""
        result = (await self.call(key, arguments)).result
        assert result["resultType"] == "task", result
        task: str = result["taskId"]
        return task

    async def task(self, id: str) -> dict[str, Any]:
        """The task as it is."""
        return await self.host.get(id)


ERAS = ("initialize", "stateless")


async def new_host(gateway: WholeGateway, era: str, **more: Any) -> Repeating:
    """A host of an era; in the older one it opens a session."""
    if era == "stateless":
        return Modern(gateway.modern(**more))
    return OfSession(await gateway.greeted(**more))


async def completed(host: Repeating, id: str) -> None:
    """Return once the task has ended."""
    async with bounded():
        while (await host.task(id))["status"] != "completed":
            await asyncio.sleep(0.05)


def calls(server: ScriptedServer) -> list[dict[str, Any]]:
    """The parameters of the calls that the server got."""
    return [message["params"] for message in server.heard("tools/call")]


def upgrade(mode: str = "always", **more: Any) -> dict[str, Any]:
    """The tasks section with one rule for all tools."""
    return {"upgrade": [{"tool": "*", "mode": mode, **more}]}
