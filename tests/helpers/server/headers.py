"""What a request of the modern era has to say in its headers, and how a scripted server refuses one that does not."""

import base64
import json
from typing import Any

from helpers.host.host import NAMED
from helpers.modern_schema import CAPABILITIES, VERSION
from helpers.server.replies import Reply, Turn, error


def refusal_of(turn: Turn, faults: list[str]) -> Reply | None:
    """How a request is refused, if it is. A header that does not repeat the body is added to `faults`."""
    message, versions = turn.message, turn.server.versions
    params = message.get("params") or {}
    meta = params.get("_meta") or {}
    version = meta.get(VERSION)
    if not isinstance(version, str) or not isinstance(meta.get(CAPABILITIES), dict):
        if message["method"] == "initialize":
            known = {"supported": versions, "requested": params.get("protocolVersion", "")}
            return error(-32022, "there is no handshake", known, status=400)
        return error(-32602, "_meta is not whole", status=400)
    for name, said in _expected(message, version, turn.server.tools).items():
        sent = turn.request.headers.getall(name, [])
        if [_decoded(each) for each in sent] != ([] if said is None else [said]):
            faults.append(f"{message['method']}: {name} is {sent}, not {said!r}")
            return error(-32020, f"{name} does not equal the body", status=400)
    if version not in versions:
        return error(-32022, "no", {"supported": versions, "requested": version}, status=400)
    return None


def _expected(message: dict[str, Any], version: str, tools: list[dict[str, Any]]) -> dict[str, str | None]:
    """The headers that repeat the body, with their values; None where one must not be there."""
    method, params = message["method"], message["params"]
    found: dict[str, str | None] = {"MCP-Protocol-Version": version, "Mcp-Method": method}
    found["Mcp-Name"] = params[NAMED[method]] if method in NAMED else None
    if method == "tools/call":
        schema = next((tool["inputSchema"] for tool in tools if tool["name"] == params["name"]), {})
        found |= _repeated(schema, params.get("arguments") or {})
    return found


def _repeated(schema: dict[str, Any], arguments: dict[str, Any]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name, each in schema.get("properties", {}).items():
        value = arguments.get(name)
        if "x-mcp-header" in each:
            said = json.dumps(value) if isinstance(value, bool) else None if value is None else str(value)
            found[f"Mcp-Param-{each['x-mcp-header']}"] = said
        if isinstance(value, dict | None):
            found |= _repeated(each, value or {})
    return found


def _decoded(value: str) -> str:
    if value.startswith("=?base64?") and value.endswith("?="):
        return base64.b64decode(value[9:-2], validate=True).decode()
    return value
