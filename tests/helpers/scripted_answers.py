"""A scripted MCP server, whatever carries its messages: what it answers, and what it was told.

    line, asked = await program.asked("tools/call")
    line.answer(asked, {"content": []})

Without a script it welcomes sessions, lists one tool, answers every tool with its arguments, and any other request with
an empty result. `silent` are the methods (and `tool:<name>`) that it leaves to the test; `methods` has other answers:
from the message to the text or the object that is said, or None for nothing. Of the modern era with `revision`
2026-07-28: then `initialize` is unknown.
"""

from collections.abc import Callable
from typing import Any

from helpers.waiting import eventually

MODERN_REVISION = "2026-07-28"
Answer = Callable[[dict[str, Any]], Any]


class ScriptedAnswers:
    """The server. Each of `lines` has what was `heard` on it, and can `say`, `answer` and `exit`."""

    def __init__(self, revision: str = "2025-11-25") -> None:
        self.revision = revision
        self.capabilities: dict[str, Any] = {"tools": {"listChanged": True}}
        self.tools: list[dict[str, Any]] = [{"name": "echo", "inputSchema": {"type": "object"}}]
        self.silent: set[str] = set()
        self.methods: dict[str, Answer] = {}
        self.lines: list[Any] = []
        self.obeys = False
        """Whether it does what the messages `say`, `heard` and `exit` tell it to."""

    async def asked(self, method: str, times: int = 1) -> tuple[Any, dict[str, Any]]:
        """The request or notification of that method which came as the first, the second, …, and its line."""

        def found() -> list[tuple[Any, dict[str, Any]]]:
            return [(line, each) for line in self.lines for each in line.heard if each.get("method") == method]

        await eventually(lambda: len(found()) >= times)
        return found()[times - 1]

    def answer(self, line: Any, message: dict[str, Any]) -> None:
        """Say what is to be said to that."""
        method = message.get("method")
        if self.obeys:
            self._obey(line, message)
        if "id" not in message or method is None or {method, f"tool:{_tool(message)}"} & self.silent:
            return
        answered = self.methods.get(method, self._usual)(message)
        if answered is not None:
            line.say(answered)

    def _obey(self, line: Any, message: dict[str, Any]) -> None:
        match message["method"]:
            case "say":
                for each in message["params"]["lines"]:
                    line.say(line.written(each))
            case "heard":
                line.say(note("notifications/heard", all=list(line.heard)))
            case "exit":
                line.exit()

    def _usual(self, message: dict[str, Any]) -> dict[str, Any]:
        known: dict[str, Any] = {
            "tools/list": {"tools": self.tools},
            "tools/call": {"content": [], "structuredContent": message.get("params", {}).get("arguments", {})},
        }
        first = "server/discover" if self.revision == MODERN_REVISION else "initialize"
        known[first] = self._welcome()
        unknown = ({"server/discover", "initialize"} - {first}) & {message["method"]}
        if unknown:
            error = {"code": -32601, "message": "Method not found"}
            return {"jsonrpc": "2.0", "id": message["id"], "error": error}
        result = known.get(message["method"], {})
        if self.revision == MODERN_REVISION:
            result = {"resultType": "complete", **result}
        return {"jsonrpc": "2.0", "id": message["id"], "result": result}

    def _welcome(self) -> dict[str, Any]:
        info = {"name": "scripted", "version": "1"}
        if self.revision == MODERN_REVISION:
            cached = {"ttlMs": 5000, "cacheScope": "public"}
            return {
                "supportedVersions": [MODERN_REVISION],
                "capabilities": self.capabilities,
                "serverInfo": info,
                **cached,
            }
        return {"protocolVersion": self.revision, "capabilities": self.capabilities, "serverInfo": info}


def _tool(message: dict[str, Any]) -> Any:
    return message.get("params", {}).get("name")


def progress(token: Any, done: float) -> dict[str, Any]:
    """A notification of progress."""
    params = {"progressToken": token, "progress": done}
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}


def note(method: str, **params: Any) -> dict[str, Any]:
    """Any notification."""
    return {"jsonrpc": "2.0", "method": method, "params": params}


def asks(id: Any, method: str = "elicitation/create", **params: Any) -> dict[str, Any]:
    """A request of the server."""
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
