"""What tests of the transport over lines send over it, and how they read what comes of that."""

from collections.abc import AsyncIterator
from typing import Any

from helpers.server.script import MODERN_REVISION
from taskgate.upstream.base import POSTED, Outgoing
from taskgate.upstream.calls import Principal
from taskgate.upstream.duplex.pending import PendingRequest
from taskgate.upstream.duplex.session import ChannelSession, NotificationReader
from taskgate.upstream.duplex.transport import ChannelTransport

HELLO = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}'
CALL = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo"}}'
MODERN = {"MCP-Protocol-Version": MODERN_REVISION}


def post(body: bytes, **more: Any) -> Outgoing:
    headers = {**POSTED, **more.pop("headers", {})}
    return Outgoing(verb="POST", headers=headers, body=body, principal=Principal(context="alice"), **more)


async def read(messages: AsyncIterator[bytes]) -> list[bytes]:
    """All of an answer, or of what comes beside answers."""
    try:
        return [message async for message in messages]
    finally:
        assert isinstance(messages, PendingRequest | NotificationReader)
        messages.release()


async def greeted(transport: ChannelTransport, **more: Any) -> tuple[PendingRequest, list[ChannelSession]]:
    """The answer to a handshake, and the session that it opened, if any."""
    sessions: list[ChannelSession] = []
    request = await transport.open(post(HELLO, **more), sessions.append)
    assert isinstance(request, PendingRequest)
    return request, sessions


async def begun(transport: ChannelTransport) -> ChannelSession:
    """A session."""
    request, [session] = await greeted(transport)
    assert (request.status, request.streams) == (200, False)
    await read(request)
    return session
