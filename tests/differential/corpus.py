"""What hosts of every revision say: usual requests, unusual ones, and such with something changed by chance.

All of it follows from a seed, so two processes play the same. A `Said` is one POST; `{session}` in a header is the
session of the host, `{task}` in a body the newest task.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from helpers.host.host import ACCEPT, NAMED

MODERN: Final = "2026-07-28"
TASKS: Final = "io.modelcontextprotocol/tasks"


@dataclass(frozen=True, slots=True)
class Said:
    """One POST of a host: header fields by name, and the bytes of its body."""

    headers: tuple[tuple[str, str], ...]
    body: bytes


def _usual(revision: str) -> Iterator[tuple[str, Any]]:
    """Methods and parameters that hosts of a revision send, in the order of a session."""
    yield "ping", None
    yield "tools/list", None
    yield "tools/list", {"cursor": "0"}
    for arguments in ({}, {"text": "hello"}, {"text": "ä\u2028😀", "deep": [[[{"a": None}]]]}, {"n": 1e300, "m": -0.0}):
        yield "tools/call", {"name": "echo", "arguments": arguments}
    yield "tools/call", {"name": "echo", "arguments": {}, "_meta": {"progressToken": 7, "x/y": [1]}}
    yield "tools/call", {"name": "talks", "arguments": {}, "_meta": {"progressToken": "p"}}
    yield "tools/call", {"name": "fails", "arguments": {}}
    yield "tools/call", {"name": "refuses", "arguments": {}}
    yield "tools/call", {"name": "broken", "arguments": {}}
    yield "tools/call", {"name": "x" * 300, "arguments": {}}
    yield "tools/call", {"name": "report", "arguments": {"of": "today"}}
    yield "tools/call", {"name": 7}
    yield "tools/call", {}
    yield "prompts/list", {}
    yield "prompts/get", {"name": "p", "arguments": {"a": "b"}}
    yield "resources/list", {"cursor": None}
    yield "resources/read", {"uri": "file:///etc"}
    yield "completion/complete", {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": ""}}
    yield "logging/setLevel", {"level": "info"}
    yield "unheard/of", {"a": 1}
    if revision in ("2025-11-25", MODERN):
        yield "tools/call", {"name": "report", "arguments": {"late": True}, "task": {"ttl": 60000}}
        for method in ("tasks/get", "tasks/result", "tasks/cancel", "tasks/update"):
            yield method, {"taskId": "{task}"}
            yield method, {"taskId": "0" * 43}
            yield method, {"taskId": 3}
        yield "tasks/list", {}
        yield "tasks/list", {"cursor": "no"}
    if revision == MODERN:
        yield "server/discover", {}


def legacy(revision: str) -> Iterator[Said]:
    """A session of a legacy revision, from `initialize` to many a message in it."""
    hello = {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "corpus", "version": "1"}}
    common = (("Accept", ACCEPT), ("Content-Type", "application/json"))
    yield Said(common, _message(1, "initialize", hello))
    inside = (*common, ("Mcp-Session-Id", "{session}"), ("Mcp-Protocol-Version", revision))
    yield Said(inside, b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
    for number, (method, params) in enumerate(_usual(revision), 2):
        yield Said(inside, _message(number, method, params))
    yield Said(inside, _message(None, "notifications/cancelled", {"requestId": 5}))
    yield Said(inside, b'{"jsonrpc":"2.0","id":"s","result":{}}')
    yield Said(common, _message(1, "tools/list", None))
    batch = b"[%b,%b]" % (_message("a", "ping", None), _message("b", "tools/list", {}))
    yield Said(inside, batch)


def modern() -> Iterator[Said]:
    """Requests of a modern host."""
    for number, (method, params) in enumerate(_usual(MODERN), 1):
        for tasks in (True, False):
            yield _modern(number, method, params, tasks=tasks)


def _modern(number: int, method: str, params: Any, *, tasks: bool) -> Said:
    capabilities = {"extensions": {TASKS: {}}} if tasks else {}
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "corpus", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    }
    inside = dict(params or {})
    inside["_meta"] = {**inside.get("_meta", {}), **meta}
    headers = [("Accept", ACCEPT), ("Content-Type", "application/json"), ("Mcp-Protocol-Version", MODERN)]
    headers.append(("Mcp-Method", method))
    named = inside.get(NAMED.get(method, ""))
    if isinstance(named, str):
        headers.append(("Mcp-Name", named))
    return Said(tuple(headers), _message(number, method, inside))


def _message(id: Any, method: str, params: Any) -> bytes:
    message: dict[str, Any] = {"jsonrpc": "2.0"}
    if id is not None:
        message["id"] = id
    message["method"] = method
    if params is not None:
        message["params"] = params
    return json.dumps(message, ensure_ascii=False).encode()


# --- changed by chance ------------------------------------------------------------------------------------------------

_PIECES: Final = (
    b"{}", b"[]", b"null", b"-1", b"1e999", b'""', b'"\\ud800"', b" ", b"\n", b"\x00", b"\xff", b"\xef\xbb\xbf",
    b"[" * 70, b",", b"}", b'"id":9,', b'"method":"ping",', b'"jsonrpc":"1.0",', b'"_meta":{},', b'"task":{},',
    b'"taskId":"x",',
)  # fmt: skip
_HEADERS: Final = (
    ("Accept", "application/json"), ("Accept", "text/event-stream"), ("Accept", "text/plain"),
    ("Content-Type", "text/plain"), ("Content-Type", "application/json; charset=latin-1"),
    ("Mcp-Protocol-Version", "1999-01-01"), ("Mcp-Protocol-Version", "2025-06-18"), ("Mcp-Session-Id", "nobody's"),
    ("Mcp-Method", "tools/list"), ("Mcp-Name", "other"), ("Mcp-Name", "=?base64?ZWNobw==?="),
    ("Mcp-Param-Text", "hello"), ("Origin", "https://evil.example"), ("Host", "evil.example"),
    ("Authorization", "Bearer x"), ("Last-Event-ID", "1"), ("Forwarded", "for=192.0.2.1"),
)  # fmt: skip


def changed(said: Said, chance: Random) -> Said:
    """The same with a few changes, of its body for the most part."""
    body, headers = said.body, list(said.headers)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        place = chance.randrange(len(body) + 1)
        match chance.randrange(8):
            case 0:
                body = body[:place] + body[place + chance.randrange(1, 4) :]
            case 1:
                body = body[:place] + chance.choice(_PIECES) + body[place:]
            case 2:
                end = place + chance.randrange(1, 30)
                body = body[:end] + body[place:]
            case 3:
                colons = [index for index, octet in enumerate(body) if octet in b":,"]
                place = chance.choice(colons or [0]) + 1
                body = body[:place] + chance.choice(_PIECES) + body[place:]
            case 4:
                body = bytes(octet ^ (index == place) for index, octet in enumerate(body))
            case 5:
                body = body[:place]
            case 6:
                name, value = chance.choice(_HEADERS)
                headers = [each for each in headers if each[0] != name] + [(name, value)]
            case 7:
                headers.pop(chance.randrange(len(headers)))
                headers = headers or [("Accept", ACCEPT)]
    return replace(said, body=body, headers=tuple(headers))
