"""A host on the official SDK that calls tools without end: `python steady_sdk_host.py URL`.

It prints a line for each round of calls, and ends with 1 at the first that is not answered as it should be; at SIGTERM
it ends with 0 after the round under way. Nothing here tries anything again but the SDK itself.
"""

import asyncio
import signal
import sys
import warnings

from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult

warnings.filterwarnings("ignore", message="The experimental tasks API is deprecated", category=DeprecationWarning)

PATIENCE = 40.0  # seconds for one round


async def go_round(host_session: ClientSession, number: int) -> None:
    """Plain calls while the outcome of a long task is waited for. Raises AssertionError."""
    task = (await host_session.experimental.call_tool_as_task("long", {"number": number})).task
    waiting = asyncio.create_task(host_session.experimental.get_task_result(task.taskId, CallToolResult))
    while not waiting.done():
        plain = await host_session.call_tool("echo", {"number": number})
        assert plain.structuredContent == {"number": number}, plain
        await asyncio.wait([waiting], timeout=0.1)
    told = await waiting
    assert told.structuredContent == {"number": number}, told


async def stay(url: str) -> None:
    """Call until SIGTERM."""
    enough = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, enough.set)
    async with (
        streamable_http_client(url) as (incoming, outgoing, _),
        ClientSession(incoming, outgoing) as host_session,
    ):
        await host_session.initialize()
        number = 0
        while not enough.is_set():
            number += 1
            async with asyncio.timeout(PATIENCE):
                await go_round(host_session, number)
            sys.stdout.write(f"round {number} done\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(stay(sys.argv[1]))
