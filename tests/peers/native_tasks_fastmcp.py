"""A server of the stateless era on unmodified FastMCP 4, with its own tasks: `python native_tasks_fastmcp.py LEDGER`.

It runs in the `fastmcp-4.1.4` environment, takes a free port, which its log tells, or with `--stdio` none, and writes a
line into the ledger for whatever its tools do. All but `sums` and `stepped`
run only as tasks.
"""

import asyncio
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import mcp_types as types
from fastmcp import Context, FastMCP
from fastmcp.dependencies import Progress
from fastmcp.exceptions import ToolError
from fastmcp.utilities.tasks import TaskConfig
from fastmcp_tasks import TasksExtension
from mcp.shared.exceptions import MCPError

LEDGER = Path(sys.argv[1])
OFTEN = timedelta(milliseconds=50)
ALWAYS = TaskConfig(mode="required", poll_interval=OFTEN)
FURTHER = Progress()
ASKED = TaskConfig(mode="optional", poll_interval=OFTEN)

server = FastMCP("native")
server.add_extension(TasksExtension(minimum_check_interval=timedelta(milliseconds=10)))


def note(line: str) -> None:
    with LEDGER.open("a") as ledger:
        ledger.write(f"{line}\n")


def form(message: str, field: str) -> types.ElicitRequest:
    wanted = {"type": "object", "properties": {field: {"type": "string"}}, "required": [field]}
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=wanted))


def word(ctx: Context, key: str) -> Any:
    """What the user has filled in under that key, None where nothing was."""
    answer = (ctx.input_responses or {}).get(key)
    return answer.content.get(key) if isinstance(answer, types.ElicitResult) and answer.content else None


@server.tool(task=ALWAYS)
async def report(name: str, steps: int = 3, progress: Progress = FURTHER) -> str:
    """Works a while, says how far it is, and runs as a task alone."""
    note(f"began {name}")
    for step in range(1, steps + 1):
        await progress.set_message(f"page {step} of {steps}")
        await asyncio.sleep(0.15)
    note(f"ended {name}")
    return f"report {name}"


@server.tool(task=ASKED)
async def sums(a: int, b: int) -> int:
    """Is quick, and runs either way."""
    note(f"sums {a} {b}")
    return a + b


@server.tool(task=ASKED)
async def stepped(ctx: Context) -> str:
    """Tells of four steps by progress notifications, and runs either way."""
    note("stepped")
    for step in range(1, 5):
        await ctx.report_progress(step, 4, f"step {step}")
        await asyncio.sleep(0.05)
    return "done"


@server.tool(task=ALWAYS)
async def ask(ctx: Context) -> Any:
    """Asks for two words at once, and then for one more."""
    note("asked")
    first, second, third = word(ctx, "first"), word(ctx, "second"), word(ctx, "third")
    if third is not None:
        return f"{ctx.request_state} {third}"
    if first is None or second is None:
        return types.InputRequiredResult(
            input_requests={"first": form("One?", "first"), "second": form("Two?", "second")}, request_state="nothing"
        )
    return types.InputRequiredResult(
        input_requests={"third": form("Three?", "third")}, request_state=f"{first} {second}"
    )


@server.tool(task=ALWAYS)
async def waits(name: str, progress: Progress = FURTHER) -> str:
    """Ends when somebody makes a file of that name beside the ledger."""
    note(f"began {name}")
    await progress.set_message(f"waiting for {name}")
    try:
        while not (LEDGER.parent / name).exists():
            await asyncio.sleep(0.02)
    except asyncio.CancelledError:
        note(f"stopped {name}")
        raise
    note(f"ended {name}")
    return f"waited for {name}"


@server.tool(task=ALWAYS)
async def stumbles() -> str:
    """Fails as a tool does."""
    raise ToolError("there is no paper")


@server.tool(task=ALWAYS)
async def breaks() -> str:
    """Fails as a protocol does."""
    raise MCPError(code=-32001, message="no such printer", data={"printer": 3})


if __name__ == "__main__":
    if "--stdio" in sys.argv:
        server.run(transport="stdio", show_banner=False)
    else:
        server.run(transport="http", port=0, show_banner=False)
