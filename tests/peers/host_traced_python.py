"""A host on the Python SDK 2.3 that calls a tool within a span: the SDK tells of it in `_meta` (SEP-414).

`python host_traced_python.py URL MODE TRACE SPAN TOOL` calls once, in that place, which is all that is known of the
span: nothing here exports any. `MODE` is `legacy` or a revision. What the tool said is one line of output.
"""

import asyncio
import sys

from mcp import Client
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState, use_span

ENDS_WITHIN = 12.0
"""Seconds for one call."""


async def play(url: str, mode: str, trace: str, span: str, tool: str) -> None:
    """List the tools, then call one of them."""
    place = SpanContext(int(trace, 16), int(span, 16), False, TraceFlags(1), TraceState([("vendor", "a")]))
    async with Client(url, mode=mode) as client, asyncio.timeout(ENDS_WITHIN):
        await client.list_tools()
        with use_span(NonRecordingSpan(place)):
            result = await client.call_tool(tool, {"title": "Traced"})
        sys.stdout.write(f"{'failed' if result.is_error else 'done'}\n")


if __name__ == "__main__":
    asyncio.run(play(*sys.argv[1:]))
