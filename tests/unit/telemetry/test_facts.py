"""Every fact moves exactly its families, with the right labels."""

from collections.abc import Callable
from datetime import timedelta
from time import time
from typing import Any, Protocol, get_args, get_type_hints

import pytest

from taskgate.errors import AuthReason
from taskgate.tasks.record import TaskStatus
from taskgate.telemetry import audit
from taskgate.telemetry.metrics import PrometheusAudit

Moved = Callable[[], dict[str, float]]

_UP = "upstream=reports"
_STORE = "backend=sqlite,operation=load,result="
_KEYS_AT = "taskgate_jwks_last_success_timestamp_seconds{issuer=corp}"


class SetClock(Protocol):
    """See conftest."""

    seconds: float


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
    (audit.HttpRefused("unauthenticated"), {"taskgate_http_rejections_total{reason=unauthenticated}": 1}),
    (audit.HttpRefused("insufficient_scope"), {"taskgate_http_rejections_total{reason=insufficient_scope}": 1}),
    (audit.HttpRefused("jwks_unavailable"), {"taskgate_http_rejections_total{reason=jwks_unavailable}": 1}),
    (
        audit.HttpAnswered("mcp", "POST", 401, 0.5),
        _observed(
            "http_server_request_duration_seconds",
            "http_request_method=POST,http_response_status_code=401,http_route=mcp",
            0.5,
        ),
    ),
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
        audit.RpcAnswered("m", "tasks/list", "2025-11-25", 0.25, "403"),
        _observed("mcp_server_operation_duration_seconds", f"error_type=403,mcp_method_name=tasks/list,{_UP}", 0.25)
        | {"taskgate_requests_by_protocol_total{mcp_protocol_version=2025-11-25}": 1},
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
    (audit.TokenJudged("corp", "ok"), {"taskgate_auth_requests_total{issuer=corp,reason=,result=accepted}": 1}),
    (
        audit.TokenJudged("partner", "jwks_unavailable"),
        {"taskgate_auth_requests_total{issuer=partner,reason=jwks_unavailable,result=rejected}": 1},
    ),
    *(
        (
            audit.TokenJudged("_OTHER", reason.value),
            {f"taskgate_auth_requests_total{{issuer=_OTHER,reason={reason.value},result=rejected}}": 1.0},
        )
        for reason in AuthReason
    ),
    (
        audit.KeysFetched("corp", "ok", 3),
        {
            "taskgate_jwks_refreshes_total{issuer=corp,result=ok}": 1,
            "taskgate_jwks_keys{issuer=corp}": 3,
            _KEYS_AT: 1_800_000_000.5,
        },
    ),
    (
        audit.KeysFetched("corp", "stale", 2),
        {"taskgate_jwks_refreshes_total{issuer=corp,result=stale}": 1, "taskgate_jwks_keys{issuer=corp}": 2},
    ),
    (audit.KeysFetched("corp", "failed", 0), {"taskgate_jwks_refreshes_total{issuer=corp,result=failed}": 1}),
    (
        audit.AccessRefused("m", "tools/call", shadow=False),
        {f"taskgate_access_refusals_total{{mcp_method_name=tools/call,mode=enforced,{_UP}}}": 1},
    ),
    (
        audit.AccessRefused("m", "tasks/get", shadow=True),
        {f"taskgate_access_refusals_total{{mcp_method_name=tasks/get,mode=shadow,{_UP}}}": 1},
    ),
    (
        audit.CredentialsGot("m", 0.25, True),
        _observed("taskgate_token_exchange_duration_seconds", f"result=ok,{_UP}", 0.25),
    ),
    (
        audit.CredentialsGot("m", 0.25, False),
        _observed("taskgate_token_exchange_duration_seconds", f"result=error,{_UP}", 0.25),
    ),
    (audit.EnumerationSuspected("m"), {"taskgate_security_events_total{type=enumeration_suspected}": 1}),
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
    stores = ("taskgate_store_tasks", "taskgate_store_size", "taskgate_store_up")
    sets = (*stores, "taskgate_tasks_running", "taskgate_jwks_keys", "taskgate_jwks_last")
    assert moved() == {name: value * (1 if name.startswith(sets) else 2) for name, value in expected.items()}


def test_keys_that_did_not_come_leave_the_time_of_the_last_that_did(
    metrics: PrometheusAudit, moved: Moved, clock: SetClock
) -> None:
    for seconds, result in ((1000, "ok"), (2000, "stale"), (3000, "failed")):
        clock.seconds = seconds
        metrics.record(audit.KeysFetched("corp", result, 1))
        assert moved()[_KEYS_AT] == 1000
    metrics.record(audit.KeysFetched("corp", "ok", 1))
    assert moved()[_KEYS_AT] == 3000


def test_an_issuer_whose_keys_are_gone_is_shown_with_none(metrics: PrometheusAudit, moved: Moved) -> None:
    metrics.record(audit.KeysFetched("corp", "ok", 3))
    metrics.record(audit.KeysFetched("corp", "failed", 0))
    assert "taskgate_jwks_keys{issuer=corp}" not in moved()


def test_the_time_is_the_systems_unless_another_clock_is_given() -> None:
    metrics = PrometheusAudit(upstreams={}, issuers=["corp"], backend="memory")
    before = time()
    metrics.record(audit.KeysFetched("corp", "ok", 1))
    page = metrics.render(None)[0].decode()
    [line] = [each for each in page.splitlines() if each.startswith("taskgate_jwks_last_success_timestamp_seconds{")]
    assert before - 1 <= float(line.split()[1]) <= time() + 1


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
