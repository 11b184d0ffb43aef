"""A server with one tool for every column of the table of hosts and servers, on every unmodified SDK from 1.2 to 2.3.

`python matrix_server.py [stdio | sse | streamable-http]` takes a free port where it needs one, which its log tells; it
speaks Streamable HTTP unless it is told otherwise, which releases before 1.8 have to be. What a release has no words
for, or dies of, its server has no tool for. It knows nothing of tasks.
"""

import asyncio
import sys
from importlib.metadata import version
from typing import Annotated, Any

from pydantic import BaseModel

try:
    from mcp.server.fastmcp import Context, FastMCP
    from mcp.server.fastmcp.exceptions import ToolError

    server: Any = FastMCP("matrix", host="127.0.0.1", port=0)
    PLACE: dict[str, Any] = {}
    OF_THIS_ERA = False
except ModuleNotFoundError:  # from 2.0 on
    from mcp.server.mcpserver import Context, Elicit, MCPServer, Resolve
    from mcp.server.mcpserver.exceptions import ToolError

    server = MCPServer("matrix")
    PLACE = {"host": "127.0.0.1", "port": 0}
    OF_THIS_ERA = True

CLOSED = 4242
# Before 1.10 a session ends, with all that runs in it, when one of its calls is cancelled.
OUTLIVES_A_CANCEL = tuple(map(int, version("mcp").split(".")[:2])) >= (1, 10)
cancelled: set[str] = set()


class Answer(BaseModel):
    """What a user is asked for."""

    word: str


@server.tool()
async def echo(word: str) -> str:
    """Answers at once."""
    return f"echo {word}"


@server.tool()
async def slow(word: str) -> str:
    """Takes a while."""
    await asyncio.sleep(1.5)
    return f"slow {word}"


@server.tool()
async def steps(ctx: Context) -> str:
    """Tells how far it is."""
    for number in (1, 2, 3):
        await ctx.report_progress(number, 3)
        await asyncio.sleep(0.05)
    return "3 steps"


@server.tool()
async def broken() -> str:
    """Fails, and its result says so."""
    raise ToolError("the books are missing")


if OUTLIVES_A_CANCEL:

    @server.tool()
    async def hold(key: str) -> str:
        """Runs until it is cancelled."""
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.add(key)
            raise
        return "nobody cancelled"


@server.tool()
async def was_cancelled(key: str) -> str:
    """Whether a run of `hold` was cancelled."""
    return "yes" if key in cancelled else "no"


@server.resource("matrix://book")
def book() -> str:
    """A text."""
    return "Once upon a time"


@server.prompt()
def summary() -> str:
    """Asks for a summary."""
    return "Summarise the book."


if OF_THIS_ERA:
    from mcp import MCPError

    async def asked_for() -> Elicit[Answer]:
        return Elicit("Word?", Answer)

    @server.tool()
    async def ask(answer: Annotated[Answer, Resolve(asked_for)]) -> str:
        """Asks the user for a word."""
        return f"asked {answer.word}"

    @server.tool()
    async def closed() -> str:
        """Is answered with an error of the protocol."""
        raise MCPError(CLOSED, "the books are closed")

else:
    from mcp import McpError, types

    if hasattr(Context, "elicit"):

        @server.tool()
        async def ask(ctx: Context) -> str:
            """Asks the user for a word."""
            answer = await ctx.elicit("Word?", Answer)
            return f"asked {answer.data.word if answer.action == 'accept' else answer.action}"

    @server.tool()
    async def closed() -> str:
        """Is answered with an error of the protocol."""
        return "never called"

    # Whatever a tool raises becomes a result in these releases, so the error is made where they call it from.
    handlers = server._mcp_server.request_handlers
    call_tool = handlers[types.CallToolRequest]

    async def call(request: types.CallToolRequest) -> types.ServerResult:
        if request.params.name == "closed":
            raise McpError(types.ErrorData(code=CLOSED, message="the books are closed"))
        result: types.ServerResult = await call_tool(request)
        return result

    handlers[types.CallToolRequest] = call


if __name__ == "__main__":
    transport = sys.argv[1] if len(sys.argv) > 1 else "streamable-http"
    server.run(transport=transport, **({} if transport == "stdio" else PLACE))
