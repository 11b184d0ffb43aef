"""The little of an MCP host the benchmark needs before the load begins: sessions, single calls, and the stub's counts.

Blocking and slow, and never used inside a measured window.
"""

import http.client
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

from bench.failures import BenchFailed

WAIT_BOUND = 30.0  # seconds anything waited for here may take
PATH = "/mcp"
AUTHORIZATION = "Authorization"
_OPENING = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "taskgate-bench", "version": "1"},
}

_JSON = "application/json"

Heads = dict[str, str]


def wait_until(what: str, holds: Callable[[], bool]) -> None:
    """Ask `holds` until it is true; `BenchFailed` names `what` after the bound."""
    until = time.monotonic() + WAIT_BOUND
    while not holds():
        if time.monotonic() > until:
            raise BenchFailed(f"waited {WAIT_BOUND:.0f} s in vain: {what}")
        time.sleep(0.01)


def post(port: int, body: dict[str, Any] | None, heads: Heads | None = None, path: str = PATH) -> tuple[Heads, bytes]:
    """POST one message; the answer's heads (lower case) and body. `BenchFailed` for anything but 200 and 202."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_BOUND)
    try:
        return _post_on(connection, body, heads or {}, path)
    finally:
        connection.close()


def _post_on(
    connection: http.client.HTTPConnection, body: dict[str, Any] | None, heads: Heads, path: str
) -> tuple[Heads, bytes]:
    given = {"Content-Type": _JSON, "Accept": f"{_JSON}, text/event-stream", **heads}
    connection.request("POST", path, b"" if body is None else json.dumps(body).encode(), given)
    answer = connection.getresponse()
    content = answer.read()
    if answer.status not in (200, 202):
        raise BenchFailed(f"POST {path}: status {answer.status}: {content[:300].decode(errors='replace')}")
    return {name.lower(): value for name, value in answer.headers.items()}, content


def open_session(port: int, heads: Heads | None = None) -> Heads:
    """Open a host session with these heads; the heads every later message carries, these among them."""
    own = heads or {}
    opening = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": _OPENING}
    answered, content = post(port, opening, own)
    later = {**own, "MCP-Protocol-Version": _result(content).get("protocolVersion", "2025-11-25")}
    if given := answered.get("mcp-session-id"):
        later["Mcp-Session-Id"] = given
    post(port, {"jsonrpc": "2.0", "method": "notifications/initialized"}, later)
    return later


def ask(port: int, heads: Heads, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """The result of one request."""
    return _result(post(port, {"jsonrpc": "2.0", "id": 2, "method": method, "params": params}, heads)[1])


def _result(content: bytes) -> dict[str, Any]:
    if content.startswith((b"event:", b"id:", b"data:")):
        content = content.rpartition(b"data:")[2]
    message = json.loads(content)
    if not isinstance(message.get("result"), dict):
        raise BenchFailed(f"no result: {content[:300].decode(errors='replace')}")
    result: dict[str, Any] = message["result"]
    return result


def counts(stub_port: int) -> dict[str, int]:
    """What the stub holds and has answered."""
    counted: dict[str, int] = json.loads(post(stub_port, None, path="/control/counts")[1])
    return counted


def release(stub_port: int) -> None:
    """Let the stub answer every call it holds."""
    post(stub_port, None, path="/control/release")


def create(port: int, heads: Heads, params: dict[str, Any]) -> str:
    """Create a task; its id. A server that answers with a bare task passes too."""
    return _created(ask(port, heads, "tools/call", params))


def create_many(port: int, sessions: Sequence[Heads], params: dict[str, Any], count: int) -> list[str]:
    """Create `count` tasks over one connection, the sessions in turn; their ids."""
    message = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_BOUND)
    try:
        answers = (_post_on(connection, message, sessions[at % len(sessions)], PATH) for at in range(count))
        return [_created(_result(content)) for _, content in answers]
    finally:
        connection.close()


def _created(result: dict[str, Any]) -> str:
    task_id: str = result.get("task", result)["taskId"]
    return task_id
