"""The judge of what the gateway says in the modern era: what is right passes, and what is wrong in one way fails."""

import json
from typing import Any

import pytest

from helpers import modern_schema
from helpers.modern_requests import check_client_message
from helpers.modern_schema import CAPABILITIES, CLIENT, LEVEL, RELATED, SERVER, SUBSCRIPTION, TASKS, VERSION, Hearing
from helpers.published import absent

INFO = {SERVER: {"name": "taskgate", "version": "1"}}
NOW, LATER = "2026-08-01T09:00:00.000Z", "2026-08-01T09:00:01.000Z"
TASK = {"taskId": "x", "status": "working", "createdAt": NOW, "lastUpdatedAt": NOW, "ttlMs": 1000}
HANDLE = {"resultType": "task", **TASK, "_meta": INFO}
STATE = {"resultType": "complete", **TASK, "_meta": INFO}
RESULT = {"resultType": "complete", "content": [], "_meta": INFO}
FORM = {
    "method": "elicitation/create",
    "params": {"message": "m", "requestedSchema": {"type": "object", "properties": {}}},
}
ROUND = {"resultType": "input_required", "inputRequests": {"a": FORM}, "requestState": "s", "_meta": INFO}
TOOL = {"name": "t", "inputSchema": {"type": "object"}}
LISTED = {"resultType": "complete", "tools": [TOOL], "ttlMs": 0, "cacheScope": "private", "_meta": INFO}
FOUND = {
    "resultType": "complete",
    "supportedVersions": ["2026-07-28"],
    "capabilities": {},
    "ttlMs": 0,
    "cacheScope": "private",
    "_meta": INFO,
}
ERROR = {"code": -32602, "message": "no"}
ALL = {"extensions": {TASKS: {}}}

by_the_schemas = pytest.mark.skipif(not modern_schema.available(), reason=absent(modern_schema.EXTENSION))


def asked(method: str, capabilities: Any = None, **meta: Any) -> dict[str, Any]:
    """A request that declares tasks unless it says otherwise."""
    said = {VERSION: "2026-07-28", CAPABILITIES: ALL if capabilities is None else capabilities, **meta}
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": said}}


