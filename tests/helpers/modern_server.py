"""A scripted MCP server of the modern era on a real socket, as `scripted_upstream` has one of the legacy era.

It answers `server/discover` and whatever else a server of tools has to, tools by `script`, other methods by `methods`,
and refuses a request whose headers do not say what its body says; `faults` has every such refusal. The replies of
`scripted_replies` serve here as well: their results become complete ones. `Rounds` asks for input round after round.
With `dual` it speaks the legacy era, too.
"""

import asyncio
import base64
import json
from contextlib import suppress
from typing import Any, Final

from aiohttp import ClientConnectionError, web

from helpers.modern_host import NAMED
from helpers.modern_schema import CAPABILITIES, LISTEN, SERVER, SUBSCRIPTION, TASKS, VERSION
from helpers.scripted_replies import Turn, event, open_stream, result
from helpers.scripted_upstream import Recorded, ScriptedServer
from helpers.waiting import eventually

REVISION: Final = "2026-07-28"
_WISHES: Final = {
    "notifications/tools/list_changed": "toolsListChanged",
    "notifications/prompts/list_changed": "promptsListChanged",
    "notifications/resources/list_changed": "resourcesListChanged",
    "notifications/widgets/changed": "widgetsChanged",
}


class ModernTurn(Turn):
    """A request that waits for its reply; results are complete ones unless they say otherwise."""

    def answer(self, value: Any) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": self.id, "result": {"resultType": "complete", **value}}

    @property
    def meta(self) -> dict[str, Any]:
        """What the request says about itself."""
        meta: dict[str, Any] = self.message["params"]["_meta"]
        return meta


class Rounds:
    """A reply that asks round after round; each round is an InputRequiredResult without its type.

    A retry has to bring back the state of the round before, or none where there was none, and nothing but answers to
    what was asked. The call is answered with `answer`, or else with the answers of all rounds in its structured
    content. `states` are what the retries brought.
    """

    def __init__(self, *rounds: dict[str, Any], answer: Any = None) -> None:
        self._rounds = rounds
        self._answer = answer
        self.answers: list[Any] = []
        self.states: list[Any] = []
        self.turns: list[Turn] = []

    async def __call__(self, turn: Turn) -> web.StreamResponse:
        params, number = turn.message["params"], len(self.turns)
        self.turns.append(turn)
        if number > 0:
            before = self._rounds[number - 1]
            state, answers = params.get("requestState"), params.get("inputResponses", {})
            if state != before.get("requestState") or not set(answers) <= set(before.get("inputRequests", {})):
                return refusal(turn.message, -32602, "not what was asked for", status=200)
            self.states.append(state)
            self.answers.append(answers)
        if number < len(self._rounds):
            return await result({"resultType": "input_required", **self._rounds[number]})(turn)
        done = {"content": [], "structuredContent": {"answers": self.answers}}
        return await result(done if self._answer is None else self._answer)(turn)


