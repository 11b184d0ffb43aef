"""Tasks that servers of the modern era make: what they are asked, and what they show."""

import json
from typing import Any

import pytest

from requirements import covers
from taskgate.domain.record import TaskStatus
from taskgate.domain.versions import Peer, Revision
from taskgate.errors import UpstreamFailed
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import Notification, Response
from taskgate.protocol.modern import upstream
from taskgate.protocol.server_messages import Question, ServerTask
from unit.protocol.modern.judge import check_task

TIMES = {"createdAt": "2026-08-01T09:00:00.000Z", "lastUpdatedAt": "2026-08-01T09:00:07.120Z", "ttlMs": None}
TASK = {"taskId": "native-1", "status": "working", **TIMES}
CREATED = {"resultType": "task", **TASK}


def response(result: Any = None, *, text: str | None = None) -> Response:
    told = json.dumps(result) if text is None else text
    found = parse(f'{{"jsonrpc":"2.0","id":7,"result":{told}}}'.encode(), max_depth=64)
    assert isinstance(found, Response)
    return found


def refusal() -> Response:
    found = parse(b'{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"Task not found"}}', max_depth=64)
    assert isinstance(found, Response)
    return found


def created(result: Any, method: str = "tools/call") -> ServerTask | None:
    return upstream.read_created(method, response(result))


def shown(status: str, text: str = "", **more: Any) -> ServerTask:
    """What is read of a task in that state; `text` are members as they are written."""
    said = json.dumps({"resultType": "complete", **TASK, "status": status, **more})
    found = upstream.read_state(3, "native-1", response(text=f"{said[:-1]}{text}}}"))
    assert found is not None
    return found


# --- whether a server serves them


@pytest.mark.parametrize(
    ("capabilities", "serves"),
    [
        ({"extensions": {"io.modelcontextprotocol/tasks": {}}}, True),
        ({"extensions": {"io.modelcontextprotocol/tasks": {"later": 1}}}, True),
        ({"extensions": {"io.modelcontextprotocol/tasks": None}}, False),
        ({"extensions": {"io.modelcontextprotocol/tasks": True}}, False),
        ({"extensions": {}}, False),
        ({"extensions": []}, False),
        ({"tasks": {"requests": {"tools": {"call": {}}}}}, False),
        ({}, False),
    ],
)
def test_a_server_serves_tasks_where_it_names_the_extension(capabilities: Any, serves: bool) -> None:
    peer = Peer(revision=Revision.R2026_07_28, capabilities=capabilities, info={})
    assert upstream.declares_tasks(peer) is serves


@pytest.mark.parametrize(
    ("error", "needs"),
    [
        ('{"code":-32021,"message":"m","data":{"requiredCapabilities":{"extensions":{"%s":{}}}}}', True),
        ('{"code":-32020,"message":"m","data":{"requiredCapabilities":{"extensions":{"%s":{}}}}}', False),
        ('{"code":-32021,"message":"m","data":{"requiredCapabilities":{"sampling":{"%s":{}}}}}', False),
        ('{"code":-32021,"message":"m","data":{"requiredCapabilities":["%s"]}}', False),
        ('{"code":-32021,"message":"m","data":"%s"}', False),
        ('{"code":-32021,"message":"%s"}', False),
    ],
)
def test_a_refusal_for_want_of_the_extension_is_known(error: str, needs: bool) -> None:
    text = '{"jsonrpc":"2.0","id":1,"error":' + error % "io.modelcontextprotocol/tasks" + "}"
    response = parse(text.encode(), max_depth=64)
    assert isinstance(response, Response)
    assert upstream.needs_tasks(response) is needs


def test_a_result_refuses_nothing() -> None:
    response = parse(b'{"jsonrpc":"2.0","id":1,"result":{}}', max_depth=64)
    assert isinstance(response, Response)
    assert upstream.needs_tasks(response) is False


# --- what it is asked


def test_a_task_is_named_by_its_servers_own_id() -> None:
    assert json.loads(upstream.task_params('n"1')) == {"taskId": 'n"1'}


