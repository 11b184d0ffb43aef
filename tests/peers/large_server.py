"""A server with one tool whose result is as large and as late as it is told, sent as JSON. It knows nothing of tasks.

It runs in the `mcp-2.3.0` environment: `python large_server.py` takes a free port, which its log tells.
"""

import asyncio

from mcp.server.mcpserver import MCPServer

server = MCPServer("large")


@server.tool(structured_output=False)
async def large(size: int, seconds: float) -> str:
    """Returns so many letters after that time."""
    await asyncio.sleep(seconds)
    return "x" * size


if __name__ == "__main__":
    server.run(transport="streamable-http", port=0, json_response=True)
