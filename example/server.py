"""A small reports server, as somebody would write it with FastMCP: three tools, a prompt and two resources.

It knows nothing of tasks or of taskgate, and the same file runs on every SDK release from 1.8 on:
`python example/server.py --port 3000` serves it at http://127.0.0.1:3000/mcp.
With `--ledger FILE` each run of a tool leaves a line at its start and at its end, so that runs can be counted.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.fastmcp import Context, FastMCP
from mcp.types import Completion

QUARTERS = ["Q1", "Q2", "Q3", "Q4"]
CHAPTERS = ["revenue", "costs", "staff", "forecast", "summary"]


class Ledger:
    """A file that gets `started TOOL ARGUMENT`, then the same with finished, failed or cancelled; or no file at all."""

    def __init__(self, path: str | None) -> None:
        self._path = path

    @asynccontextmanager
    async def run_of(self, tool: str, argument: object) -> AsyncIterator[None]:
        self._note("started", tool, argument)
        try:
            yield
        except asyncio.CancelledError:
            self._note("cancelled", tool, argument)
            raise
        except Exception:
            self._note("failed", tool, argument)
            raise
        self._note("finished", tool, argument)

    def _note(self, event: str, tool: str, argument: object) -> None:
        if self._path is not None:
            with open(self._path, "a", encoding="utf-8") as lines:
                lines.write(f"{event} {tool} {argument}\n")


def build(host: str, port: int, ledger: Ledger) -> FastMCP:
    """The server, ready to run."""
    server = FastMCP("reports", instructions="Reports for the four quarters. They take a while.", host=host, port=port)

    @server.tool()
    async def generate_report(ctx: Context, quarter: str, seconds: float = 3.0) -> str:
        """Writes the report of a quarter, chapter by chapter. Slow."""
        async with ledger.run_of("generate_report", quarter):
            await ctx.info(f"writing the report for {quarter}")
            for written, chapter in enumerate(CHAPTERS, start=1):
                await asyncio.sleep(seconds / len(CHAPTERS))
                await ctx.debug(f"{chapter} is done")
                await ctx.report_progress(written, len(CHAPTERS))
        return f"Report for {quarter}: {', '.join(CHAPTERS)}."

    @server.tool()
    async def broken_report(quarter: str) -> str:
        """Tries to write the report of a quarter whose books are missing. Fails after a moment."""
        async with ledger.run_of("broken_report", quarter):
            await asyncio.sleep(0.3)
            raise ValueError(f"the books for {quarter} are missing")

    @server.tool()
    async def quick_sum(a: int, b: int) -> int:
        """Adds two numbers at once."""
        async with ledger.run_of("quick_sum", f"{a}+{b}"):
            return a + b

    @server.prompt()
    def summarise(quarter: str) -> str:
        """Asks a model for a summary of a quarter."""
        return f"Summarise the report for {quarter} in three sentences."

    @server.resource("reports://quarters")
    def quarters() -> str:
        """The quarters that there are reports for."""
        return "\n".join(QUARTERS)

    @server.resource("reports://{quarter}/title")
    def title(quarter: str) -> str:
        """The title of one quarter's report."""
        return f"Report for {quarter}"

    if hasattr(server, "completion"):  # from 1.10 on

        @server.completion()
        async def complete(_reference: Any, argument: Any, _context: Any) -> Completion:
            return Completion(values=[quarter for quarter in QUARTERS if quarter.startswith(argument.value)])

    return server


def main() -> None:
    """Serves until it is ended."""
    parser = argparse.ArgumentParser(description="A reports server on the MCP Python SDK, over streamable HTTP.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True, help="0 takes a free one; the log says which")
    parser.add_argument("--ledger", metavar="FILE", help="gets a line at the start and the end of each run of a tool")
    options = parser.parse_args()
    build(options.host, options.port, Ledger(options.ledger)).run(transport="streamable-http")


if __name__ == "__main__":
    main()
