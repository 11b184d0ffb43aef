"""A server that is a program, of either era, that runs as long as a file is there: `gated_program.py ERA FILE`.

It reads the file, an object, for what it says of itself beside what it has to.
"""

import json
import sys
from os import _exit
from pathlib import Path
from typing import Any

ERA, GATE = sys.argv[1], Path(sys.argv[2])


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """The response to a request."""
    if not GATE.exists():
        _exit(3)
    method = asked["method"]
    if method == ("initialize" if ERA == "legacy" else "server/discover"):
        said = {"capabilities": {"tools": {}}, **json.loads(GATE.read_text())}
        if ERA == "legacy":
            return {"result": {"protocolVersion": "2025-11-25", **said}}
        kept = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        return {"result": {**kept, "supportedVersions": ["2026-07-28"], **said}}
    if method == "tools/call":
        return {"result": {"resultType": "complete", "content": []} if ERA == "modern" else {"content": []}}
    if method == "tools/list":
        page = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
        kept = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        return {"result": {**kept, **page} if ERA == "modern" else page}
    if method == "ping" and ERA == "legacy":
        return {"result": {}}
    return {"error": {"code": -32601, "message": "Method not found"}}


if __name__ == "__main__":
    if not GATE.exists():
        sys.exit(3)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer(message)}) + "\n")
            sys.stdout.flush()
