"""A host built on the official SDK that calls slow tools as tasks: `python example/host.py URL`.

It says what it does step by step, and ends with 1 as soon as something is not as a host may expect it.
"""

import argparse
import asyncio
import logging
import sys
import time
import warnings
from collections.abc import Awaitable, Callable

from anyio import BrokenResourceError, ClosedResourceError
from mcp import ClientSession, McpError
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, GetTaskResult, TextContent, Tool

# The SDK announces that its task client will move elsewhere in its next major version; this release has it here.
warnings.filterwarnings("ignore", message="The experimental tasks API is deprecated", category=DeprecationWarning)


def is_news(record: logging.LogRecord) -> bool:
    """Whether a line of the SDK's log is about more than an event that came while the session was being closed."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, BrokenResourceError | ClosedResourceError)


# The SDK logs such an event with a traceback.
logging.getLogger("mcp.client.streamable_http").addFilter(is_news)

PATIENCE = 90.0  # seconds for everything
CANCELLED_CODE = -32800


class Unexpected(Exception):
    """The other side did something that a host may not expect."""


def expect(condition: object, otherwise: str) -> None:
    """Raises Unexpected with that text unless the condition holds."""
    if not condition:
        raise Unexpected(otherwise)


def text_of(result: CallToolResult) -> str:
    """The text blocks of a tool's result."""
    return " ".join(block.text for block in result.content if isinstance(block, TextContent))


async def show_all(host_session: ClientSession) -> None:
    """Every step in its order. Raises Unexpected or McpError at the first one that goes wrong."""
    greeting = await host_session.initialize()
    server = greeting.serverInfo
    print(f"Connected to {server.name} {server.version}, which speaks MCP {greeting.protocolVersion}.", flush=True)
    expect(greeting.capabilities.tasks, "the server offers no tasks: it is not taskgate, or not at this revision")
    await show_tools(host_session)
    await show_completed_task(host_session)
    await show_cancelled_task(host_session)
    await show_failed_task(host_session)
    await show_plain_call(host_session)
    print("\nEverything went as expected.", flush=True)


async def show_tools(host_session: ClientSession) -> None:
    """Lists the tools and whether each may be called as a task."""
    tools = {tool.name: tool for tool in (await host_session.list_tools()).tools}
    print("Tools:")
    for tool in tools.values():
        print(f"  {tool.name:<16} as a task: {task_support(tool)}")
    missing = {"generate_report", "broken_report", "quick_sum"} - tools.keys()
    expect(not missing, f"the server lacks {', '.join(sorted(missing))}")
    support = task_support(tools["generate_report"])
    expect(support in {"optional", "required"}, f"generate_report should be callable as a task, but that is {support}")


def task_support(tool: Tool) -> str:
    """What the tool's listing says about tasks; absent means forbidden."""
    return (tool.execution and tool.execution.taskSupport) or "forbidden"


async def start(host_session: ClientSession, tool: str, **arguments: object) -> str:
    """Calls a tool as a task and returns the task's id; the answer comes before the tool is done."""
    asked = time.monotonic()
    created = (await host_session.experimental.call_tool_as_task(tool, arguments)).task
    took = (time.monotonic() - asked) * 1000
    print(f"\n{tool}({', '.join(f'{name}={value!r}' for name, value in arguments.items())}) as a task")
    print(f"  task {created.taskId}, answered in {took:.0f} ms")
    print(f"  kept for {created.ttl} ms, to be polled every {created.pollInterval} ms", flush=True)
    expect(created.status == "working", f"a new task should be working, but it is {created.status}")
    return created.taskId


async def poll_to_the_end(host_session: ClientSession, task_id: str) -> GetTaskResult:
    """Polls as often as the server asks for, says each answer, and returns the last."""
    began = time.monotonic()
    last = None
    async for last in host_session.experimental.poll_task(task_id):
        print(f"  {time.monotonic() - began:4.1f} s  {last.status:<10} {last.statusMessage or ''}".rstrip(), flush=True)
    assert last is not None
    return last


async def show_completed_task(host_session: ClientSession) -> None:
    """A report that gets done."""
    task_id = await start(host_session, "generate_report", quarter="Q3", seconds=3.0)
    last = await poll_to_the_end(host_session, task_id)
    expect(last.status == "completed", f"the report should be completed, but it is {last.status}")
    result = await host_session.experimental.get_task_result(task_id, CallToolResult)
    print(f"  result: {text_of(result)}", flush=True)
    expect(not result.isError and "Report for Q3" in text_of(result), "that is not the report for Q3")


async def show_cancelled_task(host_session: ClientSession) -> None:
    """A report that is called off."""
    task_id = await start(host_session, "generate_report", quarter="Q4", seconds=60.0)
    now = await host_session.experimental.get_task(task_id)
    expect(now.status == "working", f"a report of a minute should be working, but it is {now.status}")
    cancelled = await host_session.experimental.cancel_task(task_id)
    print(f"  asked to cancel it: {cancelled.status}", flush=True)
    expect(cancelled.status == "cancelled", f"the report should be cancelled, but it is {cancelled.status}")
    try:
        await host_session.experimental.get_task_result(task_id, CallToolResult)
    except McpError as refusal:
        print(f"  result: error {refusal.error.code}, {refusal.error.message}", flush=True)
        expect(refusal.error.code == CANCELLED_CODE, f"the error's code should be {CANCELLED_CODE}")
    else:
        raise Unexpected("a cancelled task should have no result")


async def show_failed_task(host_session: ClientSession) -> None:
    """A report that goes wrong: the reason is in the status, and the result is the tool's own."""
    task_id = await start(host_session, "broken_report", quarter="Q1")
    last = await poll_to_the_end(host_session, task_id)
    expect(last.status == "failed", f"the broken report should have failed, but it is {last.status}")
    expect("books for Q1" in (last.statusMessage or ""), "the task's status should say why it failed")
    result = await host_session.experimental.get_task_result(task_id, CallToolResult)
    print(f"  result: {text_of(result)}", flush=True)
    expect(result.isError and "books for Q1" in text_of(result), "the result should be the tool's error")


async def show_plain_call(host_session: ClientSession) -> None:
    """A quick tool needs no task."""
    result = await host_session.call_tool("quick_sum", {"a": 19, "b": 23})
    print(f"\nquick_sum(19, 23), called plainly: {text_of(result)}", flush=True)
    expect(text_of(result) == "42", "the sum should be 42")


Show = Callable[[ClientSession], Awaitable[None]]


async def request_context(url: str, show: Show = show_all, patience: float = PATIENCE) -> int:
    """Connects and goes through all steps, within so many seconds; returns the exit status."""
    try:
        async with (
            asyncio.timeout(patience),
            streamable_http_client(url) as (incoming, outgoing, _),
            ClientSession(incoming, outgoing) as host_session,
        ):
            await show(host_session)
    except* TimeoutError:
        reason = f"not done after {patience:.0f} seconds"
    except* Exception as group:
        reason = first_of(group)
    else:
        return 0
    print(f"\nNot as expected: {reason}", file=sys.stderr, flush=True)
    return 1


def first_of(group: BaseExceptionGroup[BaseException]) -> str:
    """The text of the first exception inside; task groups nest them."""
    first = group.exceptions[0]
    if isinstance(first, BaseExceptionGroup):
        return first_of(first)
    return str(first) if isinstance(first, Unexpected) else f"{type(first).__name__}: {first}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Call the example's tools as tasks through taskgate.")
    parser.add_argument("url", help="where taskgate serves, such as http://127.0.0.1:8080/mcp")
    sys.exit(asyncio.run(request_context(parser.parse_args().url)))
