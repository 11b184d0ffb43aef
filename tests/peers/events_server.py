"""A server with events, on the unmodified SDK and the unmodified `mcp-webhook-events`. It speaks both eras.

`python events_server.py DATABASE` takes a free port, which its log tells. The database has the subscriptions. The tool
`change` publishes an event, and delivers it before it answers. Webhooks may be on this machine.
"""

import sys

import anyio.to_thread
from mcp.server.extension import Extension
from mcp.server.mcpserver import MCPServer
from mcp_webhook_events import EventDefinition, McpEvents, SafeHttp


class Declared(Extension):
    """Declares events as the specification spells it. The library declares `capabilities.events`."""

    identifier = "io.modelcontextprotocol/events"


server = MCPServer("tickets", version="7.1", extensions=[Declared()])
TICKET = {"ticket": {"type": "string"}}
CHANGED = EventDefinition(
    name="ticket.changed",
    description="A ticket was changed.",
    input_schema={"type": "object", "properties": TICKET, "required": ["ticket"], "additionalProperties": False},
    payload_schema={
        "type": "object",
        "properties": TICKET | {"summary": {"type": "string"}},
        "required": ["ticket", "summary"],
    },
)
events = McpEvents(
    server, store=sys.argv[1], definitions=[CHANGED], http=SafeHttp(allow_insecure_for_tests=True, timeout=5.0)
)
events.install()


@server.tool()
async def change(ticket: str, summary: str) -> dict[str, int]:
    """Changes a ticket, and counts the deliveries."""
    events.publish(CHANGED.name, {"ticket": ticket, "summary": summary})
    return await anyio.to_thread.run_sync(events.deliver_pending)


if __name__ == "__main__":
    server.run(transport="streamable-http", port=0)
