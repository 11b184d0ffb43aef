"""Requests without a host around them, for what happens before there is one."""

import json
from collections.abc import Mapping
from typing import Any

from helpers.gateway.gateway import Gateway
from helpers.host.host import ACCEPT
from helpers.waiting import bounded

SCOPES = {"protected_resource_metadata": {"scopes_supported": ["b.write", "a.read", "offline_access"]}}
WELL_KNOWN = "/.well-known/oauth-protected-resource"
DENIED = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "Authentication is required"}}
PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


async def ask(
    gateway: Gateway, verb: str, *, authorization: str | None = None, query: str = ""
) -> tuple[int, Mapping[str, str], Any]:
    """Status, headers and body of a request with nothing in it that would be wrong without authentication."""
    head = {"Accept": "text/event-stream" if verb == "GET" else ACCEPT, "Mcp-Session-Id": "x"}
    head |= {"Content-Type": "application/json"} if verb == "POST" else {}
    head |= {} if authorization is None else {"Authorization": authorization}
    url, body = gateway.url() + query, PING if verb == "POST" else None
    async with bounded(), gateway.http.request(verb, url, headers=head, data=body) as response:
        text = await response.text()
        return response.status, response.headers, json.loads(text) if text else None


def challenge(gateway: Gateway, *, sent: bool) -> str:
    origin = gateway.url().removesuffix("/reports/mcp")
    error = 'error="invalid_token", ' if sent else ""
    return f'Bearer {error}scope="a.read b.write", resource_metadata="{origin}{WELL_KNOWN}/reports/mcp"'


async def seen(gateway: Gateway, path: str, verb: str = "GET", **headers: str) -> tuple[int, Mapping[str, str], str]:
    address, port = gateway.address
    url = f"http://{address}:{port}{path}"
    async with bounded(), gateway.http.request(verb, url, headers=headers) as response:
        return response.status, response.headers, await response.text()
