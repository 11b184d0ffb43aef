"""What tests of the transport over lines send over it, and how they read what comes of that."""

from typing import Any

from helpers.scripted_lines import MODERN_REVISION
from taskgate.upstream.base import POSTED, Incoming, Outgoing
from taskgate.upstream.duplex.transport import ChannelTransport
from taskgate.upstream.principal import Principal

HELLO = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}'
CALL = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo"}}'
MODERN = {"MCP-Protocol-Version": MODERN_REVISION}


def post(body: bytes, session: str | None = None, **more: Any) -> Outgoing:
    headers = POSTED if session is None else {**POSTED, "Mcp-Session-Id": session}
    headers = {**headers, **more.pop("headers", {})}
    return Outgoing(verb="POST", headers=headers, body=body, principal=Principal(context="alice"), **more)


def stream(session: str, verb: str = "GET") -> Outgoing:
    return Outgoing(verb=verb, headers={"Mcp-Session-Id": session}, only_listens=verb == "GET")


async def read(incoming: Incoming) -> list[bytes]:
    """All of an answer."""
    try:
        return [message async for message in incoming.messages()]
    finally:
        incoming.release(answered=True)


async def begun(transport: ChannelTransport) -> str:
    """The id of a session."""
    incoming = await transport.send(post(HELLO))
    assert (incoming.status, incoming.streams) == (200, False)
    await read(incoming)
    assert incoming.session is not None
    return incoming.session
