"""A host built on the official SDK that looks at any server and calls nothing: `python example/guest.py URL`.

It lists the tools and whether each may be called as a task, and ends with 1 where it cannot. For a tool that only reads
it prints the command that calls it.
"""

import argparse
import asyncio
import sys

from mcp import ClientSession
from mcp.types import Tool

from host import expect, request_context, task_support
from next_steps import call_line

# A program may have to be downloaded first.
PATIENCE = 110.0


async def show_all(host_session: ClientSession, url: str) -> None:
    """Every step in its order."""
    greeting = await host_session.initialize()
    server = greeting.serverInfo
    print(f"Connected to {server.name} {server.version}, which speaks MCP {greeting.protocolVersion}.", flush=True)
    expect(greeting.capabilities.tasks, "the server offers no tasks: it is not taskgate, or not at this revision")
    tools = await tools_of(host_session) if greeting.capabilities.tools else []
    print("Tools:" if tools else "It has no tools.")
    for tool in tools:
        print(f"  {tool.name:<28} as a task: {task_support(tool)}")
    line = call_line(url, tools)
    if line is not None:
        print(f"\nNo tool was called. This calls one that only reads:\n  {line}")
    elif tools:
        print("\nNo tool was called, and none says that it only reads.")
    sys.stdout.flush()


async def tools_of(host_session: ClientSession) -> list[Tool]:
    """All tools, page by page."""
    page = await host_session.list_tools()
    tools = [*page.tools]
    while page.nextCursor:
        page = await host_session.list_tools(page.nextCursor)
        tools += page.tools
    return tools


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="List the tools of a server behind taskgate.")
    parser.add_argument("url", help="where taskgate serves, such as http://127.0.0.1:8080/mcp")
    place = parser.parse_args().url
    sys.exit(asyncio.run(request_context(place, lambda host_session: show_all(host_session, place), PATIENCE)))
