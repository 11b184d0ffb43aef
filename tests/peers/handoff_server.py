"""A server whose tools block as long as they are told to, on an unmodified SDK. It knows nothing of tasks.

It runs on releases from 1.23 on: `python handoff_server.py` takes a free port, which its log tells. `about` names a
call; the results do not have it, so that two calls have the same result.
"""

import asyncio
import json
from collections import Counter
from typing import Annotated, Any

from mcp import types
from mcp.server.fastmcp import Context, FastMCP
from pydantic import BaseModel

STEP = 0.25
"""Seconds between two notifications of progress."""

server = FastMCP("blocking", host="127.0.0.1", port=0)
runs: dict[str, Counter[str]] = {}


class Report(BaseModel):
    """What a report is as data."""

    quarter: str
    revenue: list[float]


class Answer(BaseModel):
    """What a user is asked for."""

    word: str


PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGNgYGAAAAAEAAH2FzhVAAAAAElFTkSuQmCC"
"""A picture."""
CONTENT: list[types.ContentBlock] = [
    types.TextContent(type="text", text="Q3: \u2603\n\t\U0001f4d2", annotations=types.Annotations(priority=1)),
    types.ImageContent(type="image", data=PIXEL, mimeType="image/png"),
]
DATA: dict[str, Any] = {"quarter": "Q3", "revenue": [12.5, 1e-7, 3.0]}


async def block(ctx: Context, about: str, seconds: float) -> None:
    """Notes the start and the end, and tells of progress between the two."""
    seen = runs.setdefault(about, Counter())
    seen["started"] += 1
    steps = round(seconds / STEP)
    try:
        for step in range(1, steps + 1):
            await asyncio.sleep(STEP)
            await ctx.report_progress(step, steps, f"step {step}")
    except BaseException:
        seen["cancelled"] += 1
        raise
    seen["ended"] += 1


@server.tool()
async def report(ctx: Context, about: str, seconds: float) -> Annotated[types.CallToolResult, Report]:
    """Returns contents of several kinds, and data that its output schema describes."""
    await block(ctx, about, seconds)
    return types.CallToolResult(content=CONTENT, structuredContent=DATA)


@server.tool()
async def refuse(ctx: Context, about: str, seconds: float) -> types.CallToolResult:
    """Fails as tools do."""
    await block(ctx, about, seconds)
    return types.CallToolResult(content=[types.TextContent(type="text", text="There are no books")], isError=True)


@server.tool()
async def ask(ctx: Context, about: str, seconds: float) -> str:
    """Asks the user for two words, each after that time."""
    words = []
    for number in (1, 2):
        await block(ctx, f"{about} {number}", seconds)
        answer = await ctx.elicit(f"Word {number}?", Answer)
        words.append(answer.data.word if answer.action == "accept" else answer.action)
    return " ".join(words)


@server.tool()
async def tally() -> str:
    """Tells how often each call started, ended and was cancelled."""
    return json.dumps(runs)


if __name__ == "__main__":
    server.run(transport="streamable-http")