def test_answers_go_under_the_servers_keys_as_they_are_written() -> None:
    assert upstream.update_params("n1", '{"k":{"action": "accept"}}') == (
        '{"taskId":"n1","inputResponses":{"k":{"action": "accept"}}}'
    )


# --- that it made one


@covers("M-NEG-8")
def test_a_call_may_be_answered_with_a_task() -> None:
    check_task(CREATED, "CreateTaskResult")
    told = {**CREATED, "statusMessage": "Queued", "pollIntervalMs": 2500}
    assert created(told) == ServerTask("native-1", TaskStatus.WORKING, "Queued", TIMES["lastUpdatedAt"], 2.5)


@pytest.mark.parametrize("result", [{"content": []}, {"resultType": "complete"}, {"resultType": "input_required"}, []])
def test_any_other_answer_is_no_task(result: Any) -> None:
    assert created(result) is None
    assert upstream.read_created("tools/call", refusal()) is None


@pytest.mark.parametrize("method", ["prompts/get", "resources/read", "tools/list"])
def test_only_a_call_of_a_tool_may_become_one(method: str) -> None:
    assert created(CREATED, method) is None


@pytest.mark.parametrize("status", ["working", "input_required", "completed", "failed", "cancelled"])
def test_a_task_may_be_made_in_any_state_and_shows_nothing_of_it_yet(status: str) -> None:
    found = created({**CREATED, "status": status, "result": {}, "error": {}, "inputRequests": {}})
    assert found == ServerTask("native-1", TaskStatus(status), updated=TIMES["lastUpdatedAt"])


@pytest.mark.parametrize(
    "changes",
    [
        {"taskId": ""},
        {"taskId": 3},
        {"taskId": None},
        {"taskId": "x" * 4097},
        {"taskId": "\ud800"},
    ],
)
def test_a_task_that_cannot_be_followed_breaks_the_protocol(changes: dict[str, Any]) -> None:
    with pytest.raises(UpstreamFailed, match="its task") as failed:
        created({**CREATED, **changes})
    assert (failed.value.reason, failed.value.dispatched) == ("malformed", True)


@pytest.mark.parametrize("status", ["submitted", None, ["working"], 7])
def test_a_state_that_there_is_not_breaks_the_protocol_once_it_is_asked_for(status: Any) -> None:
    found = created({**CREATED, "status": status})
    assert found == ServerTask("native-1", TaskStatus.WORKING, updated=TIMES["lastUpdatedAt"])
    with pytest.raises(UpstreamFailed, match="unknown status") as failed:
        upstream.read_state(3, "native-1", response({**CREATED, "status": status}))
    assert failed.value.reason == "malformed"


@pytest.mark.parametrize(
    ("told", "interval"),
    [(1, 0.001), (60_000, 60.0), (0, None), (-5, None), (None, None), (True, None), (1.5, None), ("2", None),
     (2**53, None)],
)  # fmt: skip
def test_an_interval_is_a_number_of_milliseconds(told: Any, interval: float | None) -> None:
    found = created({**CREATED, "pollIntervalMs": told})
    assert found is not None
    assert found.interval == interval


@pytest.mark.parametrize(
    ("told", "message"),
    [("3 of 10", "3 of 10"), ("", None), (None, None), (3, None), ("\ud800", "?"), ("x" * 1001, "x" * 999 + "…")],
)
def test_a_status_message_is_a_text_of_bounded_length(told: Any, message: str | None) -> None:
    found = created({**CREATED, "statusMessage": told})
    assert found is not None
    assert found.message == message


def test_a_time_that_is_no_text_is_none() -> None:
    assert created({**CREATED, "lastUpdatedAt": 3}) == ServerTask("native-1", TaskStatus.WORKING)


# --- what it shows


@pytest.mark.parametrize("status", ["working", "cancelled"])
def test_a_task_that_works_or_was_cancelled_shows_nothing_else(status: str) -> None:
    found = shown(status, ',"result":{},"error":{},"inputRequests":{}')
    assert found == ServerTask("native-1", TaskStatus(status), updated=TIMES["lastUpdatedAt"])


