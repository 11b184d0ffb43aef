"""A host on FastMCP 3.4 that calls a tool as a task and names no time to live.

`python host_task_fastmcp.py URL TOOL` writes the text of the result.
"""

import asyncio
import sys

from fastmcp import Client


async def main(url: str, tool: str) -> None:
    async with Client(url) as client:
        task = await client.call_tool(tool, {}, task=True)
        result = await task.result()
    sys.stdout.write(result.content[0].text)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
