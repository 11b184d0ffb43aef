"""A server of either era whose every word is labelled with the caller that it is for, which arguments tell it.

Calls wait for each other and are answered out of order. It knows no socket, as `probe_server`, and serves standard
input and output as `python labelled_server.py ERA`. Only the standard library is used here, and nothing of taskgate.
"""

import json
import sys
from collections.abc import Callable
from typing import Any, Final

LEGACY, MODERN = "legacy", "modern"
SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"
THING, CHANGED, FILTER = "com.example/thing", "notifications/thing/changed", "thingChanged"
UPDATED: Final = "notifications/resources/updated"
TOGETHER: Final = 5
"""So many calls wait for each other."""
Say = Callable[[dict[str, Any]], None]


def place_of(who: str) -> str:
    """The resource of a caller."""
    return f"private://{who}"


def label(who: str, number: object) -> str:
    """The label of what is for that caller, because of that call."""
    return f"label:{who}|{number}|"


def labels(message: dict[str, Any]) -> set[tuple[str, int]]:
    """The labels of a message."""
    found = (each.split("|") for each in json.dumps(message).split("label:")[1:])
    return {(who, int(number)) for who, number, *_ in found}


class LabelledLine:
    """One conversation; see `probe_server.Line`."""

    def __init__(self, era: str, record: Callable[[dict[str, Any]], None], say: Say) -> None:
        self._era = era
        self._record = record
        self._say = say
        self._subscribed: set[str] = set()
        self._listens: dict[Any, tuple[dict[str, Any], Say]] = {}
        self._waiting: list[Callable[[], None]] = []

    def receive(self, message: dict[str, Any], reply: Say, headers: dict[str, str] | None = None) -> None:
        """Take a message of the host."""
        id, method, params = message.get("id"), message.get("method"), message.get("params") or {}

        def respond(result: dict[str, Any]) -> None:
            typed = {"resultType": "complete"} if self._era == MODERN else {}
            reply({"jsonrpc": "2.0", "id": id, "result": {**typed, **result}})

        match method:
            case "tools/call":
                self._record(message)
                self._call(params, reply, respond)
            case "subscriptions/listen":
                self._listen(id, params["notifications"], reply)
            case "initialize" if self._era == LEGACY:
                info = {"name": "labelled", "version": "1"}
                respond({"protocolVersion": "2025-11-25", "serverInfo": info, "capabilities": _declared()})
            case "server/discover" if self._era == MODERN:
                kept = {"ttlMs": 0, "cacheScope": "private"}
                respond({"supportedVersions": ["2026-07-28"], "capabilities": _declared(), **kept})
            case "tools/list":
                kept = {"ttlMs": 0, "cacheScope": "private"} if self._era == MODERN else {}
                respond({"tools": [{"name": "work", "inputSchema": {"type": "object"}}], **kept})
            case "resources/subscribe":
                self._subscribed.add(params["uri"])
                respond({})
            case "notifications/cancelled":
                self.close(params.get("requestId"))
            case _ if id is not None:
                reply({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "Method not found"}})

    def close(self, id: Any) -> None:
        """Forget a request that its host gave up."""
        self._listens.pop(id, None)

    def _call(self, params: dict[str, Any], reply: Say, respond: Callable[[dict[str, Any]], None]) -> None:
        arguments = params["arguments"]
        who, number = arguments["who"], arguments["number"]
        token = params["_meta"]["progressToken"]

        def answer() -> None:
            said = {"progressToken": token, "progress": 1, "message": label(who, number)}
            reply({"jsonrpc": "2.0", "method": "notifications/progress", "params": said})
            reply({"jsonrpc": "2.0", "method": CHANGED, "params": {"it": label(who, number)}})
            self._tell(who, number)
            respond({"content": [{"type": "text", "text": label(who, number)}]})

        self._waiting.append(answer)
        if len(self._waiting) >= TOGETHER or arguments["now"]:
            waiting, self._waiting = self._waiting, []
            for each in reversed(waiting):
                each()

    def _tell(self, who: str, number: int) -> None:
        """Say in the session, or on the listens, that something of that caller's changed."""
        if place_of(who) in self._subscribed:
            updated = {"uri": place_of(who), "it": label(who, number)}
            self._say({"jsonrpc": "2.0", "method": UPDATED, "params": updated})
        for id, (wishes, reply) in self._listens.items():
            if place_of(who) in wishes.get("resourceSubscriptions", []):
                about = {"it": label(who, number), "_meta": {SUBSCRIPTION: id}}
                reply({"jsonrpc": "2.0", "method": UPDATED, "params": {"uri": place_of(who), **about}})
                if wishes.get(FILTER):
                    reply({"jsonrpc": "2.0", "method": CHANGED, "params": about})

    def _listen(self, id: Any, wishes: dict[str, Any], reply: Say) -> None:
        self._listens[id] = (wishes, reply)
        about = {"notifications": wishes, "_meta": {SUBSCRIPTION: id}}
        reply({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": about})


def _declared() -> dict[str, Any]:
    resources = {"subscribe": True, "listChanged": True}
    return {"tools": {"listChanged": True}, "resources": resources, "extensions": {THING: {}}}


def serve(era: str) -> None:
    """Serve standard input and output, to the end of the input."""

    def say(message: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()

    line = LabelledLine(era, lambda _: None, say)
    for text in sys.stdin:
        line.receive(json.loads(text), say)


if __name__ == "__main__":
    serve(sys.argv[1])