def answer(result: Any, id: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": result}


def note(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def progress(token: Any, done: float) -> dict[str, Any]:
    return note("notifications/progress", progressToken=token, progress=done)


def log(level: str) -> dict[str, Any]:
    return note("notifications/message", level=level, data="x")


def told(method: str, id: Any = 1, **params: Any) -> dict[str, Any]:
    return note(method, **params, _meta={SUBSCRIPTION: id})


def failed(code: int, data: Any = None) -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "id": 1,
        "error": {"code": code, "message": "no"} | ({} if data is None else {"data": data}),
    }


ACKNOWLEDGED = told("notifications/subscriptions/acknowledged", notifications={})
TAGGED = {SUBSCRIPTION: 1}
LISTENED = answer({"resultType": "complete", "_meta": {**INFO, SUBSCRIPTION: 1}})
CALL, GET, LISTEN = asked("tools/call"), asked("tasks/get"), asked("subscriptions/listen")
TOLD = asked("tools/call", progressToken="p", **{LEVEL: "info"})

RIGHT: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "a result": (CALL, [answer(RESULT)]),
    "a result whose server does not say who it is": (CALL, [answer({"resultType": "complete", "content": []})]),
    "a handle": (CALL, [answer(HANDLE)]),
    "a round": (CALL, [answer(ROUND)]),
    "a task": (GET, [answer(STATE)]),
    "a task that ended": (GET, [answer({**STATE, "status": "completed", "result": RESULT})]),
    "a task that failed": (GET, [answer({**STATE, "status": "failed", "error": ERROR})]),
    "a task that asks": (GET, [answer({**STATE, "status": "input_required", "inputRequests": {"a": FORM}})]),
    "an acknowledgement": (asked("tasks/update"), [answer({"resultType": "complete", "_meta": INFO})]),
    "a list": (asked("tools/list"), [answer(LISTED)]),
    "a discovery": (asked("server/discover"), [answer(FOUND)]),
    "progress and log": (TOLD, [progress("p", 1), log("info"), progress("p", 2), answer(RESULT)]),
    "a listen": (LISTEN, [ACKNOWLEDGED, told("notifications/tasks", **TASK), LISTENED]),
    "an error": (CALL, [failed(-32602)]),
}
WRONG: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "a result without its type": (CALL, [answer({"content": [], "_meta": INFO})]),
    "a result of another type": (CALL, [answer({**RESULT, "resultType": "odd"})]),
    "a result of nobody": (CALL, [answer({**RESULT, "_meta": {SERVER: "s"}})]),
    "a handle that does not say whose": (CALL, [answer({**HANDLE, "_meta": {}})]),
    "a task that does not say whose": (GET, [answer({**STATE, "_meta": {}})]),
    "an end that does not say whose": (LISTEN, [ACKNOWLEDGED, answer({"resultType": "complete", "_meta": TAGGED})]),
    "another id": (CALL, [answer(RESULT, 2)]),
    "the id in another type": (CALL, [answer(RESULT, "1")]),
    "something after the answer": (TOLD, [answer(RESULT), progress("p", 1)]),
    "a related task": (CALL, [answer({**RESULT, "_meta": {**INFO, RELATED: {"taskId": "x"}}})]),
    "a request": (CALL, [{"jsonrpc": "2.0", "id": 5, "method": "roots/list"}]),
    "a handle for who declares nothing": (asked("tools/call", {}), [answer(HANDLE)]),
    "a handle for another request": (asked("prompts/get"), [answer(HANDLE)]),
    "a handle with a result": (CALL, [answer({**HANDLE, "result": RESULT})]),
    "a handle with a ttl": (CALL, [answer({**HANDLE, "ttl": 1000})]),
    "a task in a task": (CALL, [answer({**HANDLE, "task": TASK})]),
    "a TTL that is a fraction": (GET, [answer({**STATE, "ttlMs": 0.5})]),
    "a TTL below zero": (GET, [answer({**STATE, "ttlMs": -1})]),
    "no TTL": (GET, [answer({name: value for name, value in STATE.items() if name != "ttlMs"})]),
    "another poll interval": (GET, [answer({**STATE, "pollInterval": 1})]),
    "a time without milliseconds": (GET, [answer({**STATE, "createdAt": "2026-08-01T09:00:00Z"})]),
    "a task that changed before it was made": (GET, [answer({**STATE, "createdAt": LATER})]),
    "a working task with a result": (GET, [answer({**STATE, "result": RESULT})]),
    "a completed task without a result": (GET, [answer({**STATE, "status": "completed"})]),
    "a result inside without its type": (GET, [answer({**STATE, "status": "completed", "result": {"content": []}})]),
    "a task that asks nothing": (GET, [answer({**STATE, "status": "input_required", "inputRequests": {}})]),
    "a state on a task": (GET, [answer({**STATE, "requestState": "s"})]),
    "an acknowledgement that says more": (asked("tasks/cancel"), [answer(STATE)]),
    "a round for a list": (asked("tools/list"), [answer(ROUND)]),
    "a round of nothing": (CALL, [answer({"resultType": "input_required", "_meta": INFO})]),
    "a round to keep": (CALL, [answer({**ROUND, "ttlMs": 0})]),
    "a question with an id": (CALL, [answer({**ROUND, "inputRequests": {"a": {**FORM, "id": 1}}})]),
    "a list without its keeping": (asked("tools/list"), [answer({**RESULT, "tools": []})]),
    "execution": (asked("tools/list"), [answer({**LISTED, "tools": [{**TOOL, "execution": {}}]})]),
    "tasks of the other era": (asked("server/discover"), [answer({**FOUND, "capabilities": {"tasks": {}}})]),
    "serverInfo": (asked("server/discover"), [answer({**FOUND, "serverInfo": {}})]),
    "progress that nobody wanted": (CALL, [progress("p", 1)]),
    "progress for somebody else": (TOLD, [progress("q", 1)]),
    "progress that stands still": (TOLD, [progress("p", 1), progress("p", 1)]),
    "a log line that nobody wanted": (CALL, [log("error")]),
    "a log line that is too low": (TOLD, [log("debug")]),
    "news on the stream of a call": (CALL, [note("notifications/tools/list_changed")]),
    "news before the acknowledgement": (LISTEN, [told("notifications/tools/list_changed")]),
    "two acknowledgements": (LISTEN, [ACKNOWLEDGED, ACKNOWLEDGED]),
    "news under another id": (LISTEN, [ACKNOWLEDGED, told("notifications/tools/list_changed", "1")]),
    "an end before the acknowledgement": (LISTEN, [LISTENED]),
    "an end under no id": (LISTEN, [ACKNOWLEDGED, answer({"resultType": "complete", "_meta": INFO})]),
    "a code of the other era": (CALL, [failed(-32042)]),
    "a resource that was not found there": (CALL, [failed(-32002)]),
    "a reserved code": (CALL, [failed(-32077)]),
    "a mismatch that is no 400": (CALL, [failed(-32020)]),
    "a capability that is no 400": (CALL, [failed(-32021, {"requiredCapabilities": {}})]),
}


