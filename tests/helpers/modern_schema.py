"""The published schemas of 2026-07-28 and of its tasks extension as judges of what the gateway says, to hosts and to
servers; and the rules of that era that no schema has, which are judged wherever the schemas are.

A `Hearing` is one request and what comes back for it, in its order. Every fault fails the test that holds it.
"""

import json
import re
from functools import cache
from typing import Any, Final

import pytest

from helpers.published import published
from helpers.schema import is_of_extension
from helpers.schema_judge import SchemaJudge

CORE: Final = "2026-07-28"
EXTENSION: Final = "tasks-extension"
TASKS: Final = "io.modelcontextprotocol/tasks"
VERSION: Final = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
CLIENT: Final = "io.modelcontextprotocol/clientInfo"
SERVER: Final = "io.modelcontextprotocol/serverInfo"
LEVEL: Final = "io.modelcontextprotocol/logLevel"
SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"
RELATED: Final = "io.modelcontextprotocol/related-task"
LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

LISTEN: Final = "subscriptions/listen"
_RESULTS: Final = {
    "server/discover": "DiscoverResult",
    "tools/list": "ListToolsResult",
    "tools/call": "CallToolResult",
    "prompts/list": "ListPromptsResult",
    "prompts/get": "GetPromptResult",
    "resources/list": "ListResourcesResult",
    "resources/templates/list": "ListResourceTemplatesResult",
    "resources/read": "ReadResourceResult",
    "completion/complete": "CompleteResult",
    LISTEN: "SubscriptionsListenResult",
}
_ASKS_BACK: Final = ("tools/call", "prompts/get", "resources/read")
_ACKNOWLEDGED: Final = ("tasks/update", "tasks/cancel")
_FIXED: Final = {
    -32020: ("HeaderMismatchError", 400),
    -32021: ("MissingRequiredClientCapabilityError", 400),
    -32022: ("UnsupportedProtocolVersionError", 400),
}
_TIMESTAMP: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def available() -> bool:
    """Whether both schemas are here; what has none is judged by the rules alone."""
    return None not in (published(CORE), published(EXTENSION))


