"""A probe server: one MCP server per era that declares and serves everything, whether taskgate knows it or not.

It records each message as it came, and says the same in both eras: known and unknown extensions, vendor keys,
`experimental`, unknown members, `_meta` keys, content types, methods, notifications and questions. It knows no socket:
`ProbeServer.connect` gives a `Line`, and whoever carries messages calls `Line.receive`.

`python probe_server.py ERA FILE` serves standard input and output, and records into FILE, one line a message. Only the
standard library is used here, and nothing of taskgate.
"""

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

LEGACY, MODERN = "legacy", "modern"
REVISIONS: Final = {LEGACY: "2025-11-25", MODERN: "2026-07-28"}

OFFICIAL = "io.modelcontextprotocol/"
UI, SKILLS, EVENTS = f"{OFFICIAL}ui", f"{OFFICIAL}skills", f"{OFFICIAL}events"
AUTHORIZATION = f"{OFFICIAL}oauth-client-credentials"
THING, OTHER = "com.example/thing", "com.example/other"
MARK = "com.example/mark"
"""The key of `_meta` by which either side knows of which step of the probe a message is."""

CAPABILITIES, CLIENT, VERSION = (
    f"{OFFICIAL}{name}" for name in ("clientCapabilities", "clientInfo", "protocolVersion")
)
SERVER_INFO, SUBSCRIPTION = f"{OFFICIAL}serverInfo", f"{OFFICIAL}subscriptionId"

NOT_FOUND, INVALID, UNKNOWN_METHOD = -32002, -32602, -32601
APP, MISSING = "ui://probe/app", "probe://missing"
ICONS: Final = [{"src": "https://probe.example/icon.png", "mimeType": "image/png", "sizes": ["48x48"], "x": 1}]
TRACE: Final = f"00-{'1' * 32}-{'2' * 16}-01"
ANSWER: Final[dict[str, Any]] = {
    "traceparent": TRACE,
    "vendor/answer": {"a": [1, 2.50, "é"]},
    f"{OFFICIAL}other": "o",
    "io.modelcontextprotocol.skills/x": 1,
}
"""What is in the `_meta` of everything that either side says, besides the mark and the hop's own keys."""
SPOOFED: Final = {
    "io.taskgate/gateway": {"version": "0"},
    "io.taskgate/other": 1,
    f"{OFFICIAL}related-task": {"taskId": "t"},
}
"""Keys of `_meta` that only a gateway may say, or that name tasks of the hop."""
ODD: Final = {f"{OFFICIAL}clientInfo": {"name": "odd"}}
"""A key of the modern era that says nothing in a result."""
UNKNOWN: Final = {"x-unknown": {"kept": [True, None]}}
"""A member that no revision defines."""
FORM: Final = {"type": "object", "properties": {"it": {"type": "string"}}}

Record = dict[str, Any]
Say = Callable[[dict[str, Any]], None]


