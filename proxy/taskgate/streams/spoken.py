"""An answer to a message, before it is sent: what is sent, and what to count it as."""

from typing import Final, NamedTuple

from taskgate.domain.versions import Peer
from taskgate.jsontext.large import MessageText
from taskgate.protocol.base import Intent, OpenSession
from taskgate.protocol.envelope import Response
from taskgate.streams.messages import HttpReply

TOOL_ERROR: Final = "tool_error"
"""What a tool's own error counts as, which is a result."""


class RpcReply(NamedTuple):
    """An answer to a request: the message, and what to count it as (None, a JSON-RPC code, TOOL_ERROR)."""

    message: MessageText
    error: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


class HandledRequest(NamedTuple):
    """The reply to a message; of a request also what its host speaks, whether it said so or not, and what to count."""

    reply: HttpReply
    revision: str | None = None
    error: str | None = None


def error_of(response: Response) -> str | None:
    """What to count a server's response as."""
    if response.error is not None:
        return str(response.error_code)
    told = (response.result and response.result.members) or {}
    return TOOL_ERROR if "isError" in told and told["isError"].value is True else None


def revision_of(peer: Peer | None, intent: Intent) -> str | None:
    """What the host speaks, whether its message said so or not; `peer` is the session's, None where there is none."""
    if peer is not None:
        return peer.revision
    return intent.peer.revision if isinstance(intent, OpenSession) else None