class ModernServer(ScriptedServer):
    """The server; everything but its address may be changed while it runs."""

    def __init__(self, *, dual: bool = False, page_size: int | None = None, revision: str = "2025-11-25") -> None:
        super().__init__(revision=revision, page_size=page_size)
        self.dual = dual
        self.versions: list[str] = [REVISION]
        """Those it speaks without a handshake."""
        self.cache = {"ttlMs": 5000, "cacheScope": "public"}
        """What lists and the like say of their keeping."""
        self.faults: list[str] = []
        """What it refused because headers and body did not agree."""
        self.left: list[dict[str, Any]] = []
        """The requests whose response stream was closed before it had ended."""
        self.tells_of_tasks = False
        """Whether listens may be for its own tasks."""
        self._listens: dict[web.StreamResponse, dict[str, Any]] = {}
        self._ended = asyncio.Event()

    async def leaving(self, method: str, times: int = 1) -> dict[str, Any]:
        """The request of that method whose response stream is closed before its end, once one is."""
        await eventually(lambda: len([each for each in self.left if each["method"] == method]) >= times)
        return [each for each in self.left if each["method"] == method][times - 1]

    @property
    def serves_tasks(self) -> bool:
        """Whether it says that it makes tasks of calls itself; `native_tasks` has some for it."""
        return TASKS in self.capabilities.get("extensions", {})

    # --- what it tells

    @property
    def wishes(self) -> list[dict[str, Any]]:
        """What the open listens want to hear of."""
        return [message["params"]["notifications"] for message in self._listens.values()]

    async def listening(self, count: int = 1) -> None:
        """Wait until so many listens are open."""
        await eventually(lambda: len(self._listens) >= count)

    async def push(self, *messages: Any) -> None:
        """Say something to every listener that wants it, under its own id; and on every GET stream of the other era."""
        await super().push(*messages)
        for response, asked in tuple(self._listens.items()):
            for message in messages:
                if _wants(asked["params"]["notifications"], message):
                    with suppress(ConnectionResetError):
                        await response.write(event(_tagged(message, asked["id"])))

    def end_listens(self) -> None:
        """End every listen with its result."""
        self._ended.set()
        self._ended = asyncio.Event()

    async def stop(self) -> None:
        self._ended.set()
        await super().stop()

    # --- what it does by itself

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        message: Any = None
        with suppress(ValueError):
            message = json.loads(body)
        if self.dual and not _is_modern(request, message):
            return await super()._serve(request)
        headers = {name.lower(): value for name, value in request.headers.items()}
        peer = request.transport.get_extra_info("peername") if request.transport else ("", 0)
        self.requests.append(Recorded(request.method, request.path, headers, message, peer))
        if request.path != self.path:
            code, location = self.moved
            return web.Response(status=code, headers={"Location": location})
        if request.method != "POST":
            return web.Response(status=405, headers={"Allow": "POST"})
        if not isinstance(message, dict) or "method" not in message:
            return web.Response(status=400)
        if "id" not in message:
            return web.Response(status=202)
        return await self._carry(request, message)

    async def _carry(self, request: web.BaseRequest, message: dict[str, Any]) -> web.StreamResponse:
        refused = self._refused(request, message)
        if refused is not None:
            return refused
        try:
            return await self._reply(ModernTurn(self, request, message))
        except (asyncio.CancelledError, ClientConnectionError, ConnectionResetError):
            self.left.append(message)
            raise

    async def _reply(self, turn: Turn) -> web.StreamResponse:
        if not isinstance(turn, ModernTurn):
            return await super()._reply(turn)
        method, params = turn.message["method"], turn.message["params"]
        if method in self.methods:
            return await self.methods[method](turn)
        if method == "server/discover":
            meta = ({} if self.info is None else {SERVER: self.info}) | self.also.get("_meta", {})
            found = {"supportedVersions": self.versions, "capabilities": self.capabilities, **self.cache, **self.also}
            return await result({**found, "_meta": meta})(turn)
        if method == "tools/list":
            return await result({**self._page(turn), **self.cache})(turn)
        if method == "tools/call":
            plain = result({"content": [], "structuredContent": params.get("arguments", {})})
            return await self.script.get(params["name"], plain)(turn)
        if method == LISTEN:
            return await self._listen(turn)
        return refusal(turn.message, -32601, "no such method", status=404)

    async def _listen(self, turn: Turn) -> web.StreamResponse:
        granted = dict(turn.message["params"]["notifications"])
        if not self.tells_of_tasks:
            granted.pop("taskIds", None)
        response = await open_stream(turn.request)
        told = {"method": "notifications/subscriptions/acknowledged", "params": {"notifications": granted}}
        await response.write(event(_tagged({"jsonrpc": "2.0", **told}, turn.id)))
        self._listens[response] = turn.message
        try:
            await self._ended.wait()
        finally:
            del self._listens[response]
        await response.write(event(turn.answer({"_meta": {SUBSCRIPTION: turn.id}})))
        await response.write_eof()
        return response

    # --- what it refuses

    def _refused(self, request: web.BaseRequest, message: dict[str, Any]) -> web.Response | None:
        params = message.get("params") or {}
        meta = params.get("_meta") or {}
        version = meta.get(VERSION)
        if not isinstance(version, str) or not isinstance(meta.get(CAPABILITIES), dict):
            if message["method"] == "initialize":
                told = {"supported": self.versions, "requested": params.get("protocolVersion", "")}
                return refusal(message, -32022, "there is no handshake", told, status=400)
            return refusal(message, -32602, "_meta is not whole", status=400)
        for name, said in self._mirrored(message, version).items():
            sent = request.headers.getall(name, [])
            if [_decoded(each) for each in sent] != ([] if said is None else [said]):
                self.faults.append(f"{message['method']}: {name} is {sent}, not {said!r}")
                return refusal(message, -32020, f"{name} does not equal the body", status=400)
        if version not in self.versions:
            return refusal(message, -32022, "no", {"supported": self.versions, "requested": version}, status=400)
        return None

    def _mirrored(self, message: dict[str, Any], version: str) -> dict[str, str | None]:
        """The headers that repeat the body, with what they have to say; None where one must not be there."""
        method, params = message["method"], message["params"]
        found: dict[str, str | None] = {"MCP-Protocol-Version": version, "Mcp-Method": method}
        found["Mcp-Name"] = params[NAMED[method]] if method in NAMED else None
        if method == "tools/call":
            schema = next((tool["inputSchema"] for tool in self.tools if tool["name"] == params["name"]), {})
            found |= _repeated(schema, params.get("arguments") or {})
        return found


def refusal(message: Any, code: int, text: str, more: Any = None, *, status: int) -> web.Response:
    """A JSON-RPC error under an HTTP status."""
    error = {"code": code, "message": text} | ({} if more is None else {"data": more})
    return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error}, status=status)


def _is_modern(request: web.BaseRequest, message: Any) -> bool:
    params = message.get("params") if isinstance(message, dict) else None
    return isinstance(params, dict) and VERSION in (params.get("_meta") or {})


def _wants(wishes: dict[str, Any], message: dict[str, Any]) -> bool:
    if message["method"] == "notifications/tasks":
        return message["params"]["taskId"] in wishes.get("taskIds", [])
    if message["method"] == "notifications/resources/updated":
        return message["params"]["uri"] in wishes.get("resourceSubscriptions", [])
    return wishes.get(_WISHES.get(message["method"], "")) is True


def _tagged(message: dict[str, Any], id: Any) -> dict[str, Any]:
    params = message.get("params", {})
    return {**message, "params": {**params, "_meta": {**params.get("_meta", {}), SUBSCRIPTION: id}}}


def _decoded(value: str) -> str:
    if value.startswith("=?base64?") and value.endswith("?="):
        return base64.b64decode(value[9:-2], validate=True).decode()
    return value


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