@pytest.mark.parametrize(("request_", "messages"), RIGHT.values(), ids=RIGHT)
def test_what_is_right_passes(request_: dict[str, Any], messages: list[Any]) -> None:
    hearing = Hearing(request_)
    assert [hearing.hear(json.dumps(message)) for message in messages] == messages


@by_the_schemas
@pytest.mark.parametrize(("request_", "messages"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_in_one_way_fails(request_: dict[str, Any], messages: list[Any]) -> None:
    hearing = Hearing(request_)
    *before, last = messages
    for message in before:
        hearing.hear(json.dumps(message))
    with pytest.raises((pytest.fail.Exception, KeyError)):
        hearing.hear(json.dumps(last))


def test_a_message_that_repeats_a_key_fails() -> None:
    with pytest.raises(pytest.fail.Exception):
        Hearing(CALL).hear('{"jsonrpc":"2.0","id":1,"id":1,"result":{}}')


SENT = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
META = {VERSION: "2026-07-28", CAPABILITIES: {}, CLIENT: {"name": "taskgate", "version": "1"}}
PARAMS = {"name": "t", "_meta": META}


def test_a_request_to_a_server_passes() -> None:
    check_client_message({**SENT, "params": PARAMS})


@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
        {**SENT, "params": {**PARAMS, "task": {}}},
        {**SENT, "params": {**PARAMS, "_meta": {**META, RELATED: {"taskId": "x"}}}},
        {**SENT, "params": {**PARAMS, "_meta": {**META, CAPABILITIES: ALL}}},
        {**SENT, "params": {**PARAMS, "_meta": {VERSION: "2026-07-28", CAPABILITIES: {}}}},
    ],
    ids=["a notification", "a task", "a task of ours", "tasks declared", "nobody who asks"],
)
def test_a_message_to_a_server_that_is_wrong_in_one_way_fails(message: dict[str, Any]) -> None:
    with pytest.raises(pytest.fail.Exception):
        check_client_message(message)


FOLLOWS = {**PARAMS, "_meta": {**META, CAPABILITIES: ALL}}
LISTENS = {**SENT, "method": "subscriptions/listen"}


@pytest.mark.parametrize(
    "message",
    [
        {**SENT, "params": FOLLOWS},
        {**SENT, "params": PARAMS},
        {**SENT, "method": "tools/list", "params": {"_meta": META}},
        {**SENT, "method": "tasks/get", "params": {"taskId": "n1", "_meta": FOLLOWS["_meta"]}},
        {**LISTENS, "params": {"notifications": {"taskIds": ["n1"]}, "_meta": FOLLOWS["_meta"]}},
        {**LISTENS, "params": {"notifications": {"toolsListChanged": True}, "_meta": META}},
    ],
    ids=["a call for a task", "a plain call", "a list", "a look", "news of a task", "news of lists"],
)
def test_a_request_to_a_server_with_tasks_passes(message: dict[str, Any]) -> None:
    check_client_message(message, serves_tasks=True)


@pytest.mark.parametrize(
    ("message", "serves_tasks"),
    [
        ({**SENT, "method": "tools/list", "params": {"_meta": FOLLOWS["_meta"]}}, True),
        ({**SENT, "method": "tasks/get", "params": {"taskId": "n1", "_meta": META}}, False),
        ({**SENT, "params": {**PARAMS, "_meta": {**META, CAPABILITIES: {"extensions": {TASKS: {"a": 1}}}}}}, True),
    ],
    ids=["a list that does", "none that it has", "settings"],
)
def test_a_request_about_tasks_that_is_wrong_in_one_way_fails(message: dict[str, Any], serves_tasks: bool) -> None:
    with pytest.raises(pytest.fail.Exception):
        check_client_message(message, serves_tasks=serves_tasks)


@by_the_schemas
@pytest.mark.parametrize(("method", "params"), [("tasks/get", {}), ("tasks/update", {"taskId": "n1"})])
def test_a_request_about_tasks_that_leaves_out_what_it_is_about_fails(method: str, params: dict[str, Any]) -> None:
    with pytest.raises(pytest.fail.Exception):
        check_client_message(
            {**SENT, "method": method, "params": {**params, "_meta": FOLLOWS["_meta"]}}, serves_tasks=True
        )
