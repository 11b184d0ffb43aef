"""A host on FastMCP 4, speaking 2026-07-28: calls tools and lets FastMCP follow the tasks that come of them.

`python host_modern_fastmcp.py URL TOOL ARGUMENTS …` does what host_tasks_modern_python.py does.
"""

import asyncio
import json
import sys
from typing import Any

from fastmcp import Client
from fastmcp_tasks.client import call_tool_task
from mcp import MCPError


async def told_of(client: Client[Any], tool: str, given: dict[str, Any]) -> dict[str, Any]:
    """What is said of one call."""
    try:
        task = await call_tool_task(client, tool, given, raise_on_error=False)
        result = await task.result()
    except MCPError as error:
        return {"error": {"code": error.code, "message": error.message}}
    text = " ".join(getattr(block, "text", block.type) for block in result.content)
    return {"result": text, "isError": bool(result.is_error)}


async def play(url: str, words: list[str]) -> None:
    """One call after the other."""
    async with Client(url) as client:
        for tool, given in zip(words[::2], words[1::2], strict=True):
            sys.stdout.write(json.dumps(await told_of(client, tool, json.loads(given))) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(play(sys.argv[1], sys.argv[2:]))
