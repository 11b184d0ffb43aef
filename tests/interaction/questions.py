"""Questions of servers: what may be asked and answered, and hosts that can be."""

from typing import Any

from helpers.gateway.gateway import Gateway
from helpers.host.host import Host

DONE = {"content": [{"type": "text", "text": "done"}]}
RELATED = "io.modelcontextprotocol/related-task"
ELICIT, SAMPLE, ROOTS = "elicitation/create", "sampling/createMessage", "roots/list"
GIVEN_UP = "notifications/cancelled"
CAPABLE = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {"listChanged": True}}
ACCEPTED = {"action": "accept", "content": {"it": "this"}}
URL = {"mode": "url", "message": "m", "url": "https://example.org/x", "elicitationId": "e-1"}
ASKED = {"messages": [{"role": "user", "content": {"type": "text", "text": "Why?"}}], "maxTokens": 10}
SAID = {"role": "assistant", "content": {"type": "text", "text": "So."}, "model": "m"}


async def capable(gateway: Gateway, revision: str = "2025-11-25", **changes: Any) -> Host:
    """A host that can be asked everything, but for what is changed."""
    return await gateway.greeted(revision, capabilities={**CAPABLE, **changes})
