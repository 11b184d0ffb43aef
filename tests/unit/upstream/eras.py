"""Servers that say, one way or another, which era they speak; and what reached them."""

import json
from typing import Any

from helpers.server import Reply, ScriptedServer, Turn, in_turn, raw

__all__ = [
    "DISCOVERED",
    "HANDSHAKE",
    "MODERN_CALL",
    "PROBED",
    "arrived",
    "in_turn",
    "refuses",
    "supports",
]

DISCOVERED = {"supportedVersions": ["2025-11-25", "2026-07-28"], "capabilities": {"tools": {}}}
HANDSHAKE = ["initialize", "notifications/initialized"]
PROBED = [*HANDSHAKE, "server/discover"]
MODERN_CALL = ["server/discover", "tools/list", "tools/call"]
"""What a session of the modern era sends for its first call."""


def arrived(server: ScriptedServer) -> list[str]:
    """What reached the server: methods of JSON-RPC, and other HTTP methods than POST."""
    return [each.message["method"] if each.verb == "POST" else each.verb for each in server.requests]


def refuses(code: int, said: Any = None, *, code_of_http: int = 400, with_id: bool = True) -> Reply:
    """Answer with an error that has something to say."""

    async def reply(turn: Turn) -> Any:
        told = {"code": code, "message": "no"} | ({} if said is None else {"data": said})
        text = json.dumps({"jsonrpc": "2.0", "id": turn.id if with_id else None, "error": told})
        return await raw(text.encode(), status=code_of_http)(turn)

    return reply


def supports(*versions: str) -> Reply:
    """Refuse the revision, and say which there are."""
    return refuses(-32022, {"supported": list(versions), "requested": "x"})