@covers("B-CONV-6")
def test_a_task_shows_all_that_it_waits_for_in_the_words_of_the_legacy_era() -> None:
    page = {"method": "elicitation/create", "params": {"mode": "url", "message": "Go", "url": "https://a.example"}}
    found = shown("input_required", inputRequests={"a": {"method": "roots/list"}, "b": page})
    assert list(found.questions) == ["a", "b"]
    assert found.questions["a"] == Question("roots/list", None)
    params = found.questions["b"].params
    assert params is not None
    assert json.loads(params.head) == {**page["params"], "elicitationId": "3-1"}


def test_a_task_that_waits_need_not_show_for_what() -> None:
    assert shown("input_required").questions == {}


def test_a_question_that_nobody_can_be_asked_breaks_the_protocol() -> None:
    with pytest.raises(UpstreamFailed, match="unknown method"):
        shown("input_required", inputRequests={"a": {"method": "tasks/get"}})


@pytest.mark.parametrize(
    "result", ['{"content":[ ],"isError":true}', '{"resultType":"complete","content": [],"n":1.0}']
)
def test_what_a_call_came_to_is_its_own_response_to_the_byte(result: str) -> None:
    found = shown("completed", f',"result":{result}')
    assert found.response is not None
    assert found.response.text == f'{{"jsonrpc":"2.0","id":3,"result":{result}}}'
    assert found.response.id == 3


def test_an_error_is_the_response_of_the_call_too() -> None:
    error = '{"code":-32001,"message": "no","data":{"a":1.0}}'
    found = shown("failed", f',"error":{error}', statusMessage="no")
    assert found.response is not None
    assert found.response.text == f'{{"jsonrpc":"2.0","id":3,"error":{error}}}'


@pytest.mark.parametrize(
    ("status", "text"),
    [
        ("completed", ""),
        ("completed", ',"result":null'),
        ("completed", ',"result":[]'),
        ("completed", ',"result":{"a":1,"a":2}'),
        ("completed", ',"result":{"resultType":"task"}'),
        ("completed", ',"result":{"resultType":"input_required"}'),
        ("completed", ',"result":{"resultType":3}'),
        ("completed", ',"result":{"resultType":"task","content":[]}'),
        ("completed", ',"result":{}'),
        ("completed", ',"result":{"resultType":"complete","_meta":{"a":1}}'),
        ("failed", ""),
        ("failed", ',"result":{}'),
        ("failed", ',"error":"no"'),
        ("failed", ',"error":{}'),
        ("failed", ',"error":{"code":"1","message":"no"}'),
    ],
)
def test_a_task_that_is_over_shows_what_came_of_it(status: str, text: str) -> None:
    with pytest.raises(UpstreamFailed, match=r"of its task|its task ended") as failed:
        shown(status, text)
    assert failed.value.reason == "malformed"


def test_a_task_that_is_over_and_shows_a_list_of_results_breaks_the_protocol() -> None:
    with pytest.raises(UpstreamFailed, match="no valid taskId"):
        upstream.read_state(3, "native-1", response([]))


def test_another_task_than_the_one_that_was_asked_for_breaks_the_protocol() -> None:
    with pytest.raises(UpstreamFailed, match="another task"):
        upstream.read_state(3, "native-2", response(TASK))


def test_an_error_shows_nothing_of_a_task() -> None:
    assert upstream.read_state(3, "native-1", refusal()) is None


# --- news


@pytest.mark.parametrize(("params", "task"), [({"taskId": "n1"}, "n1"), ({"taskId": 3}, None), ({}, None)])
def test_news_name_the_task_they_are_about(params: Any, task: str | None) -> None:
    text = json.dumps({"jsonrpc": "2.0", "method": "notifications/tasks", "params": params})
    found = parse(text.encode(), max_depth=64)
    assert isinstance(found, Notification)
    assert upstream.read_notification(found.params) == task