class Hearing:
    """What the gateway says for one request, message by message. `asked` is the request, where it was one at all."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self._asked = asked
        self._method = asked.get("method")
        params = asked.get("params")
        meta = params.get("_meta") if isinstance(params, dict) else None
        self._meta: dict[str, Any] = meta if isinstance(meta, dict) else {}
        self._heard = 0
        self._over = False
        self._done = float("-inf")

    def hear(self, text: str | bytes, *, status: int = 200) -> dict[str, Any]:
        """One message, judged."""
        message = read(text)
        expect(not self._over, "something comes after the answer", message)
        expect(not has(message, RELATED), "the related-task key does not exist in this era", message)
        if "method" in message:
            self._note(message)
        elif "error" in message:
            self._error(message, status)
        else:
            self._result(message)
        self._heard += 1
        return message

    def _note(self, message: dict[str, Any]) -> None:
        expect("id" not in message, "a host of this era is asked nothing", message)
        expect(set(message) <= {"jsonrpc", "method", "params"}, "the envelope has a member of no meaning", message)
        method, params = message["method"], message.get("params", {})
        if self._method == LISTEN:
            self._published(message)
        elif method == "notifications/progress":
            token = self._meta.get("progressToken")
            expect(same(params["progressToken"], token), "progress under a token that is not the host's", message)
            expect(params["progress"] > self._done, "progress does not grow", message)
            self._done = params["progress"]
        elif method == "notifications/message":
            wanted = self._meta.get(LEVEL)
            loud = wanted in LEVELS and LEVELS.index(params["level"]) >= LEVELS.index(wanted)
            expect(loud, "a log line that nobody wanted", message)
        elif not is_of_extension(method):
            pytest.fail(f"{method} on the stream of {self._method}")
        if method == "notifications/tasks":
            check(message, "TaskStatusNotification", schema=EXTENSION)
            check_task(params)
        elif is_of_extension(method):
            check(message, "JSONRPCNotification")
        else:
            check(message, definitions("ServerNotification").get(method, "no such notification"))

    def _published(self, message: dict[str, Any]) -> None:
        method, params = message["method"], message["params"]
        first = method == "notifications/subscriptions/acknowledged"
        expect(first == (self._heard == 0), "the acknowledgement comes first, and once", message)
        expect(same(params["_meta"][SUBSCRIPTION], self._asked["id"]), "not under the listener's id", message)
        loud = method in ("notifications/progress", "notifications/message")
        expect(not loud, "progress and log lines are for no listener", message)

    def _error(self, message: dict[str, Any], status: int) -> None:
        code = message["error"]["code"]
        expect(set(message) <= {"jsonrpc", "id", "error"}, "the envelope has a member of no meaning", message)
        unread = status >= 400 and "id" in message and message["id"] is None
        named = "id" not in message or unread or same(message["id"], self._asked.get("id"))
        expect(named, "not the id of the request", message)
        expect(code not in (-32002, -32042), "a code of the other era", message)
        reserved = -32099 <= code <= -32020 and not is_of_extension(self._method)
        expect(code in _FIXED or not reserved, "a reserved code that means nothing yet", message)
        name, fixed = _FIXED.get(code, ("JSONRPCErrorResponse", status))
        # A stream that has begun has its status already.
        expect(status == fixed or (status == 200 and self._heard > 0), f"{code} under status {status}", message)
        # T-23: the one deviation from the schema.
        check({key: value for key, value in message.items() if key != "id" or not unread}, name)
        self._over = True

    def _result(self, message: dict[str, Any]) -> None:
        expect(set(message) == {"jsonrpc", "id", "result"}, "the envelope has a member of no meaning", message)
        expect(same(message["id"], self._asked.get("id")), "not the id of the request", message)
        result = message["result"]
        kind = result.get("resultType")
        # What the gateway makes is its own; servers need not say who they are.
        is_own = kind == "task" or self._method == LISTEN or str(self._method).startswith("tasks/")
        info = result.get("_meta", {}).get(SERVER, None if is_own else {})
        expect(isinstance(info, dict), "the result does not say whose it is", message)
        expect(self._heard or self._method != LISTEN, "ended before it was acknowledged", message)
        if kind == "task":
            expect(self._method == "tools/call" and self._declares_tasks(), "a task that nobody can take", message)
            check(result, "CreateTaskResult", schema=EXTENSION)
            expect(not {"result", "error", "inputRequests"} & set(result), "a handle with a payload", message)
            check_task(result)
        elif kind == "input_required":
            expect(self._method in _ASKS_BACK, f"{self._method} cannot ask back", message)
            expect({"inputRequests", "requestState"} & set(result), "neither question nor state", message)
            expect(not {"ttlMs", "cacheScope"} & set(result), "a question cannot be cached", message)
            check(result, "InputRequiredResult")
            check_inputs(result.get("inputRequests", {}))
        else:
            expect(kind == "complete" or is_of_extension(self._method), f"{kind} is no type of a result", message)
            self._complete(message)
        self._over = True

    def _complete(self, message: dict[str, Any]) -> None:
        result = message["result"]
        if self._method == "tasks/get":
            check(result, "GetTaskResult", schema=EXTENSION)
            check_task(result)
        elif self._method in _ACKNOWLEDGED:
            check(result, "UpdateTaskResult", schema=EXTENSION)
            expect(set(result) <= {"resultType", "_meta"}, "an acknowledgement says nothing else", message)
        else:
            check(
                result, "Result" if is_of_extension(self._method) else _RESULTS.get(str(self._method), "no such result")
            )
        if self._method == "server/discover":
            expect("tasks" not in result["capabilities"], "the tasks of the other era", message)
            expect("serverInfo" not in result, "serverInfo is no member of it", message)
        if self._method == "tools/list":
            expect(all("execution" not in tool for tool in result["tools"]), "execution is of the other era", message)
        if self._method == LISTEN:
            expect(same(result["_meta"][SUBSCRIPTION], self._asked["id"]), "not under the listener's id", message)

    def _declares_tasks(self) -> bool:
        capabilities = self._meta.get(CAPABILITIES)
        return isinstance(capabilities, dict) and TASKS in capabilities.get("extensions", {})


# --- the rules -----------------------------------------------------------------------------------------------------


def check_task(task: dict[str, Any]) -> None:
    """Judge a task, as a handle, as the answer to a poll or as news."""
    foreign = {"ttl", "pollInterval", "requestState", "task"} & set(task)
    expect(not foreign, f"{foreign} does not belong into a task of this era", task)
    ttl, status = task.get("ttlMs", ""), task["status"]
    expect(ttl is None or (is_whole(ttl) and ttl > 0), "ttlMs is a number of milliseconds", task)
    expect(is_whole(task.get("pollIntervalMs", 1)), "pollIntervalMs is a number of milliseconds", task)
    for name in ("createdAt", "lastUpdatedAt"):
        expect(_TIMESTAMP.fullmatch(task[name]), f"{name} is no UTC time with milliseconds", task)
    expect(task["createdAt"] <= task["lastUpdatedAt"], "a task changed before it was made", task)
    if task.get("resultType") == "task":
        return
    belongs = {"input_required": "inputRequests", "completed": "result", "failed": "error"}
    for holds, member in belongs.items():
        expect((member in task) == (status == holds), f"{member} of a task that is {status}", task)
    if status == "completed":
        expect(task["result"].get("resultType") == "complete", "a result without its type", task)
        check(task["result"], "CallToolResult")
    if status == "input_required":
        expect(task["inputRequests"], "it waits for nothing", task)
        check(task["inputRequests"], "InputRequests")
        check_inputs(task["inputRequests"])


def check_inputs(requests: dict[str, Any]) -> None:
    """Judge what a host is asked, by its keys."""
    for asked in requests.values():
        expect(set(asked) <= {"method", "params"}, "a question is no message", asked)
        foreign = {"elicitationId", "task"} & set(asked.get("params") or {})
        expect(not foreign, f"{foreign} does not exist in this era", asked)


def check(value: Any, name: str, *, schema: str = CORE) -> None:
    """Judge any value against one definition, where its schema is here."""
    if published(schema) is None:
        return
    fault = _judge(schema, name).fault(value)
    if fault is not None:
        place = "".join(f"[{step!r}]" for step in fault.absolute_path)
        pytest.fail(f"no {name}: {fault.message} at {place or 'the top'}\n{json.dumps(value)[:2_000]}")


def expect(held: object, rule: str, message: Any) -> None:
    if not held:
        pytest.fail(f"{rule}\n{json.dumps(message)[:2_000]}")


def has(value: Any, key: str) -> bool:
    """Whether a key stands anywhere in a value."""
    if isinstance(value, dict):
        return key in value or any(has(each, key) for each in value.values())
    return isinstance(value, list) and any(has(each, key) for each in value)


def same(one: Any, other: Any) -> bool:
    """Whether two ids are the same, in their type too."""
    return type(one) is type(other) and one == other


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


# --- reading -------------------------------------------------------------------------------------------------------


def read(text: str | bytes) -> Any:
    """A message, whose envelope repeats no key and in which nothing stands that is no JSON."""
    pairs = json.loads(text, object_pairs_hook=_Pairs, parse_constant=_refuse)
    message: Any = json.loads(text)
    expect(isinstance(message, dict) and len(pairs) == len(message), "no object, or one that repeats a key", message)
    expect(message.get("jsonrpc") == "2.0", "no JSON-RPC", message)
    return message


class _Pairs(list[tuple[str, Any]]):
    """An object as it is written, so that repeated keys show."""


def _refuse(name: str) -> Any:
    pytest.fail(f"{name} is no JSON")


def _schema(name: str) -> dict[str, Any]:
    schema = published(name)
    assert schema is not None
    return schema


@cache
def _judge(schema: str, name: str) -> SchemaJudge:
    definitions = _schema(schema)["$defs"]
    if name not in definitions:
        pytest.fail(f"not in {schema}: {name}")
    return SchemaJudge({"$ref": f"#/$defs/{name}", "$defs": definitions})


@cache
def definitions(union: str) -> dict[str, str]:
    """From a method to its definition, for a union such as ServerNotification."""
    if published(CORE) is None:
        return {}
    definitions = _schema(CORE)["$defs"]
    names = [entry["$ref"].rpartition("/")[2] for entry in definitions[union]["anyOf"]]
    return {definitions[name]["properties"]["method"]["const"]: name for name in names}
