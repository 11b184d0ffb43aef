"""What to try while `make run` serves: a request that makes a task, the lines for hosts, a call on the command line."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the SDK takes a second to load
    from mcp.types import Tool

PROGRAM = ".venv/bin/taskgate"
NAME = "taskgate-example"
TOKEN = "Authorization: Bearer $TOKEN"
_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
}
_TELLING = re.compile("env|secret|token|password|credential", re.IGNORECASE)
_VALUES = {"integer": "1", "number": "1", "boolean": "true", "array": "[]", "object": "{}"}
"""A value for an argument of each type; a text gets a word."""


def task_request(url: str, *, token: bool) -> str:
    """The request that makes a task, on one line. A host of 2026-07-28 needs no session for it."""
    call = {"name": "generate_report", "arguments": {"quarter": "Q3", "seconds": 60}, "_meta": _META}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    headers = [
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        "MCP-Protocol-Version: 2026-07-28",
        "Mcp-Method: tools/call",
        "Mcp-Name: generate_report",
    ]
    given = [f"-H {shlex.quote(each)}" for each in headers] + ([f'-H "{TOKEN}"'] if token else [])
    return f"curl -s {url} {' '.join(given)} -d {shlex.quote(json.dumps(body, separators=(',', ':')))}"


def claude_code(url: str, *, token: bool) -> str:
    """The line that adds the server to Claude Code."""
    header = f' --header "{TOKEN}"' if token else ""
    return f"claude mcp add --transport http {NAME} {url}{header}"


def vs_code(url: str, *, token: bool) -> str:
    """What `.vscode/mcp.json` says of the server."""
    server: dict[str, Any] = {"type": "http", "url": url}
    if token:
        server["headers"] = {"Authorization": "Bearer ${input:token}"}
    whole: dict[str, Any] = {"servers": {NAME: server}}
    if token:
        whole["inputs"] = [{"type": "promptString", "id": "token", "description": "A token", "password": True}]
    return json.dumps(whole)


def call_line(url: str, tools: "Sequence[Tool]") -> str | None:
    """The command that calls a tool that only reads, one with few arguments first; None where no tool says so.

    A tool that may show secrets, such as `get-env`, is left out.
    """
    reading = [
        each
        for each in tools
        if each.annotations is not None and each.annotations.readOnlyHint and not _TELLING.search(each.name)
    ]
    if not reading:
        return None
    tool = min(reading, key=lambda each: len(each.inputSchema.get("required", [])))
    schemas: Mapping[str, Any] = tool.inputSchema.get("properties", {})
    given = [
        f"--arg {shlex.quote(f'{name}={_value_of(schemas.get(name, {}))}')}"
        for name in tool.inputSchema.get("required", [])
    ]
    return " ".join([PROGRAM, "call", url, shlex.quote(tool.name), *given])


def _value_of(schema: Mapping[str, Any]) -> str:
    """A value that the schema allows, as far as its type and its choices tell."""
    for offered in (*schema.get("enum", [])[:1], *schema.get("examples", [])[:1]):
        return offered if isinstance(offered, str) else json.dumps(offered)
    if "default" in schema:
        return schema["default"] if isinstance(schema["default"], str) else json.dumps(schema["default"])
    return _VALUES.get(str(schema.get("type")), "hello")
