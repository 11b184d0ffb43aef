"""What a scripted server says of itself, answers and has received, whatever carries its messages."""

import asyncio
from typing import Any, Final, Literal

from helpers.modern_schema import LISTEN, SERVER, TASKS, VERSION
from helpers.server.listens import Listens
from helpers.server.replies import Reply, Turn, error, result
from helpers.waiting import bounded

Era = Literal["legacy", "modern", "both"]
MODERN_REVISION: Final = "2026-07-28"


class Script:
    """A server without a carrier; everything may be changed while it runs.

    Without a script it opens sessions, lists `tools`, and answers every tool with its arguments as structured content.
    Any other request has an empty result in the legacy era, and is unknown in the modern one. `script` has replies for
    tools by name, `methods` for any method of JSON-RPC. `revision` is what a handshake negotiates, `versions` those
    spoken without one; `page_size` is how many tools one page of `tools/list` holds.
    """

    def __init__(self, era: Era = "legacy", *, revision: str = "2025-11-25", page_size: int | None = None) -> None:
        self.era, self.revision, self.page_size = era, revision, page_size
        self.versions: list[str] = [MODERN_REVISION]
        self.capabilities: dict[str, Any] = {"tools": {"listChanged": True}}
        self.info: dict[str, Any] | None = {"name": "scripted", "version": "1"}
        """Its name and version; None says neither."""
        self.also: dict[str, Any] = {"instructions": "Do as the script says."}
        """What else it says of itself."""
        self.cache = {"ttlMs": 5000, "cacheScope": "public"}
        """How long its lists of the modern era may be cached."""
        self.tools: list[dict[str, Any]] = [{"name": "echo", "inputSchema": {"type": "object"}}]
        self.script: dict[str, Reply] = {}
        self.methods: dict[str, Reply] = {}
        self.listens = Listens()

    def speaks_modern(self, message: Any) -> bool:
        """Whether it answers a message as the modern era has it."""
        if self.era != "both":
            return self.era == "modern"
        params = message.get("params") if isinstance(message, dict) else None
        return isinstance(params, dict) and VERSION in (params.get("_meta") or {})

    @property
    def serves_tasks(self) -> bool:
        """Whether it says that it makes tasks of calls; `modern_tasks` makes some."""
        return TASKS in self.capabilities.get("extensions", {})

    # --- what it received

    @property
    def messages(self) -> list[dict[str, Any]]:
        """All messages that it received, in order."""
        raise NotImplementedError

    def heard(self, method: str) -> list[dict[str, Any]]:
        """The messages of that method, in order."""
        return [message for message in self.messages if message.get("method") == method]

    @property
    def replies(self) -> list[dict[str, Any]]:
        """The responses to its own requests."""
        return [message for message in self.messages if "method" not in message]

    async def reply_to(self, id: Any) -> dict[str, Any]:
        """The response to its own request of that id, once it has come."""
        found: list[dict[str, Any]] = []
        async with bounded():
            while not found:
                await asyncio.sleep(0)
                found = [reply for reply in self.replies if reply["id"] == id]
        return found[0]

    @property
    def cancelled(self) -> list[Any]:
        """The ids of the requests that `notifications/cancelled` named."""
        return [message["params"]["requestId"] for message in self.heard("notifications/cancelled")]

    # --- what it answers

    async def reply(self, turn: Turn) -> Any:
        """Answer a request, as the test says or as usual."""
        method = turn.message["method"]
        return await self.methods.get(method, self.usual)(turn)

    async def usual(self, turn: Turn) -> Any:
        """Answer a request for whose method there is no reply in `methods`."""
        method = turn.message["method"]
        if method == "tools/call":
            params = turn.message["params"]
            plain = result({"content": [], "structuredContent": params.get("arguments", {})})
            return await self.script.get(params["name"], plain)(turn)
        if method == "tools/list":
            return await result(self._page(turn) | (self.cache if turn.is_modern else {}))(turn)
        if turn.is_modern:
            return await self._usual_modern(method, turn)
        if method == "initialize":
            return await turn.respond(turn.answer(self.handshake()), headers=self.new_session())
        return await result({})(turn)

    async def _usual_modern(self, method: str, turn: Turn) -> Any:
        if method == "server/discover":
            return await result(self.discovery())(turn)
        if method == LISTEN:
            return await self.listens.serve(turn)
        return await error(-32601, "no such method", status=404)(turn)

    def handshake(self) -> dict[str, Any]:
        """The result of `initialize`."""
        named = {} if self.info is None else {"serverInfo": self.info}
        return {"protocolVersion": self.revision, "capabilities": self.capabilities, **named, **self.also}

    def discovery(self) -> dict[str, Any]:
        """The result of `server/discover`."""
        meta = ({} if self.info is None else {SERVER: self.info}) | self.also.get("_meta", {})
        found = {"supportedVersions": self.versions, "capabilities": self.capabilities, **self.cache, **self.also}
        return {**found, "_meta": meta}

    def new_session(self) -> dict[str, str]:
        """The headers that name a new session, where a carrier has some."""
        return {}

    def _page(self, turn: Turn) -> dict[str, Any]:
        start = int(turn.message.get("params", {}).get("cursor", 0))
        if self.page_size is None or start + self.page_size >= len(self.tools):
            return {"tools": self.tools[start:]}
        end = start + self.page_size
        return {"tools": self.tools[start:end], "nextCursor": str(end)}
