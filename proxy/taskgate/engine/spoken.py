"""An answer to a request, before it is sent: the message, and what to count it as."""

from typing import NamedTuple

from taskgate.dialects.base import Intent, OpenSession
from taskgate.mcp.jsonrpc import Response
from taskgate.mcp.versions import Peer


class Spoken(NamedTuple):
    """An answer to a request: the message, and what to count it as (None, a JSON-RPC code, `tool_error`)."""

    message: str
    error: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


def error_of(response: Response) -> str | None:
    """What to count a server's response as."""
    if response.error is not None:
        return str(response.error.value["code"])
    result = response.result.value if response.result is not None else None
    return "tool_error" if isinstance(result, dict) and result.get("isError") is True else None


def revision_of(peer: Peer | None, intent: Intent) -> str | None:
    """What the host speaks, whether its message said so or not; `peer` is the session's, None where there is none."""
    if peer is not None:
        return peer.revision
    return intent.peer.revision if isinstance(intent, OpenSession) else None
