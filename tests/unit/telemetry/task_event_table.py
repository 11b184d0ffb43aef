"""Every event about a task, and what it moves on the page of fresh metrics; part of `event_table`."""

from datetime import timedelta
from typing import Any

from helpers.records import new_record
from taskgate.domain.record import OwnerKey, TaskRecord, TaskStatus
from taskgate.telemetry import events

UP = "upstream=reports"


def observed(name: str, labels: str, value: float) -> dict[str, float]:
    """What one value moves in a histogram."""
    return {f"{name}_count{{{labels}}}": 1, f"{name}_sum{{{labels}}}": value}


def seconds(value: float) -> timedelta:
    """So long a time."""
    return timedelta(seconds=value)


def _task(**changes: Any) -> TaskRecord:
    return new_record(owner=OwnerKey("context-of-somebody", "m"), **changes)


TASK = _task()

TASK_EVENTS: list[tuple[events.Event, dict[str, float]]] = [
    (
        events.TaskCreated(_task(ttl=seconds(60)), None),
        {f"taskgate_tasks_started_total{{tenant=,{UP}}}": 1} | observed("taskgate_task_ttl_seconds", UP, 60),
    ),
    (
        events.TaskCreated(TASK, "clamped_max"),
        {
            f"taskgate_tasks_started_total{{tenant=,{UP}}}": 1,
            f"taskgate_ttl_adjustments_total{{action=clamped_max,{UP}}}": 1,
        }
        | observed("taskgate_task_ttl_seconds", UP, 3600),
    ),
    (events.TaskDispatched(TASK, seconds(0.5)), observed("taskgate_task_queue_wait_seconds", UP, 0.5)),
    (
        events.TaskTransitioned(_task(status=TaskStatus.COMPLETED), TaskStatus.WORKING),
        {f"taskgate_task_transitions_total{{from_status=working,to_status=completed,{UP}}}": 1},
    ),
    (
        events.TaskFinished(TASK, TaskStatus.COMPLETED, "ok", seconds(8), 2048),
        {f"taskgate_tasks_finished_total{{reason=ok,status=completed,{UP}}}": 1}
        | observed("taskgate_task_duration_seconds", f"status=completed,{UP}", 8)
        | observed("taskgate_task_result_bytes", UP, 2048),
    ),
    (
        events.TaskFinished(TASK, TaskStatus.FAILED, "call_lost", seconds(8), None),
        {f"taskgate_tasks_finished_total{{reason=call_lost,status=failed,{UP}}}": 1}
        | observed("taskgate_task_duration_seconds", f"status=failed,{UP}", 8),
    ),
    *(
        (events.TaskExpired(TASK, phase), {f"taskgate_task_expirations_total{{phase={phase},{UP}}}": 1.0})
        for phase in ("queued", "working", "input_required")
    ),
    (events.TaskPurged(_task(status=TaskStatus.CANCELLED)), {"taskgate_tasks_purged_total{status=cancelled}": 1}),
    (events.TaskPurged(_task(status=TaskStatus.WORKING)), {"taskgate_tasks_purged_total{status=working}": 1}),
    (
        events.TaskPurged(_task(status=TaskStatus.COMPLETED, retrieved=True)),
        {"taskgate_tasks_purged_total{status=completed}": 1},
    ),
    (
        events.TaskPurged(_task(status=TaskStatus.FAILED)),
        {
            "taskgate_tasks_purged_total{status=failed}": 1,
            f"taskgate_tasks_undelivered_total{{status=failed,{UP}}}": 1,
        },
    ),
    (events.TaskRetrieved(TASK, seconds(2.5)), observed("taskgate_task_delivery_delay_seconds", UP, 2.5)),
    (events.TaskRetrieved(TASK, None), {}),
    (events.InputRequestOpened(TASK, "input-1", "elicitation"), {}),
    (
        events.InputSettled(TASK, "input-1", "sampling", "declined"),
        {f"taskgate_task_input_requests_total{{kind=sampling,outcome=declined,{UP}}}": 1},
    ),
    (events.InputWaited(TASK, seconds(30)), observed("taskgate_task_input_wait_seconds", UP, 30)),
    (events.PollsCounted("m", 7), observed("taskgate_task_polls_per_task", UP, 7)),
    (
        events.TaskCancelRequested(TASK, "propagated"),
        {f"taskgate_task_cancel_requests_total{{outcome=propagated,{UP}}}": 1},
    ),
    (events.TaskRecovered(TASK, "retried"), {f"taskgate_task_recoveries_total{{outcome=retried,{UP}}}": 1}),
    (
        events.TaskDenied("m", "tasks/result", "context_mismatch", TASK.id, "context-of-somebody"),
        {f"taskgate_task_access_denials_total{{mcp_method_name=tasks/result,reason=context_mismatch,{UP}}}": 1},
    ),
    (
        events.TaskDenied("m", "tasks/get", "not_found", TASK.id, None),
        {
            f"taskgate_task_access_denials_total{{mcp_method_name=tasks/get,reason=not_found,{UP}}}": 1,
            f"taskgate_task_polls_total{{result=denied,{UP}}}": 1,
        },
    ),
]
