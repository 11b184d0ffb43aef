"""Calls of hosts of both eras that are to be tasks, under an idempotency key or not."""

from typing import Any

from helpers.host.answers import Answer
from helpers.host.host import Host
from helpers.server import ScriptedServer

KEY = "io.taskgate/idempotency-key"
YEAR = {"year": 2026}


async def call_with_key(host: Host, key: str | None = "k", arguments: Any = None, tool: str = "report") -> Answer:
    """The answer to a call that is to be a task, under that key, if there is one."""
    meta = None if key is None else {KEY: key, "x": 1}
    return await host.call_as_task(tool, YEAR if arguments is None else arguments, meta=meta)


async def start_with_key(host: Host, key: str | None = "k", arguments: Any = None) -> str:
    """The id of the task that such a call of `report` becomes."""
    result = (await call_with_key(host, key, arguments)).result
    task: str = (result if host.is_modern else result["task"])["taskId"]
    return task


def calls(server: ScriptedServer) -> list[dict[str, Any]]:
    """The parameters of the calls that the server got."""
    return [message["params"] for message in server.heard("tools/call")]


def upgrade(mode: str = "always", **more: Any) -> dict[str, Any]:
    """The tasks section with one rule for all tools."""
    return {"upgrade": [{"tool": "*", "mode": mode, **more}]}
