"""The published schema of 2025-11-25 as a judge of what the gateway says, to hosts and to servers.

A check takes one JSON-RPC message as text, bytes or parsed, fails the test that holds it with the place of the fault,
and returns the parsed message. It adds the few rules that the schema leaves open: where the related-task key belongs,
how a timestamp is written, that no object of ours repeats a key. Where the schema is absent the check skips the test,
so it stands best at the end.
"""

import json
import re
from functools import cache
from typing import Any, Final, NoReturn

import pytest

from helpers.published import absent, published
from helpers.schema_judge import SchemaJudge

REVISION: Final = "2025-11-25"
ABSENT: Final = absent(REVISION)
RELATED_TASK: Final = "io.modelcontextprotocol/related-task"

_RESULTS: Final = {
    "initialize": ("InitializeResult",),
    "ping": ("EmptyResult",),
    "tools/list": ("ListToolsResult",),
    "tools/call": ("CallToolResult",),
    "tasks/get": ("GetTaskResult",),
    "tasks/cancel": ("CancelTaskResult",),
    "tasks/list": ("ListTasksResult",),
    "tasks/result": ("GetTaskPayloadResult", "CallToolResult"),
    "prompts/get": ("GetPromptResult",),
    "prompts/list": ("ListPromptsResult",),
    "resources/list": ("ListResourcesResult",),
    "resources/read": ("ReadResourceResult",),
    "resources/subscribe": ("EmptyResult",),
    "resources/templates/list": ("ListResourceTemplatesResult",),
    "resources/unsubscribe": ("EmptyResult",),
    "completion/complete": ("CompleteResult",),
    "logging/setLevel": ("EmptyResult",),
}
_OF_EXTENSIONS: Final = re.compile(r"(notifications/)?(widgets|skills|events)/.+|resources/directory/read")
_RELATED_TO_A_TASK: Final = frozenset({"tasks/result"})
_TASK_IN_RESULT: Final = frozenset({"tasks/get", "tasks/cancel"})
_TIMESTAMP: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_MEMBERS: Final = ({"jsonrpc", "id", "method", "params"}, {"jsonrpc", "id", "result"}, {"jsonrpc", "id", "error"})


def is_of_extension(method: object) -> bool:
    """Whether a method is of the extensions of these tests, which no schema of the core defines."""
    return isinstance(method, str) and _OF_EXTENSIONS.fullmatch(method) is not None


def available() -> bool:
    """Whether the schema is here; without it every check skips its test."""
    return published(REVISION) is not None


needs_schema = pytest.mark.skipif(not available(), reason=ABSENT)
"""For a test that does nothing else."""


def check_server_message(
    text: str | bytes | dict[str, Any], *, request_method: str | None, as_task: bool = False
) -> dict[str, Any]:
    """Judge a message of the gateway to a host.

    `request_method` is what the message answers, or whose stream it came on; None where no request is about. `as_task`
    says that a `tools/call` was taken as a task: then its result must be the handle, else the tool's own result.
    """
    message = _read(text)
    if "method" in message:
        _check_call(message, "Server")
    else:
        _check_response(message, request_method, as_task=as_task)
    return message


def check_client_message(
    text: str | bytes | dict[str, Any], *, request_method: str | None = None, wants_task: bool = False
) -> dict[str, Any]:
    """Judge a message of the gateway to a server; `request_method` is the request of the server that it answers.

    No server is asked for a task of its own unless `wants_task`, and none hears of the gateway's tasks.
    """
    message = _read(text)
    if "method" in message:
        _check_call(message, "Client")
        params = message.get("params", {})
        _expect(("task" in params) is wants_task, "a server is asked for a task, or is not", message)
        _expect(RELATED_TASK not in params.get("_meta", {}), "a server is told of a task of ours", message)
        cancels = message["method"] == "notifications/cancelled"
        _expect(not cancels or "requestId" in params, "a cancellation names no request", message)
    else:
        _check_response(message, request_method, as_task=False)
    return message


def check_definition(value: Any, name: str) -> None:
    """Judge any value against one definition of the schema, such as `Task`."""
    _need_the_schema()
    fault = _judge(name).fault(value)
    if fault is not None:
        place = "".join(f"[{step!r}]" for step in fault.absolute_path)
        pytest.fail(f"no {name}: {fault.message} at {place or 'the top'}\n{_shown(value)}")


# --- the rules -----------------------------------------------------------------------------------------------------


