"""A probe host per era: it asks a server for everything there is, and writes down what it sees.

What it sees has names with dots, the same in both eras: `host.STEP.result…`, `host.STEP.error…`, and
`host.STEP.heard[METHOD]…` for what was said beside the answer. Ids and tokens are not written down.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from helpers.waiting import eventually

from .links import Link, Message, Start
from .observations import Observations, flat
from .probe_server import (
    ANSWER,
    APP,
    AUTHORIZATION,
    CAPABILITIES,
    CLIENT,
    EVENTS,
    ICONS,
    LEGACY,
    MARK,
    MISSING,
    MODERN,
    OFFICIAL,
    OTHER,
    PUSHED,
    REVISIONS,
    SERVER_INFO,
    SKILL,
    SKILLS,
    SUBSCRIPTION,
    THING,
    UI,
    UNKNOWN,
    VERSION,
    meta,
)

INFO: Final = {"name": "probe host", "version": "3", "title": "Host", "icons": ICONS, **UNKNOWN}
DECLARED: Final = {
    "roots": {"listChanged": True, **UNKNOWN},
    "sampling": {"tools": {}, "context": {}},
    "elicitation": {"form": {}, "url": {}, **UNKNOWN},
    "experimental": {"probe": {"host": True}},
    "events": {"top": True},
    "vendorThing": {"host": [1]},
    "extensions": {
        UI: {"mimeTypes": ["text/html;profile=mcp-app"], **UNKNOWN},
        SKILLS: {},
        EVENTS: {},
        AUTHORIZATION: {},
        THING: {"host": {"deep": [1]}},
        OTHER: {},
    },
}
WISHES: Final = {wish: True for _, wish in PUSHED if wish is not None} | {
    "resourceSubscriptions": [APP],
    "promptsListChanged": True,
    "resourcesListChanged": True,
}
ODD: Final = {SUBSCRIPTION: "odd"}
"""A key of the modern era that says nothing in a request."""
REVISION: Final = "MCP-Protocol-Version"


@dataclass(frozen=True, slots=True)
class Step:
    """One request; its name is in every observation of it."""

    name: str
    method: str
    params: Mapping[str, Any] = field(default_factory=dict)


def _call(name: str, tool: str, **arguments: Any) -> Step:
    return Step(name, "tools/call", {"name": tool, "arguments": arguments, **UNKNOWN})


STEPS: Final = (
    Step("tools", "tools/list", UNKNOWN),
    Step("resources", "resources/list", UNKNOWN),
    Step("templates", "resources/templates/list", UNKNOWN),
    Step("prompts", "prompts/list", UNKNOWN),
    Step("read", "resources/read", {"uri": APP, **UNKNOWN}),
    Step("read_missing", "resources/read", {"uri": MISSING}),
    Step("prompt", "prompts/get", {"name": "p", "arguments": {"a": "b"}, **UNKNOWN}),
    Step(
        "complete",
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": ""}, **UNKNOWN},
    ),
    _call("show", "show", a=[1, 2.5, None]),
    _call("app", "app"),
    _call("tell", "tell"),
    _call("partial", "partial"),
    *(_call(f"refuse_{abs(code)}", "refuse", code=code) for code in (-32023, -32011, -32050, -32002, 4711)),
    _call("ask", "ask"),
    _call("ask_unknown", "ask_unknown"),
    Step("skills_list", "skills/list", UNKNOWN),
    Step("skills_get", "skills/get", {"uri": SKILL["uri"], **UNKNOWN}),
    Step("skills_missing", "skills/get", {"uri": "skill://missing/SKILL.md"}),
    Step("skills_directory", "resources/directory/read", {"uri": "skill://probe", **UNKNOWN}),
    Step("skills_unlisted", "skills/refuse"),
    Step("events_list", "events/list", UNKNOWN),
    Step("events_poll", "events/poll", {"name": "probe.changed", "cursor": None, **UNKNOWN}),
    Step("events_stream", "events/stream", {"name": "probe.changed", "cursor": None}),
    Step("events_refused", "events/subscribe", {"name": "probe.changed", "delivery": {"mode": "webhook"}}),
    Step("thing_do", "thing/do", {"a": {"deep": [1]}, **UNKNOWN}),
    Step("thing_list", "thing/list", UNKNOWN),
    Step("thing_partial", "thing/partial"),
    Step("thing_refused", "thing/refuse"),
    Step("thing_unlisted", "thing/other"),
    Step("other_do", "other/do"),
    Step("ui_do", "ui/do"),
)
ONCE: Final = (
    Step("level", "logging/setLevel", {"level": "debug"}),
    Step("subscribe", "resources/subscribe", {"uri": APP}),
)
"""What a host of the legacy era says once, and one of the modern era with each request."""
NAMED: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
LAST: Final = ("notifications/resources/updated", "notifications/tools/list_changed")
"""What each way of the gateway carries; it is pushed after all that may not be carried."""
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"


class ProbeHost:
    """One host; `seen` is what it saw."""

    def __init__(self, era: str) -> None:
        self.era = era
        self.seen: Observations = {}
        self._heard: set[tuple[str, str]] = set()
        self._step = "welcome"
        self._ids = count(1)
        self._listen: Any = None
        self._asked: Any = None
        self._info: Any = None
        self._unanswered: asyncio.Queue[Message] = asyncio.Queue()

    async def run(self, link: Link, start: Start) -> None:
        """Do all there is to do, over that link."""
        start(self._answer_questions(link))
        await (self._greet(link) if self.era == LEGACY else self._discover(link, start))
        for step in STEPS:
            await self._do(link, step)
        self._step = "poke"
        for method in ("notifications/thing/poke", "notifications/roots/list_changed"):
            note = {"jsonrpc": "2.0", "method": method, "params": self._params(f"poke {method}", {"a": 1, **UNKNOWN})}
            status = await link.send(note, self._headers(note))
            self._see(f"poke[{method}].status", status)
        await self._do(link, _call("push", "push"))
        await eventually(lambda: {("push", method) for method in LAST} <= self._heard)
        await self._do(link, _call("done", "done"))

    # --- what it says

    async def _greet(self, link: Link) -> None:
        about = {"protocolVersion": REVISIONS[LEGACY], "capabilities": DECLARED, "clientInfo": INFO, **UNKNOWN}
        answer = await self._ask(link, "initialize", {**about, "_meta": meta("welcome")}, {})
        self._saw("welcome", answer["result"])
        note = {"jsonrpc": "2.0", "method": "notifications/initialized", "params": self._params("initialized", {})}
        await link.send(note, self._headers(note))
        await link.open({REVISION: REVISIONS[LEGACY]})
        for step in ONCE:
            await self._do(link, step)

    async def _discover(self, link: Link, start: Start) -> None:
        message = self._message("server/discover", self._params("welcome", {}))
        _, answer = await link.ask(message, self._headers(message))
        result = answer["result"]
        about = dict(result.get("_meta", {}))
        self._info = about.pop(SERVER_INFO)
        self._saw("welcome", {**result, "_meta": about, "serverInfo": self._info})
        listen = self._message("subscriptions/listen", self._params("listen", {"notifications": WISHES}))
        self._listen = listen["id"]
        start(link.ask(listen, self._headers(listen), "listen"))
        await eventually(lambda: ("listen", ACKNOWLEDGED) in self._heard)

    async def _do(self, link: Link, step: Step) -> None:
        """Send one request, and once more with the answers where it asks for some."""
        self._step = step.name
        message = self._message(step.method, self._params(step.name, step.params))
        self._asked = message["id"]
        status, answer = await link.ask(message, self._headers(message))
        result = answer.get("result", {})
        if result.get("resultType") == "input_required" and "inputRequests" in result:
            ((key, question),) = result["inputRequests"].items()
            self._saw(f"{step.name}.asked", question)
            more = {"inputResponses": {key: _response(question)}}
            again = {**step.params, **more, "requestState": result["requestState"]}
            message = self._message(step.method, self._params(step.name, again))
            status, answer = await link.ask(message, self._headers(message))
        self._see(f"{step.name}.status", status)
        self._saw_answer(step, answer)

    async def _answer_questions(self, link: Link) -> None:
        """Answer what the server asks by itself."""
        while True:
            question = await self._unanswered.get()
            answer = {"jsonrpc": "2.0", "id": question["id"], "result": _response(question)}
            await link.send(answer, {REVISION: REVISIONS[LEGACY]})

    async def _ask(self, link: Link, method: str, params: Message, headers: Mapping[str, str]) -> Message:
        return (await link.ask(self._message(method, params), headers))[1]

    def _message(self, method: str, params: Message) -> Message:
        return {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}

    def _params(self, step: str, params: Mapping[str, Any]) -> Message:
        about = meta(step, **ODD) | ({"progressToken": "token"} if step == "tell" else {})
        if self.era == MODERN:
            about |= {VERSION: REVISIONS[MODERN], CAPABILITIES: DECLARED, CLIENT: INFO}
            about |= {f"{OFFICIAL}logLevel": "debug"} if step == "tell" else {}
        return {**params, "_meta": about}

    def _headers(self, message: Message) -> dict[str, str]:
        found = {REVISION: REVISIONS[self.era], "Mcp-Vendor": "v"}
        if self.era == MODERN and "id" in message:
            found["Mcp-Method"] = message["method"]
            if message["method"] in NAMED:
                found["Mcp-Name"] = message["params"][NAMED[message["method"]]]
        return found

    # --- what it sees

    def hear(self, message: Message, stream: str) -> None:
        """Take what is no answer: a notification, or a question."""
        params = message.get("params", {})
        method = message["method"]
        step = params.get("mark", params.get("_meta", {}).get(MARK, self._step))
        if "id" in message:
            self._saw(f"{step}.asked", {"method": method, "params": params})
            self._unanswered.put_nowait(message)
            return
        about = dict(params.get("_meta", {}))
        if SUBSCRIPTION in about:
            about[SUBSCRIPTION] = self._named(about[SUBSCRIPTION])
        if "progressToken" in params:
            params = {**params, "progressToken": params["progressToken"] == "token"}
        if method == ACKNOWLEDGED:
            self._saw("listen.granted", params.pop("notifications"))
            step = "listen"
        self._saw(f"{step}.heard[{method}]", {**params, **({"_meta": about} if "_meta" in params else {})})
        self._see(f"{step}.heard[{method}].stream", stream)
        self._heard.add((step, method))

    def _named(self, id: Any) -> str:
        """The request that the id is of, in words that two runs can share."""
        return {self._listen: "the listen", self._asked: "the request"}.get(id, "another")

    def _saw_answer(self, step: Step, answer: Message) -> None:
        result = answer.get("result")
        if result is None:
            self._saw(f"{step.name}.error", answer["error"])
            return
        about = result.get("_meta", {})
        if SUBSCRIPTION in about:
            about[SUBSCRIPTION] = self._named(about[SUBSCRIPTION])
        if SERVER_INFO in about and about[SERVER_INFO] == self._info:
            about[SERVER_INFO] = "as in the handshake"
        said = result.get("structuredContent", {})
        if step.name in ("ask", "ask_unknown", "done") and (step.name == "done" or "answer" in said):
            # The server tells in it how it was answered, which is what it sees.
            told = {key: value for key, value in said.items() if step.name == "done" or key == "answer"}
            self.seen |= flat(f"server.{step.name}", told) if told else {}
            result = {key: value for key, value in result.items() if key != "structuredContent"}
        self._saw(f"{step.name}.result", result)

    def _saw(self, name: str, value: Any) -> None:
        self.seen |= flat(f"host.{name}", value)

    def _see(self, name: str, value: Any) -> None:
        if value is not None:
            self.seen[f"host.{name}"] = value


def _response(question: Message) -> Message:
    """What the host answers to a question."""
    if question["method"] == "thing/ask":
        return {"answer": 42}
    if question["method"] == "elicitation/create":
        return {"action": "accept", "content": {"it": "this"}, "_meta": ANSWER, **UNKNOWN}
    return {"error": f"not expected: {question['method']}"}
