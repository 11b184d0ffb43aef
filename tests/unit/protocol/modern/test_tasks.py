"""The shapes of a task in 2026-07-28: what each state looks like, and what never stands in one."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta, timezone
from typing import Any

import pytest

from helpers.manual_clock import EPOCH
from requirements import covers
from taskgate.domain.record import Faulted, FaultReason, InputRequest, Succeeded, TaskRecord, TaskStatus, outcome_text
from taskgate.domain.versions import MODERN, Peer
from taskgate.jsontext.large import LargeJson, to_string
from taskgate.protocol.modern.tasks import (
    acknowledgement,
    create_result,
    get_result,
    open_inputs,
    presented_status,
    task_notification,
    undeclared,
)
from unit.protocol.modern.judge import EXTENSION, INFO, INFO_KEY, RELATED, TOLD, check, check_task, read

RecordMaker = Callable[..., TaskRecord]

TASK: dict[str, Any] = {
    "taskId": "7Qm2vX0cJ9rYw4LkT1eZ8A-_7Qm2vX0c",
    "status": "working",
    "createdAt": "2026-01-02T03:04:05.678Z",
    "lastUpdatedAt": "2026-01-02T03:04:12.798Z",
    "ttlMs": 3_600_000,
    "pollIntervalMs": 2_000,
}
PARAMS = (
    '{"message":"Go on?","requestedSchema":{"type":"object","properties":{}},"task":{},"_meta":{"progressToken":"t.i"}}'
)
SHOWN = {"message": "Go on?", "requestedSchema": {"type": "object", "properties": {}}}
FORM = InputRequest(key="input-1", method="elicitation/create", params=PARAMS, claimed_by="a stream")
ROOTS = InputRequest(key="input-3", method="roots/list", params="")
KEPT = InputRequest(key="input-2", method="elicitation/create", params=PARAMS, deferred_to="host-task")
OF_A_HOSTS_TASK = InputRequest(key="input-4", method="tasks/result", params='{"taskId":"host-task"}')
DONE = Succeeded(result='{"content":[]}', tool_error=False)
TOOL_FAILED = Succeeded(
    result=f'{{"isError":true,"content":[],"_meta":{{"{RELATED}":{{"taskId":"u"}}}}}}', tool_error=True
)
BROKE = Faulted(error='{"code":-32002,"message":"no","data":[1e999]}', reason=FaultReason.JSONRPC_ERROR)

# What a record has, the name of its shape, and what the shape has beside the task.
STATES: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "working": ({}, "WorkingTask", {}),
    "told how far": ({"status_message": '3/10: "é"'}, "WorkingTask", {"statusMessage": '3/10: "é"'}),
    "told nothing": ({"status_message": ""}, "WorkingTask", {"statusMessage": ""}),
    "asked": (
        {"status": TaskStatus.INPUT_REQUIRED, "inputs": (FORM, KEPT, ROOTS, OF_A_HOSTS_TASK)},
        "InputRequiredTask",
        {
            "status": "input_required",
            "inputRequests": {
                "input-1": {"method": "elicitation/create", "params": SHOWN},
                "input-3": {"method": "roots/list", "params": {}},
            },
        },
    ),
    "asked what its host sees to": ({"status": TaskStatus.INPUT_REQUIRED, "inputs": (KEPT,)}, "WorkingTask", {}),
    "asked what no host of this era hears": (
        {"status": TaskStatus.INPUT_REQUIRED, "inputs": (OF_A_HOSTS_TASK,)},
        "WorkingTask",
        {},
    ),
    "completed": (
        {"status": TaskStatus.COMPLETED, "outcome": DONE},
        "CompletedTask",
        {"status": "completed", "result": {"resultType": "complete", "content": []}},
    ),
    "completed by an error of the tool": (
        {"status": TaskStatus.COMPLETED, "outcome": TOOL_FAILED, "tool_error": True, "status_message": "no"},
        "CompletedTask",
        {
            "status": "completed",
            "statusMessage": "no",
            "result": {"resultType": "complete", "isError": True, "content": []},
        },
    ),
    "failed": (
        {"status": TaskStatus.FAILED, "outcome": BROKE, "status_message": "no"},
        "FailedTask",
        {
            "status": "failed",
            "statusMessage": "no",
            "error": {"code": -32602, "message": "no", "data": [float("inf")]},
        },
    ),
    "cancelled": ({"status": TaskStatus.CANCELLED}, "CancelledTask", {"status": "cancelled"}),
}
EVERY = pytest.mark.parametrize(("changes", "name", "more"), STATES.values(), ids=STATES)


@covers("M-GET-1", "M-GET-2", "M-GET-3", "T-1", "T-7")
@EVERY
def test_a_state_shows_what_belongs_to_it_and_nothing_else(
    make_record: RecordMaker, changes: dict[str, Any], name: str, more: dict[str, Any]
) -> None:
    text = get_result(make_record(**changes), INFO)
    assert read(text) == {"resultType": "complete", **TASK, **more, "_meta": TOLD}
    check_task(text, "GetTaskResult", name)
    check(text, "Result")
    if name == "CompletedTask":
        check(read(text)["result"], "CallToolResult")
    if name == "InputRequiredTask":
        check(read(text)["inputRequests"], "InputRequests")


@covers("M-CREATE-2", "T-2", "T-3")
@EVERY
def test_a_handle_is_flat_and_tells_nothing_of_what_came_of_it(
    make_record: RecordMaker, changes: dict[str, Any], name: str, more: dict[str, Any]
) -> None:
    text = create_result(make_record(**changes), INFO)
    told = {key: value for key, value in more.items() if key in ("status", "statusMessage")}
    assert read(text) == {"resultType": "task", **TASK, **told, "_meta": TOLD}
    check_task(text, "CreateTaskResult")


@covers("M-NOTIF-3", "M-NOTIF-4", "T-15")
@EVERY
@pytest.mark.parametrize("subscription", ["sub-7", 7, '"'])
def test_news_of_a_task_are_what_a_look_would_show(
    make_record: RecordMaker, changes: dict[str, Any], name: str, more: dict[str, Any], subscription: str | int
) -> None:
    found = read(task_notification(make_record(**changes), subscription))
    meta = {"io.modelcontextprotocol/subscriptionId": subscription}
    assert found == {"jsonrpc": "2.0", "method": "notifications/tasks", "params": {**TASK, **more, "_meta": meta}}
    check_task(found, "TaskStatusNotification")
    check(found["params"], name, "DetailedTask", schema=EXTENSION)


@covers("M-UPD-1", "M-CANCEL-1")
def test_an_acknowledgement_tells_nothing_of_the_task() -> None:
    text = acknowledgement(INFO)
    assert read(text) == {"resultType": "complete", "_meta": TOLD}
    check_task(text, "UpdateTaskResult", "CancelTaskResult")


def test_inputs_may_be_answered_that_are_shown(make_record: RecordMaker) -> None:
    record = make_record(status=TaskStatus.INPUT_REQUIRED, inputs=(KEPT, FORM, OF_A_HOSTS_TASK))
    assert open_inputs(record) == {"input-1": FORM}
    assert presented_status(record) is TaskStatus.INPUT_REQUIRED


@pytest.mark.parametrize("status", [TaskStatus.COMPLETED, TaskStatus.FAILED])
def test_a_finished_record_without_its_bodies_cannot_be_shown(make_record: RecordMaker, status: TaskStatus) -> None:
    with pytest.raises(AssertionError):
        get_result(make_record(status=status), INFO)


@pytest.mark.parametrize(("names_server", "named"), [(True, {INFO_KEY: {"name": "s"}}), (False, {})])
def test_a_result_says_which_server_it_is_of_where_hosts_are_told(
    make_record: RecordMaker, names_server: bool, named: dict[str, Any]
) -> None:
    said = f'{{"content":[],"_meta":{{"{INFO_KEY}":{{"name":"s"}},"io.modelcontextprotocol/logLevel":1,"own":2}}}}'
    results = (Succeeded(result=said, tool_error=False), Succeeded(result=LargeJson(said.encode()), tool_error=False))
    for outcome in results:
        record = make_record(status=TaskStatus.COMPLETED, outcome=outcome)
        looked = read(to_string(get_result(record, INFO, names_server=names_server)))
        told = read(to_string(task_notification(record, "s", names_server=names_server)))["params"]
        assert looked["result"]["_meta"] == told["result"]["_meta"] == {**named, "own": 2}


def test_the_payload_is_the_servers_to_the_byte(make_record: RecordMaker) -> None:
    outcome = Succeeded(result='{ "content" : [ ] ,"x":"\\u0061\\ud800", "y":1.50}', tool_error=False)
    text = get_result(make_record(status=TaskStatus.COMPLETED, outcome=outcome), INFO)
    assert ',"result":{"resultType":"complete", "content" : [ ] ,"x":"\\u0061\\ud800", "y":1.50},"_meta"' in text


@pytest.mark.parametrize(
    ("length", "milliseconds"),
    [(timedelta(milliseconds=1, microseconds=999), 1), (timedelta(days=36_500), 3_153_600_000_000)],
)
def test_lengths_of_time_are_whole_milliseconds(make_record: RecordMaker, length: timedelta, milliseconds: int) -> None:
    found = read(get_result(make_record(ttl=length, poll_interval=length), INFO))
    assert (found["ttlMs"], found["pollIntervalMs"]) == (milliseconds, milliseconds)


def test_times_are_of_utc(make_record: RecordMaker) -> None:
    record = make_record()
    elsewhere = replace(record, created_at=EPOCH.astimezone(timezone(timedelta(hours=2))))
    assert get_result(elsewhere, INFO) == get_result(record, INFO)


@pytest.mark.parametrize("outcome", [DONE, TOOL_FAILED, BROKE])
def test_a_large_outcome_is_shown_as_a_small_one(make_record: RecordMaker, outcome: Succeeded | Faulted) -> None:
    status = TaskStatus.COMPLETED if isinstance(outcome, Succeeded) else TaskStatus.FAILED
    text = LargeJson(str(outcome_text(outcome)).encode())
    name = "result" if isinstance(outcome, Succeeded) else "error"
    small = make_record(status=status, outcome=outcome)
    large = make_record(status=status, outcome=replace(outcome, **{name: text}))  # type: ignore[arg-type]
    assert to_string(get_result(large, INFO)) == get_result(small, INFO)
    assert to_string(task_notification(large, "s")) == task_notification(small, "s")


def test_a_poll_interval_that_is_advised_stands_in_place_of_the_recorded_one(make_record: RecordMaker) -> None:
    assert read(get_result(make_record(), INFO, interval=250))["pollIntervalMs"] == 250


@pytest.mark.parametrize(
    ("capabilities", "lacking"),
    [
        ({"elicitation": {}, "roots": {}}, {}),
        ({"elicitation": {}}, {"roots": {}}),
        ({}, {"elicitation": {"form": {}}, "roots": {}}),
    ],
)
def test_what_a_host_does_not_declare_for_the_open_inputs_is_named(
    make_record: RecordMaker, capabilities: dict[str, Any], lacking: dict[str, Any]
) -> None:
    task = make_record(status=TaskStatus.INPUT_REQUIRED, inputs=(FORM, KEPT, ROOTS, OF_A_HOSTS_TASK))
    assert undeclared(task, Peer(revision=MODERN[-1], capabilities=capabilities, info={})) == lacking


def test_a_task_that_asks_nothing_needs_nothing(make_record: RecordMaker) -> None:
    assert undeclared(make_record(), None) == {}