def declared(era: str) -> dict[str, Any]:
    """The capabilities of the server."""
    shared = {
        "tools": {"listChanged": True, **UNKNOWN},
        "resources": {"listChanged": True, "subscribe": True},
        "prompts": {"listChanged": True},
        "completions": {},
        "logging": {},
        "experimental": {"probe": {"on": True}},
        "events": {"top": True},
        "vendorThing": {"on": [1]},
    }
    extensions = {
        UI: {"server": {"a": 1}},
        SKILLS: {"directoryRead": True},
        EVENTS: {"listChanged": True},
        AUTHORIZATION: {},
        THING: {"settings": {"deep": [1]}},
        OTHER: {},
    }
    own: dict[str, Any] = (
        {"tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}} if era == LEGACY else {}
    )
    return {**shared, **own, "extensions": extensions}


INFO: Final = {
    "name": "probe",
    "version": "7",
    "title": "The probe",
    "description": "Everything",
    "websiteUrl": "https://probe.example/",
    "icons": ICONS,
    **UNKNOWN,
}
INSTRUCTIONS: Final = "Ask for everything.\n\u00e9 \u2028 end"


def tool(name: str, **more: Any) -> dict[str, Any]:
    """A tool as it is listed."""
    return {"name": name, "inputSchema": {"type": "object", **UNKNOWN}, **more}


TOOLS: Final = [
    tool(
        "show",
        title="Show",
        description="Shows everything",
        icons=ICONS,
        annotations={"readOnlyHint": True, "vendorHint": 1},
        outputSchema={"type": "object"},
        _meta={**ANSWER, "ui": {"resourceUri": APP, "visibility": ["model", "app"]}, "ui/resourceUri": APP},
        **UNKNOWN,
    ),
    tool("app", _meta={"ui": {"resourceUri": APP, "visibility": ["app"]}, "openai/outputTemplate": APP}),
    *(tool(name) for name in ("tell", "refuse", "partial", "ask", "ask_unknown", "push", "done")),
]
HTML: Final[dict[str, Any]] = {
    "uri": APP,
    "mimeType": "text/html;profile=mcp-app",
    "text": "<!doctype html>\u00e9<script>1 < 2</script>",
    "_meta": {"ui": {"csp": {"connectDomains": ["https://a.example"]}, "prefersBorder": True}, **ANSWER},
    **UNKNOWN,
}
RESOURCES: Final[list[dict[str, Any]]] = [
    {
        "uri": APP,
        "name": "app",
        "title": "App",
        "icons": ICONS,
        "mimeType": HTML["mimeType"],
        "size": 40,
        "annotations": {"priority": 0.5, "vendor": 1},
        "_meta": {"ui": {"domain": "d"}, **ANSWER},
        **UNKNOWN,
    }
]
TEMPLATES: Final[list[dict[str, Any]]] = [
    {"uriTemplate": "probe://{x}", "name": "t", "icons": ICONS, "_meta": ANSWER, **UNKNOWN}
]
PROMPTS: Final[list[dict[str, Any]]] = [
    {"name": "p", "icons": ICONS, "arguments": [{"name": "a", "x": 1}], "_meta": {"ui": {"a": 1}, **ANSWER}, **UNKNOWN}
]
CONTENT: Final = [
    {"type": "text", "text": "shown", "annotations": {"vendor": 1}, "_meta": ANSWER, "x": 1},
    {"type": "vendor/widget", "widget": {"deep": [1.0]}},
    {"type": "resource_link", "uri": APP, "name": "app", "icons": ICONS, "x": 1},
    {"type": "resource", "resource": HTML, "x": 1},
]
SKILL: Final = {
    "uri": "skill://probe/SKILL.md",
    "frontmatter": {"name": "probe", "description": "Probes", "vendor": {"a": 1}},
    "resources": [{"uri": "skill://probe/a.txt", "digest": f"sha256:{'0' * 64}", "size": 3}],
}
CACHED: Final = frozenset(
    f"{each}/list" for each in ("tools", "resources", "resources/templates", "prompts", "skills", "thing")
) | {"resources/read", "resources/directory/read", "skills/get", "server/discover"}
"""Methods whose results say how long they may be kept, in the modern era."""
PLAIN: Final[dict[str, Any]] = {
    "tools/list": {"tools": TOOLS},
    "resources/list": {"resources": RESOURCES},
    "resources/templates/list": {"resourceTemplates": TEMPLATES},
    "prompts/list": {"prompts": PROMPTS},
    "prompts/get": {"description": "p", "messages": [{"role": "user", "content": CONTENT[0], "x": 1}]},
    "completion/complete": {"completion": {"values": ["a"], "x": 1}},
    "logging/setLevel": {},
    "resources/subscribe": {},
    "resources/unsubscribe": {},
    "ping": {},
    "resources/read": {"contents": [HTML]},
    "skills/list": {"skills": [SKILL]},
    "skills/get": {"skill": SKILL},
    "resources/directory/read": {"resources": RESOURCES},
    "events/list": {"events": [{"name": "probe.changed", "description": "d", "delivery": ["poll"], **UNKNOWN}]},
    "events/poll": {"events": [], "cursor": "c", "truncated": False, "hasMore": False, "nextPollMs": 5000},
    "thing/do": {"done": {"deep": [1.50]}},
    "thing/list": {"things": [1]},
    "other/do": {"done": True},
    "ui/do": {"done": True},
}
"""What each method is answered that does nothing."""
ERRORS: Final = {"events/subscribe": -32023, "thing/refuse": -32023, "skills/refuse": -32050}
PUSHED: Final = (
    ("notifications/thing/changed", "thingChanged"),
    ("notifications/other/changed", "otherChanged"),
    ("notifications/events/list_changed", "eventsListChanged"),
    ("notifications/stray/changed", None),
    ("notifications/resources/updated", "resourceSubscriptions"),
    ("notifications/tools/list_changed", "toolsListChanged"),
)
"""What the server says without being asked, with the member of the modern filter that asks for it."""


def meta(step: str, **more: Any) -> dict[str, Any]:
    """The `_meta` of something that the server says in a step."""
    return {MARK: step, **ANSWER, **SPOOFED, **more}


def note(method: str, step: str, **params: Any) -> dict[str, Any]:
    """A notification of the server."""
    return {"jsonrpc": "2.0", "method": method, "params": {"mark": step, **UNKNOWN, **params, "_meta": meta(step)}}


class Line:
    """One conversation: a session of the legacy era, or all that a modern server hears.

    `say` is for what answers nothing. In the modern era such words go to the listens.
    """

    def __init__(self, era: str, record: Callable[[Record], None], say: Say) -> None:
        self._era = era
        self._record = record
        self._say = say
        self._asked: dict[Any, Callable[[Any], None]] = {}
        self._listens: dict[Any, tuple[dict[str, Any], Say, list[str]]] = {}
        self._pushed: list[str] = []
        self._answers: dict[str, Any] = {}
        self._waits: list[Callable[[], None]] = []
        self._declared: dict[str, Any] = {}

    def receive(self, message: dict[str, Any], reply: Say, headers: dict[str, str] | None = None) -> None:
        """Take a message of the host; `reply` says what belongs to it, its answer last."""
        params = message.get("params") or {}
        if message.get("method") == "initialize":
            self._declared = params.get("capabilities", {})
        said = params.get("_meta") or {}
        capabilities = said.get(CAPABILITIES, {}) if self._era == MODERN else self._declared
        self._record({"message": message, "headers": headers or {}, "declared": capabilities})
        if "method" not in message:
            resume = self._asked.pop(message["id"], None)
            if resume is not None:
                resume(message.get("result", {"error": message.get("error")}))
        elif "id" in message:
            # Whoever stands before the server greets it without the host's mark.
            is_greeting = message["method"] in ("initialize", "server/discover")
            self._answer(message, params, "welcome" if is_greeting else str(said.get(MARK)), reply)
        elif message["method"] == "notifications/cancelled":
            self.close(params.get("requestId"))

    def close(self, id: Any) -> None:
        """Forget a request that its host gave up."""
        self._listens.pop(id, None)

    def _answer(self, message: dict[str, Any], params: dict[str, Any], step: str, reply: Say) -> None:
        id, method = message["id"], message["method"]

        def respond(result: dict[str, Any], **more: Any) -> None:
            reply({"jsonrpc": "2.0", "id": id, "result": {**self._typed(method, step), **result, **more}})

        def refuse(code: int, message: str = "Refused") -> None:
            data = {"vendor": {"a": 1}, "kind": "probe"}
            reply({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message, "data": data}})

        match method:
            case "initialize" if self._era == LEGACY:
                respond({"protocolVersion": REVISIONS[LEGACY], "serverInfo": INFO, **self._welcome()})
            case "server/discover" if self._era == MODERN:
                respond({"supportedVersions": [REVISIONS[MODERN]], **self._welcome()})
            case "subscriptions/listen" if self._era == MODERN:
                self._listen(id, params["notifications"], reply)
            case "resources/read" | "skills/get" if params["uri"] not in (APP, SKILL["uri"]):
                refuse(NOT_FOUND if self._era == LEGACY else INVALID, "Not found")
            case "events/stream":
                for name in ("active", "event"):
                    told = note(f"notifications/events/{name}", step, cursor="c")
                    told["params"]["_meta"][SUBSCRIPTION] = id
                    reply(told)
                respond({"_meta": {**self._typed(method, step)["_meta"], SUBSCRIPTION: id}})
            case "thing/partial":
                respond({"part": 1}, **({} if self._era == LEGACY else {"resultType": "partial"}))
            case "tools/call":
                self._call(params, step, respond, refuse, reply)
            case _ if method in ERRORS:
                refuse(ERRORS[method])
            case _ if method in PLAIN:
                respond({**PLAIN[method], **UNKNOWN})
            case _:
                refuse(UNKNOWN_METHOD)

    def _welcome(self) -> dict[str, Any]:
        return {"capabilities": declared(self._era), "instructions": INSTRUCTIONS, **UNKNOWN}

    def _typed(self, method: str, step: str) -> dict[str, Any]:
        """What is in each result besides its own members."""
        if self._era == LEGACY:
            return {"_meta": meta(step, **ODD)}
        kept = {"ttlMs": 5000, "cacheScope": "public"} if method in CACHED else {}
        return {"resultType": "complete", **kept, "_meta": meta(step, **ODD, **{SERVER_INFO: INFO})}

    # --- tools

    def _call(
        self, params: dict[str, Any], step: str, respond: Callable[..., None], refuse: Callable[[int], None], reply: Say
    ) -> None:
        arguments = params.get("arguments", {})
        match params["name"]:
            case "tell":
                token = params["_meta"].get("progressToken")
                reply(note("notifications/progress", step, progressToken=token, progress=1, message="m"))
                for method in ("notifications/message", *(method for method, _ in PUSHED[:4])):
                    reply(note(method, step, **({"level": "alert", "data": {"a": 1}} if "message" in method else {})))
                respond({"content": []})
            case "refuse":
                refuse(arguments["code"])
            case "partial":
                respond({"content": [], "part": 1}, **({} if self._era == LEGACY else {"resultType": "partial"}))
            case "ask" | "ask_unknown" as name:
                self._ask(name, params, step, respond, reply)
            case "push":
                respond({"content": []})
                self._push(step)
            case "done":
                self._waits.append(lambda: respond({"content": [], "structuredContent": self._answers}))
                self._wake()
            case _:
                respond({"content": CONTENT, "structuredContent": {"deep": [1.50], "said": arguments}, **UNKNOWN})

    def _ask(self, name: str, params: dict[str, Any], step: str, respond: Callable[..., None], reply: Say) -> None:
        """Ask something in the middle of a call: a question that each era knows, or one that neither does."""
        questions: dict[str, dict[str, Any]] = {
            "ask": {"method": "elicitation/create", "params": {"message": "Which?", "requestedSchema": FORM}},
            "ask_unknown": {"method": "thing/ask", "params": {"a": 1}},
        }
        question = questions[name]
        question["params"] |= {**UNKNOWN, "_meta": meta(step)}
        if self._era == LEGACY:
            self._request({**question, "id": step}, reply, lambda said: respond(_told(said)))
        elif "inputResponses" in params:
            respond(_told(params["inputResponses"].get("q")))
        else:
            respond({"inputRequests": {"q": question}, "requestState": "state"}, resultType="input_required")

    def _request(self, question: dict[str, Any], say: Say, then: Callable[[Any], None]) -> None:
        self._asked[question["id"]] = then
        say({"jsonrpc": "2.0", **question})

    # --- what is said without being asked

    def _push(self, step: str) -> None:
        self._pushed.append(step)
        if self._era == MODERN:
            for id in self._listens:
                self._tell(id)
            return

        def answered(said: Any) -> None:
            self._answers[step] = said
            self._wake()

        question = {"id": step, "method": "thing/ask", "params": {"a": 1, "_meta": meta(step)}}
        self._request(question, self._say, answered)
        for method, _ in PUSHED:
            self._say(note(method, step, **_subject(method)))

    def _wake(self) -> None:
        """Answer those that wait until every question of the server was answered."""
        if not self._asked:
            waiting, self._waits = self._waits, []
            for each in waiting:
                each()

    def _listen(self, id: Any, wishes: dict[str, Any], reply: Say) -> None:
        self._listens[id] = (wishes, reply, [])
        granted = {"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged"}
        about = meta("listen", **{SUBSCRIPTION: id})
        reply({**granted, "params": {"notifications": wishes, **UNKNOWN, "_meta": about}})
        self._tell(id)

    def _tell(self, id: Any) -> None:
        """Say on a listen what was pushed before it was opened, too: nobody has to be in time."""
        wishes, reply, heard = self._listens[id]
        for step in self._pushed:
            if step in heard:
                continue
            heard.append(step)
            for method, wish in PUSHED:
                if wish is None or wishes.get(wish):
                    message = note(method, step, **_subject(method))
                    message["params"]["_meta"][SUBSCRIPTION] = id
                    reply(message)


def _told(said: Any) -> dict[str, Any]:
    return {"content": [], "structuredContent": {"answer": said}}


def _subject(method: str) -> dict[str, Any]:
    return {"uri": APP} if method == "notifications/resources/updated" else {}


def serve(era: str, file: Path) -> None:
    """Serve standard input and output, to the end of the input."""
    with file.open("a", encoding="utf-8") as records:

        def say(message: dict[str, Any]) -> None:
            sys.stdout.write(json.dumps(message) + "\n")
            sys.stdout.flush()

        def record(entry: Record) -> None:
            records.write(json.dumps(entry) + "\n")
            records.flush()

        line = Line(era, record, say)
        for text in sys.stdin:
            with suppress(ValueError):
                line.receive(json.loads(text), say)


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]))
