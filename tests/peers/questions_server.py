"""A server whose tools ask their host back: the user, the host's model, the host's roots. It knows nothing of tasks.

It runs on every unmodified SDK from 1.8 on: `python questions_server.py` takes a free port, which its log tells. What a
release has no words for, its server has no tool for.
"""

import asyncio
from typing import Any

from mcp import types
from mcp.server.fastmcp import Context, FastMCP
from pydantic import BaseModel

server = FastMCP("questions", host="127.0.0.1", port=0)

WITH_TOOLS = hasattr(types, "ToolUseContent")
WEATHER: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


class Answer(BaseModel):
    """What a user is asked for."""

    word: str


def message(content: str) -> types.SamplingMessage:
    return types.SamplingMessage(role="user", content=types.TextContent(type="text", text=content))


@server.tool()
async def where(ctx: Context) -> str:
    """Tells the host's roots. The SDK asks for them on the session's own stream, not on that of the call."""
    return " ".join(str(root.uri) for root in (await ctx.session.list_roots()).roots)


@server.tool()
async def muse(ctx: Context, subject: str) -> str:
    """Asks the host's model, and does not say which call that belongs to: it goes to the session's own stream."""
    said = await ctx.session.create_message([message(subject)], max_tokens=50)
    return str(getattr(said.content, "text", said.content))


@server.tool()
async def steps(ctx: Context, count: int = 3) -> str:
    """Tells how far it is, in numbers and in words."""
    for number in range(1, count + 1):
        await ctx.report_progress(number, count)
        await ctx.info(f"step {number}")
        await asyncio.sleep(0.3)
    return f"{count} steps"


if hasattr(Context, "elicit"):

    @server.tool()
    async def ask(ctx: Context, rounds: int = 2, about: str = "") -> str:
        """Asks the user for one word after the other."""
        words = []
        for number in range(1, rounds + 1):
            answer = await ctx.elicit(f"Word {about}{number}?", Answer)
            words.append(answer.data.word if answer.action == "accept" else answer.action)
        return " ".join(words)

    @server.tool()
    async def both(ctx: Context) -> str:
        """Asks the user and the host's model at once."""
        asked = ctx.session.create_message([message("both")], max_tokens=50, related_request_id=ctx.request_id)
        answer, said = await asyncio.gather(ctx.elicit("Word of both?", Answer), asked)
        word = answer.data.word if answer.action == "accept" else answer.action
        return f"{word} {getattr(said.content, 'text', said.content)}"


if WITH_TOOLS:

    @server.tool()
    async def think(ctx: Context, city: str) -> str:
        """Asks the host's model, which may use a tool; runs that tool and lets the model end its thought."""
        tools = [types.Tool(name="weather", description="Of a city", inputSchema=WEATHER)]
        asked = message(f"How is {city}?")
        request = ctx.request_id
        said = await ctx.session.create_message([asked], max_tokens=50, tools=tools, related_request_id=request)
        uses = [block for block in said.content_as_list if isinstance(block, types.ToolUseContent)]
        found = [
            types.ToolResultContent(
                type="tool_result",
                toolUseId=use.id,
                content=[types.TextContent(type="text", text=f"rain in {use.input['city']}")],
            )
            for use in uses
        ]
        thread = [asked, types.SamplingMessage(role="assistant", content=uses), message_with(found)]
        ended = await ctx.session.create_message(thread, max_tokens=50, tools=tools, related_request_id=request)
        return " ".join(block.text for block in ended.content_as_list if isinstance(block, types.TextContent))

    def message_with(found: Any) -> types.SamplingMessage:
        return types.SamplingMessage(role="user", content=found)

    @server.tool()
    async def ask_url(ctx: Context) -> str:
        """Sends the user to a page, and says when that is done."""
        answer = await ctx.elicit_url("Please sign in.", "https://example.com/sign-in", "elicitation-1")
        await ctx.session.send_elicit_complete("elicitation-1", ctx.request_id)
        return answer.action


if __name__ == "__main__":
    server.run(transport="streamable-http")
