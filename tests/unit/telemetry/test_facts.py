"""Every fact moves exactly its families, with the right labels."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, get_args, get_type_hints

import pytest

from taskgate.tasks.record import TaskStatus
from taskgate.telemetry import audit
from taskgate.telemetry.metrics import PrometheusAudit

Moved = Callable[[], dict[str, float]]

_UP = "upstream=reports"
_STORE = "backend=sqlite,operation=load,result="


def _observed(name: str, labels: str, value: float) -> dict[str, float]:
    return {f"{name}_count{{{labels}}}": 1, f"{name}_sum{{{labels}}}": value}


def _seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


FACTS: list[tuple[audit.Fact, dict[str, float]]] = [
    (
        audit.HttpAnswered("mcp", "POST", 200, 0.5),
        _observed(
            "http_server_request_duration_seconds",
            "http_request_method=POST,http_response_status_code=200,http_route=mcp",
            0.5,
        ),
    ),
    (audit.HttpRefused("bad_host"), {"taskgate_http_rejections_total{reason=bad_host}": 1}),
    (audit.HttpRefused("header_mismatch"), {"taskgate_http_rejections_total{reason=header_mismatch}": 1}),
    (audit.StreamOpened("downstream", "get"), {"taskgate_streams{kind=get,side=downstream}": 1}),
    (audit.StreamEnded("upstream", "response"), {"taskgate_streams{kind=response,side=upstream}": -1}),
    (
        audit.RpcAnswered("m", "tools/call", "2025-11-25", 2.0, None),
        _observed("mcp_server_operation_duration_seconds", f"error_type=,mcp_method_name=tools/call,{_UP}", 2.0)
        | {"taskgate_requests_by_protocol_total{mcp_protocol_version=2025-11-25}": 1},
    ),
    (
        audit.RpcAnswered("m", "tasks/get", "2025-06-18", 0.25, "-32602"),
        _observed("mcp_server_operation_duration_seconds", f"error_type=-32602,mcp_method_name=tasks/get,{_UP}", 0.25)
        | {"taskgate_requests_by_protocol_total{mcp_protocol_version=2025-06-18}": 1},
    ),
    (
        audit.UpstreamAnswered("m", "tools/list", 4.0, "timeout"),
        _observed("mcp_client_operation_duration_seconds", f"error_type=timeout,mcp_method_name=tools/list,{_UP}", 4.0),
    ),
    (audit.ToolCalled("m", "sum", "task"), {f"taskgate_tool_calls_total{{disposition=task,tool=sum,{_UP}}}": 1}),
    (
        audit.ToolCalled("m", None, "rejected"),
        {f"taskgate_tool_calls_total{{disposition=rejected,tool=_OTHER,{_UP}}}": 1},
    ),
    (
        audit.TaskCreated("m", _seconds(60), None),
        {f"taskgate_tasks_started_total{{{_UP}}}": 1} | _observed("taskgate_task_ttl_seconds", _UP, 60),
    ),
    (
        audit.TaskCreated("m", _seconds(3600), "clamped_max"),
        {
            f"taskgate_tasks_started_total{{{_UP}}}": 1,
            f"taskgate_ttl_adjustments_total{{action=clamped_max,{_UP}}}": 1,
        }
        | _observed("taskgate_task_ttl_seconds", _UP, 3600),
    ),
    (audit.TaskDispatched("m", _seconds(0.5)), _observed("taskgate_task_queue_wait_seconds", _UP, 0.5)),
    (
        audit.TaskMoved("m", TaskStatus.WORKING, TaskStatus.COMPLETED),
        {f"taskgate_task_transitions_total{{from_status=working,to_status=completed,{_UP}}}": 1},
    ),
    (
        audit.TaskFinished("m", TaskStatus.COMPLETED, "ok", _seconds(8), 2048),
        {f"taskgate_tasks_finished_total{{reason=ok,status=completed,{_UP}}}": 1}
        | _observed("taskgate_task_duration_seconds", f"status=completed,{_UP}", 8)
        | _observed("taskgate_task_result_bytes", _UP, 2048),
    ),
    (
        audit.TaskFinished("m", TaskStatus.FAILED, "call_lost", _seconds(8), None),
        {f"taskgate_tasks_finished_total{{reason=call_lost,status=failed,{_UP}}}": 1}
        | _observed("taskgate_task_duration_seconds", f"status=failed,{_UP}", 8),
    ),
    (audit.TaskExpired("m", "working"), {f"taskgate_task_expirations_total{{phase=working,{_UP}}}": 1}),
    (audit.TaskPurged(TaskStatus.CANCELLED), {"taskgate_tasks_purged_total{status=cancelled}": 1}),
    (
        audit.TaskCancelAsked("m", "propagated"),
        {f"taskgate_task_cancel_requests_total{{outcome=propagated,{_UP}}}": 1},
    ),
    (audit.TaskRecovered("m", "retried"), {f"taskgate_task_recoveries_total{{outcome=retried,{_UP}}}": 1}),
    (
        audit.TaskDenied("m", "tasks/result"),
        {f"taskgate_task_access_denials_total{{mcp_method_name=tasks/result,{_UP}}}": 1},
    ),
    (audit.LateAnswerDropped("m"), {f"taskgate_task_late_answers_total{{{_UP}}}": 1}),
    (audit.SessionLost("m"), {f"taskgate_upstream_sessions_lost_total{{{_UP}}}": 1}),
    (
        audit.StoreUsed("load", 0.125, True),
        _observed("taskgate_store_operation_duration_seconds", f"{_STORE}ok", 0.125)
        | {"taskgate_store_up{backend=sqlite}": 1},
    ),
    (
        audit.StoreUsed("load", 0.125, False),
        _observed("taskgate_store_operation_duration_seconds", f"{_STORE}error", 0.125),
    ),
    (
        audit.StoreCounted({TaskStatus.WORKING: 3}, 4096),
        {"taskgate_store_tasks{status=working}": 3, "taskgate_store_size_bytes{backend=sqlite}": 4096},
    ),
    (audit.StoreCounted({TaskStatus.FAILED: 1}, None), {"taskgate_store_tasks{status=failed}": 1}),
    (audit.CallsRunning("m", 7), {f"taskgate_tasks_running{{{_UP}}}": 7}),
]


def test_the_table_has_every_fact() -> None:
    assert {type(fact) for fact, _ in FACTS} == set(get_args(audit.Fact))


@pytest.mark.parametrize(("fact", "expected"), FACTS, ids=lambda each: repr(each)[:60])
def test_a_fact_moves_its_families_and_no_other(
    metrics: PrometheusAudit, moved: Moved, fact: audit.Fact, expected: dict[str, float]
) -> None:
    metrics.record(fact)
    assert moved() == expected


@pytest.mark.parametrize(("fact", "expected"), FACTS, ids=lambda each: repr(each)[:60])
def test_the_same_fact_again_counts_again(
    metrics: PrometheusAudit, moved: Moved, fact: audit.Fact, expected: dict[str, float]
) -> None:
    metrics.record(fact)
    metrics.record(fact)
    sets = ("taskgate_store_tasks", "taskgate_store_size", "taskgate_store_up", "taskgate_tasks_running")
    assert moved() == {name: value * (1 if name.startswith(sets) else 2) for name, value in expected.items()}


def test_the_store_is_up_or_down_as_its_last_operation_was(metrics: PrometheusAudit, moved: Moved) -> None:
    for ok in (True, False):
        metrics.record(audit.StoreUsed("load", 0.0, ok))
        assert moved().get("taskgate_store_up{backend=sqlite}", 0) == ok


def test_a_status_that_the_store_no_longer_holds_is_shown_as_none(metrics: PrometheusAudit, moved: Moved) -> None:
    metrics.record(audit.StoreCounted({TaskStatus.WORKING: 3, TaskStatus.FAILED: 1}, None))
    metrics.record(audit.StoreCounted({TaskStatus.FAILED: 2}, None))
    assert moved() == {"taskgate_store_tasks{status=failed}": 2}


def test_a_fact_that_cannot_be_counted_disturbs_nobody(
    metrics: PrometheusAudit, moved: Moved, caplog: pytest.LogCaptureFixture
) -> None:
    unhashable: Any = []
    metrics.record(audit.HttpRefused(unhashable))
    metrics.record(unhashable)
    assert moved() == {}
    assert [(record.message, record.fact) for record in caplog.records] == [
        ("a fact was not counted", "HttpRefused"),
        ("a fact was not counted", "list"),
    ]


def test_no_fact_has_a_field_for_an_identity() -> None:
    names = {name for fact in get_args(audit.Fact) for name in get_type_hints(fact)}
    assert not names & {"id", "task_id", "session", "session_id", "owner", "context", "address", "token", "arguments"}
