"""Baseline: FastMCP's proxy as its documentation has it, with one connected client for all calls.

Run by the interpreter of its own environment, which has nothing of taskgate: `fastmcp_proxy.py PORT URL`.
"""

import asyncio
import sys
from typing import Any

from fastmcp import Client
from fastmcp.server import create_proxy


async def _main(port: str, url: str) -> None:
    async with Client(url) as client:
        proxy: Any = create_proxy(client, name="proxy")
        await proxy.run_http_async(host="127.0.0.1", port=int(port), path="/mcp", show_banner=False, log_level="error")


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:3]))
