"""A small MCP server over standard input and output, as `python program.py`, or `program.py --gate ERA FILE`.

Its tools: `echo` gives its arguments back, `who` says what the process is, `ask` asks its user which, `steps` sends
progress, `hold` waits until `release` is called in the same process or until it is cancelled, `crash` ends the process
in the middle of its call with status 3. `linger` waits for `stir`, heeding no cancel, and asks its user then. `big`
answers with so many bytes, in one of the ways of BIG. What it writes to standard error begins with `said: `.

It also takes three orders: `say` with lines, each written as it is, `heard`, after which it sends all that it received,
and `exit` with a status. With a gate it speaks that era, runs while the file is there, and says of itself what the
object in the file says. Where `CALLS` of its environment names a file, that gets a line for each process, with its
number, and for each call of `echo` and `hold`, with the arguments or the name. Only the standard library is used here,
and nothing of taskgate.
"""

import json
import os
import sys
from collections.abc import Callable
from os import _exit
from pathlib import Path
from typing import Any

ERA, GATE = (sys.argv[2], Path(sys.argv[3])) if sys.argv[1:2] == ["--gate"] else ("legacy", None)
FORM = {"message": "Which?", "requestedSchema": {"type": "object", "properties": {"it": {"type": "string"}}}}
TOOLS = ("echo", "who", "ask", "steps", "hold", "release", "crash", "linger", "stir", "big")
BIG = {
    "id first": '{"jsonrpc": "2.0", "id": %d, "result": {"content": [], "x": "%s"}}\n',
    "id last": '{"result": {"content": [], "x": "%s"}, "id": %d, "jsonrpc": "2.0"}\n',
    "id between": '{"result": {"x": "%s"}, "id": %d, "more": "%s"}\n',
    "question": '{"jsonrpc": "2.0", "id": "big-%d", "method": "roots/list", "params": {"x": "%s"}}\n',
    "junk": "Loading %d %s\n",
}
"""Ways to say too much: `%d` is the request, `%s` much."""

held: list[Any] = []
cancelled: list[Any] = []
asking: dict[str, Any] = {}
declared: dict[str, Any] = {}
lingering: list[Any] = []
told: list[Any] = []
received: list[Any] = []


def say(message: dict[str, Any]) -> None:
    """One message, on one line."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def record(said: Any) -> None:
    """One line in the file of calls, where there is one."""
    if "CALLS" in os.environ:
        with Path(os.environ["CALLS"]).open("a") as lines:
            lines.write(json.dumps(said) + "\n")


def answer(id: Any, result: Any) -> None:
    """The answer to a request."""
    say({"id": id, "result": {"resultType": "complete", **result} if ERA == "modern" else result})


def content(said: Any) -> dict[str, Any]:
    """What a tool gives back."""
    return {"content": [{"type": "text", "text": json.dumps(said)}], "structuredContent": said}


def stir(id: Any) -> None:
    """Have every call that lingers ask its user, and say a word first."""
    answer(id, content({"stirred": len(lingering)}))
    for each in lingering:
        asking[f"q-{each}"] = each
        say({"method": "notifications/message", "params": {"level": "alert", "data": "secret"}})
        say({"id": f"q-{each}", "method": "elicitation/create", "params": FORM})
    lingering.clear()


def big(id: Any, way: str, size: int) -> None:
    """So many bytes on one line; and the answer, where they are none."""
    parts = BIG[way].replace("%d", str(id)).split("%s")
    sys.stdout.write(("x" * size).join(parts))
    sys.stdout.flush()
    if way in ("question", "junk"):
        answer(id, content({"way": way}))


def call(id: Any, params: dict[str, Any]) -> None:
    """One call of a tool."""
    arguments = params.get("arguments") or {}
    match params["name"]:
        case "echo":
            record(arguments)
            answer(id, content(arguments))
        case "who":
            environment = {name: value for name, value in os.environ.items() if name != "LC_CTYPE"}
            process = {"pid": os.getpid(), "cwd": os.getcwd(), "arguments": sys.argv[1:], "environment": environment}
            answer(id, content({**process, "declared": declared, "cancelled": cancelled, "told": told}))
        case "ask":
            asking["q-1"] = id
            say({"id": "q-1", "method": "elicitation/create", "params": FORM})
        case "steps":
            token = (params.get("_meta") or {}).get("progressToken")
            for step in (1, 2, 3) if token is not None else ():
                progress = {"progressToken": token, "progress": step, "total": 3, "message": f"step {step}"}
                say({"method": "notifications/progress", "params": progress})
            answer(id, content({"steps": 3}))
        case "hold":
            record("hold")
            held.append(id)
        case "release":
            answer(id, content({"released": len(held)}))
            for each in held:
                answer(each, content({"held": True}))
            held.clear()
        case "crash":
            secret = os.environ.get("SECRET", "")
            sys.stderr.write(f"said: I end, {secret} {json.dumps(secret)} {secret!r} {[secret + chr(34)]}\n")
            sys.stderr.flush()
            _exit(3)
        case other if other in MORE:
            MORE[other](id, **arguments)
        case other:
            say({"id": id, "error": {"code": -32602, "message": f"There is no tool {other}"}})


MORE: dict[str, Callable[..., None]] = {"big": big, "linger": lingering.append, "stir": stir}


def of_itself() -> dict[str, Any]:
    """What it says of itself, whoever asks."""
    said: dict[str, Any] = {} if GATE is None else json.loads(GATE.read_text())
    return {"capabilities": {"tools": {}}, **said}


def obey(order: str, params: dict[str, Any]) -> None:
    """Do what an order says."""
    match order:
        case "say":
            sys.stdout.write("".join(f"{each}\n" for each in params["lines"]))
            sys.stdout.flush()
        case "heard":
            say({"method": "notifications/heard", "params": {"all": received}})
        case "exit":
            sys.exit(params["status"])


def hear(message: dict[str, Any]) -> None:
    """Act on one message."""
    id, method, params = message.get("id"), message.get("method"), message.get("params") or {}
    received.append(message)
    if GATE is not None and id is not None and not GATE.exists():
        _exit(3)
    cached = {"ttlMs": 0, "cacheScope": "private"} if ERA == "modern" else {}
    match method:
        case None:
            told.append(message.get("result", message.get("error")))
            if id in asking:
                answer(asking.pop(id), content({"answered": message.get("result")}))
        case "say" | "heard" | "exit":
            obey(method, params)
        case "initialize" if ERA == "legacy":
            declared.update(params["capabilities"])
            named = {"serverInfo": {"name": "talking", "version": "1"}}
            answer(id, {"protocolVersion": "2025-11-25", **named, **of_itself()})
        case "server/discover" if ERA == "modern":
            answer(id, {"supportedVersions": ["2026-07-28"], **cached, **of_itself()})
        case "tools/list":
            answer(id, {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS], **cached})
        case "tools/call":
            call(id, params)
        case "notifications/cancelled":
            cancelled.append(params["requestId"])
            if params["requestId"] in held:
                held.remove(params["requestId"])
        case "ping" if ERA == "legacy":
            answer(id, {})
        case _ if id is not None:
            say({"id": id, "error": {"code": -32601, "message": "Method not found"}})


if __name__ == "__main__":
    if GATE is not None and not GATE.exists():
        sys.exit(3)
    record(os.getpid())
    for line in sys.stdin.buffer:
        hear(json.loads(line))
