"""What the tests of handoff have in common: hosts of both eras that know no tasks, and the words that they get."""

import re
from typing import Any

from helpers.mcp_host import Answer, McpHost
from helpers.modern_host import ModernHost
from helpers.whole_gateway import WholeGateway

Host = McpHost | ModernHost

ERAS = ("legacy", "modern")
WAIT, CANCEL = "taskgate_wait", "taskgate_cancel"
_HANDLE = re.compile(r'\{"handle": "([A-Za-z0-9_-]{32})"\}')


def handoff(after: str = "20ms", *, ceiling: str = "10s", **more: Any) -> dict[str, Any]:
    """The section `tasks` with one rule that hands off the calls of all tools."""
    rule = {"tool": "*", "mode": "auto", "handoff": {"after": after}, **more}
    return {"upgrade": [rule], "handoff": {"ceiling": ceiling}}


async def taskless(gateway: WholeGateway, era: str, token: str | None = None, **capabilities: Any) -> Host:
    """A host of that era that knows no tasks."""
    if era == "modern":
        return gateway.modern(token=token, tasks=False, capabilities=capabilities)
    host = gateway.host(token=token)
    await host.initialize(capabilities=capabilities)
    return host


def text_of(answer: Answer) -> str:
    """The one text of an answer that is no error for a model."""
    assert answer.result.get("isError", False) is False, answer.result
    (block,) = answer.result["content"]
    text: str = block["text"]
    return text


def handle_of(answer: Answer) -> str:
    """The handle in the words for a model."""
    found = _HANDLE.search(text_of(answer))
    assert found is not None, answer.result
    return found[1]


async def waited(host: Host, handle: str, **more: Any) -> Answer:
    """The answer of the tool that waits."""
    return await host.call(WAIT, {"handle": handle}, **more)
