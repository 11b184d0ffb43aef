"""A server with a tool that a test holds in its hand, on unmodified SDKs, for hosts that are refused something.

`python refusals_server.py` takes a free port, which its log tells. Beside `/mcp` it has `/began/KEY`, which answers
once `hold` has begun, `/let_go/KEY`, which lets it end, and `/runs/KEY`, which counts. It knows nothing of tasks.
"""

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse

try:
    from mcp.server.fastmcp import FastMCP

    server: Any = FastMCP("refusals", host="127.0.0.1", port=0)
    PLACE: dict[str, Any] = {}
except ModuleNotFoundError:  # from 2.0 on
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("refusals")
    PLACE = {"host": "127.0.0.1", "port": 0}


@dataclass(slots=True)
class Runs:
    """Of one key."""

    began: asyncio.Event = field(default_factory=asyncio.Event)
    let_go: asyncio.Event = field(default_factory=asyncio.Event)
    number: int = 0


runs: defaultdict[str, Runs] = defaultdict(Runs)


@server.tool()
async def echo(word: str) -> str:
    """Answers at once."""
    return f"echo {word}"


@server.tool()
async def hold(key: str) -> str:
    """Runs until it is let go."""
    mine = runs[key]
    mine.number += 1
    mine.began.set()
    await mine.let_go.wait()
    return f"held {key}"


@server.tool()
async def report(size: int) -> str:
    """Answers with a text of that size."""
    return "x" * size


@server.tool()
async def forbidden() -> str:
    """Is for nobody."""
    return "never called"


@server.tool()
async def privileged() -> str:
    """Is for few."""
    return "never called"


@server.custom_route("/began/{key}", methods=["GET"])
async def began(request: Request) -> PlainTextResponse:
    """Answers once a run of `hold` has begun."""
    await runs[request.path_params["key"]].began.wait()
    return PlainTextResponse("yes")


@server.custom_route("/let_go/{key}", methods=["GET"])
async def let_go(request: Request) -> PlainTextResponse:
    """Ends the runs of `hold`, those to come too."""
    runs[request.path_params["key"]].let_go.set()
    return PlainTextResponse("yes")


@server.custom_route("/runs/{key}", methods=["GET"])
async def number(request: Request) -> PlainTextResponse:
    """How many runs of `hold` there were."""
    return PlainTextResponse(str(runs[request.path_params["key"]].number))


if __name__ == "__main__":
    server.run(transport="streamable-http", **PLACE)
