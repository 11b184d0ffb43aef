"""Servers that say, one way or another, which era they speak; and what reached them."""

from helpers.server import Reply, ScriptedServer, error

DISCOVERED = {"supportedVersions": ["2025-11-25", "2026-07-28"], "capabilities": {"tools": {}}}
HANDSHAKE = ["initialize", "notifications/initialized"]
PROBED = [*HANDSHAKE, "server/discover"]
MODERN_CALL = ["server/discover", "tools/list", "tools/call"]
"""What a session of the modern era sends for its first call."""


def arrived(server: ScriptedServer) -> list[str]:
    """What reached the server: methods of JSON-RPC, and other HTTP methods than POST."""
    return [each.message["method"] if each.verb == "POST" else each.verb for each in server.requests]


def supports(*versions: str) -> Reply:
    """Refuse the revision, and say which there are."""
    return error(-32022, "no", {"supported": list(versions), "requested": "x"}, status=400)