def _check_call(message: dict[str, Any], principal: str) -> None:
    """A request or a notification: the definition that its method belongs to, of those that the speaker may send."""
    _expect(set(message) <= _MEMBERS[0], "the envelope has a member of no meaning", message)
    kind = "Request" if "id" in message else "Notification"
    check_definition(message, f"JSONRPC{kind}")
    if is_of_extension(message["method"]):
        return
    name = _definitions(f"{principal}{kind}").get(message["method"])
    _expect(name is not None, f"no {kind.lower()} that a {principal.lower()} may send", message)
    check_definition(message, str(name))
    if message["method"] == "notifications/tasks/status":
        _check_task(message["params"], message)
        _expect(RELATED_TASK not in message["params"].get("_meta", {}), "a status names its task twice", message)


def _check_response(message: dict[str, Any], request_method: str | None, *, as_task: bool) -> None:
    if "error" in message:
        _expect(set(message) <= _MEMBERS[2], "the envelope has a member of no meaning", message)
        _expect("id" in message or request_method is None, "an error does not name its request", message)
        # T-23: the one deviation from the schema.
        unread = request_method is None and message.get("id", 0) is None
        check_definition({k: v for k, v in message.items() if k != "id" or not unread}, "JSONRPCErrorResponse")
        return
    _expect(set(message) <= _MEMBERS[1], "the envelope has a member of no meaning", message)
    check_definition(message, "JSONRPCResultResponse")
    result = message["result"]
    if as_task:
        _expect(request_method == "tools/call", f"{request_method} cannot become a task", message)
        check_definition(result, "CreateTaskResult")
        _check_task(result["task"], message)
        _check_related(message, result["task"]["taskId"])
        return
    if is_of_extension(request_method):
        check_definition(result, "Result")
        return
    _expect(request_method in _RESULTS, f"no result is defined for {request_method}", message)
    for name in _RESULTS[str(request_method)]:
        check_definition(result, name)
    if request_method in _TASK_IN_RESULT:
        _check_task(result, message)
        _expect(RELATED_TASK not in result.get("_meta", {}), "a task names itself twice", message)
    if request_method in _RELATED_TO_A_TASK:
        _check_related(message, None)


def _check_task(task: dict[str, Any], message: dict[str, Any]) -> None:
    for name in ("createdAt", "lastUpdatedAt"):
        _expect(_TIMESTAMP.fullmatch(task[name]), f"{name} is no UTC time with milliseconds", message)
    _expect(task["createdAt"] <= task["lastUpdatedAt"], "a task changed before it was made", message)
    _expect("ttlMs" not in task and "pollIntervalMs" not in task, "a name of another era", message)


def _check_related(message: dict[str, Any], task: str | None) -> None:
    related = message["result"].get("_meta", {}).get(RELATED_TASK)
    _expect(related is not None, "the related-task key is missing", message)
    check_definition(related, "RelatedTaskMetadata")
    _expect(task in (None, related["taskId"]), "the related task is another one", message)


def _expect(held: object, rule: str, message: dict[str, Any]) -> None:
    if not held:
        pytest.fail(f"{rule}\n{_shown(message)}")


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True)[:2_000]


# --- reading -------------------------------------------------------------------------------------------------------


def _read(text: str | bytes | dict[str, Any]) -> dict[str, Any]:
    _need_the_schema()
    if isinstance(text, dict):
        return text
    try:
        pairs = json.loads(text, object_pairs_hook=_Pairs, parse_constant=_refuse)
        message = json.loads(text)
    except ValueError as refusal:
        pytest.fail(f"no JSON: {refusal}\n{text!r:.2000}")
    if not isinstance(message, dict):
        pytest.fail(f"no object, so no message\n{text!r:.2000}")
    _expect(len(pairs) == len(message), "the envelope repeats a key", message)
    return message


def _need_the_schema() -> None:
    if not available():
        pytest.skip(ABSENT)


class _Pairs(list[tuple[str, Any]]):
    """An object as it is written, so that repeated keys show."""


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _schema() -> dict[str, Any]:
    schema = published(REVISION)
    assert schema is not None
    return schema


@cache
def _judge(name: str) -> SchemaJudge:
    return SchemaJudge({"$ref": f"#/$defs/{name}", "$defs": _schema()["$defs"]})


@cache
def _definitions(union: str) -> dict[str, str]:
    """From a method to its definition, for a union such as ServerNotification."""
    definitions = _schema()["$defs"]
    names = [entry["$ref"].rpartition("/")[2] for entry in definitions[union]["anyOf"]]
    return {definitions[name]["properties"]["method"]["const"]: name for name in names}
