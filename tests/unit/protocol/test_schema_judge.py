"""The judge that other tests trust lets good messages pass and fails bad ones."""

import json
from typing import Any

import pytest

from helpers.schema import RELATED_TASK, check_client_message, check_server_message, needs_schema

pytestmark = needs_schema

TASK = {
    "taskId": "t",
    "status": "working",
    "createdAt": "2026-08-01T09:00:00.000Z",
    "lastUpdatedAt": "2026-08-01T09:00:31.000Z",
    "ttl": 3_600_000,
    "pollInterval": 2_000,
}
RELATED = {RELATED_TASK: {"taskId": "t"}}
TOOL_RESULT = {"content": [{"type": "text", "text": "done"}]}
WELCOME = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}


def result(value: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "result": value}


def call(method: str, params: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params}), **more}


GOOD_TO_HOSTS: dict[str, tuple[Any, str | None, bool]] = {
    "a welcome": (result(WELCOME), "initialize", False),
    "a pong": (result({}), "ping", False),
    "tools": (result({"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}), "tools/list", False),
    "a tool's result": (result(TOOL_RESULT), "tools/call", False),
    "a handle": (result({"task": TASK, "_meta": RELATED}), "tools/call", True),
    "a task": (result(TASK), "tasks/get", False),
    "a cancelled task": (result({**TASK, "status": "cancelled"}), "tasks/cancel", False),
    "an outcome": (result({**TOOL_RESULT, "_meta": RELATED}), "tasks/result", False),
    "an error": ({"jsonrpc": "2.0", "id": "a", "error": {"code": 429, "message": "no"}}, "tools/call", True),
    "an error to nobody": ({"jsonrpc": "2.0", "error": {"code": -32700, "message": "no"}}, None, False),
    "a status": (call("notifications/tasks/status", TASK), None, False),
    "progress": (call("notifications/progress", {"progressToken": "p", "progress": 1}), "tools/call", False),
    "a log line": (call("notifications/message", {"level": "info", "data": 1}), None, False),
    "news of tools": (call("notifications/tools/list_changed"), None, False),
    "a question": (call("ping", id="g-1"), None, False),
}


@pytest.mark.parametrize(("message", "method", "as_task"), GOOD_TO_HOSTS.values(), ids=GOOD_TO_HOSTS)
def test_a_good_message_to_a_host_passes_in_any_form(message: Any, method: str | None, as_task: bool) -> None:
    text = json.dumps(message)
    for form in (message, text, text.encode()):
        assert check_server_message(form, request_method=method, as_task=as_task) == message


BAD_TO_HOSTS: dict[str, tuple[Any, str | None, bool]] = {
    "no JSON": ("{", None, False),
    "a constant of no JSON": ('{"jsonrpc":"2.0","id":1,"result":{"a":NaN}}', "ping", False),
    "an array": ("[]", None, False),
    "a repeated member": ('{"jsonrpc":"2.0","id":1,"id":1,"result":{}}', "ping", False),
    "a null id": ({**result({}), "id": None}, "ping", False),
    "a fractional id": ({**result({}), "id": 1.5}, "ping", False),
    "no version": ({"id": 1, "result": {}}, "ping", False),
    "result and error": ({**result({}), "error": {"code": 1, "message": ""}}, "ping", False),
    "a member of no meaning": ({**result({}), "x": 1}, "ping", False),
    "a call with a result": ({**call("ping", id=1), "result": {}}, None, False),
    "a result of no request": (result({}), None, False),
    "a result of an unknown method": (result({}), "tasks/update", False),
    "an error without its id": ({"jsonrpc": "2.0", "error": {"code": 1, "message": ""}}, "ping", False),
    "an error without a text": ({"jsonrpc": "2.0", "id": 1, "error": {"code": 1}}, "ping", False),
    "a welcome without a name": (result({**WELCOME, "serverInfo": {"version": "1"}}), "initialize", False),
    "a tool without a schema": (result({"tools": [{"name": "t"}]}), "tools/list", False),
    "a handle for a plain call": (result({"task": TASK, "_meta": RELATED}), "tools/call", False),
    "a result instead of a handle": (result(TOOL_RESULT), "tools/call", True),
    "a handle of another method": (result({"task": TASK, "_meta": RELATED}), "tools/list", True),
    "a handle with no relation": (result({"task": TASK}), "tools/call", True),
    "a handle of another task": (result({"task": {**TASK, "taskId": "u"}, "_meta": RELATED}), "tools/call", True),
    "an outcome with no relation": (result(TOOL_RESULT), "tasks/result", False),
    "an outcome with a broken relation": (result({**TOOL_RESULT, "_meta": {RELATED_TASK: {}}}), "tasks/result", False),
    "an outcome that is no tool's": (result({"_meta": RELATED}), "tasks/result", False),
    "a task that names itself twice": (result({**TASK, "_meta": RELATED}), "tasks/get", False),
    "a task of unknown status": (result({**TASK, "status": "submitted"}), "tasks/get", False),
    "a task with a fraction of a ttl": (result({**TASK, "ttl": 1.5}), "tasks/get", False),
    "a task of another era": (result({**TASK, "ttlMs": 1}), "tasks/get", False),
    "a task with an offset": (result({**TASK, "createdAt": "2026-08-01T09:00:00.000+00:00"}), "tasks/get", False),
    "a task with whole seconds": (result({**TASK, "createdAt": "2026-08-01T09:00:00Z"}), "tasks/cancel", False),
    "a task that ran backwards": (result({**TASK, "createdAt": "2026-08-01T10:00:00.000Z"}), "tasks/get", False),
    "a status of no task": (call("notifications/tasks/status", {"taskId": "t"}), None, False),
    "a status that names itself twice": (call("notifications/tasks/status", {**TASK, "_meta": RELATED}), None, False),
    "progress without a token": (call("notifications/progress", {"progress": 1}), None, False),
    "a notification of a client": (call("notifications/initialized"), None, False),
    "a request of a client": (call("tools/list", id=1), None, False),
}


@pytest.mark.parametrize(("message", "method", "as_task"), BAD_TO_HOSTS.values(), ids=BAD_TO_HOSTS)
def test_a_bad_message_to_a_host_fails(message: Any, method: str | None, as_task: bool) -> None:
    with pytest.raises(pytest.fail.Exception):
        check_server_message(message, request_method=method, as_task=as_task)


HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
GOOD_TO_SERVERS: dict[str, tuple[Any, str | None]] = {
    "a handshake": (call("initialize", HELLO, id=1), None),
    "its end": (call("notifications/initialized"), None),
    "a call": (call("tools/call", {"name": "t", "arguments": {}, "_meta": {"progressToken": 2}}, id=2), None),
    "a cancellation": (call("notifications/cancelled", {"requestId": 2, "reason": "left"}), None),
    "a pong": (result({}), "ping"),
    "a refusal": ({"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "no"}}, "roots/list"),
}


@pytest.mark.parametrize(("message", "method"), GOOD_TO_SERVERS.values(), ids=GOOD_TO_SERVERS)
def test_a_good_message_to_a_server_passes(message: Any, method: str | None) -> None:
    assert check_client_message(json.dumps(message), request_method=method) == message


BAD_TO_SERVERS: dict[str, tuple[Any, str | None]] = {
    "a handshake of nobody": (call("initialize", {**HELLO, "clientInfo": {}}, id=1), None),
    "a call of no tool": (call("tools/call", {}, id=2), None),
    "a call as a task": (call("tools/call", {"name": "t", "task": {}}, id=2), None),
    "a call that tells of a task": (call("tools/call", {"name": "t", "_meta": RELATED}, id=2), None),
    "a cancellation of nothing": (call("notifications/cancelled", {"reason": "left"}), None),
    "a notification of a server": (call("notifications/tools/list_changed"), None),
    "a request of a server": (call("roots/list", id=3), None),
    "a pong to nobody": (result({}), None),
}


@pytest.mark.parametrize(("message", "method"), BAD_TO_SERVERS.values(), ids=BAD_TO_SERVERS)
def test_a_bad_message_to_a_server_fails(message: Any, method: str | None) -> None:
    with pytest.raises(pytest.fail.Exception):
        check_client_message(json.dumps(message), request_method=method)
