"""Every fact, and what it moves on the page of fresh metrics; see the fixtures `metrics` and `moved`."""

from datetime import timedelta

from taskgate.errors import AuthReason
from taskgate.tasks.record import TaskStatus
from taskgate.telemetry import audit

UP = "upstream=reports"
_STORE = "backend=sqlite,operation=load,result="
UNFINISHED = "taskgate_concurrency_in_use{scope=global,upstream=}"
KEYS_AT = "taskgate_jwks_last_success_timestamp_seconds{issuer=corp}"


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
        _observed("mcp_server_operation_duration_seconds", f"error_type=,mcp_method_name=tools/call,{UP}", 2.0)
        | {"taskgate_requests_by_protocol_total{mcp_protocol_version=2025-11-25}": 1},
    ),
    (
        audit.RpcAnswered("m", "tasks/get", "2025-06-18", 0.25, "-32602"),
        _observed("mcp_server_operation_duration_seconds", f"error_type=-32602,mcp_method_name=tasks/get,{UP}", 0.25)
        | {"taskgate_requests_by_protocol_total{mcp_protocol_version=2025-06-18}": 1},
    ),
    (
        audit.RpcAnswered("m", "tasks/list", "2025-11-25", 0.25, "403"),
        _observed("mcp_server_operation_duration_seconds", f"error_type=403,mcp_method_name=tasks/list,{UP}", 0.25)
        | {"taskgate_requests_by_protocol_total{mcp_protocol_version=2025-11-25}": 1},
    ),
    (
        audit.UpstreamAnswered("m", "tools/list", 4.0, "timeout"),
        _observed("mcp_client_operation_duration_seconds", f"error_type=timeout,mcp_method_name=tools/list,{UP}", 4.0),
    ),
    (audit.ToolCalled("m", "sum", "task"), {f"taskgate_tool_calls_total{{disposition=task,tool=sum,{UP}}}": 1}),
    (
        audit.ToolCalled("m", None, "rejected"),
        {f"taskgate_tool_calls_total{{disposition=rejected,tool=_OTHER,{UP}}}": 1},
    ),
    (
        audit.TaskCreated("m", _seconds(60), None),
        {f"taskgate_tasks_started_total{{{UP}}}": 1} | _observed("taskgate_task_ttl_seconds", UP, 60),
    ),
    (
        audit.TaskCreated("m", _seconds(3600), "clamped_max"),
        {
            f"taskgate_tasks_started_total{{{UP}}}": 1,
            f"taskgate_ttl_adjustments_total{{action=clamped_max,{UP}}}": 1,
        }
        | _observed("taskgate_task_ttl_seconds", UP, 3600),
    ),
    (audit.TaskDispatched("m", _seconds(0.5)), _observed("taskgate_task_queue_wait_seconds", UP, 0.5)),
    (
        audit.TaskMoved("m", TaskStatus.WORKING, TaskStatus.COMPLETED),
        {f"taskgate_task_transitions_total{{from_status=working,to_status=completed,{UP}}}": 1},
    ),
    (
        audit.TaskFinished("m", TaskStatus.COMPLETED, "ok", _seconds(8), 2048),
        {f"taskgate_tasks_finished_total{{reason=ok,status=completed,{UP}}}": 1}
        | _observed("taskgate_task_duration_seconds", f"status=completed,{UP}", 8)
        | _observed("taskgate_task_result_bytes", UP, 2048),
    ),
    (
        audit.TaskFinished("m", TaskStatus.FAILED, "call_lost", _seconds(8), None),
        {f"taskgate_tasks_finished_total{{reason=call_lost,status=failed,{UP}}}": 1}
        | _observed("taskgate_task_duration_seconds", f"status=failed,{UP}", 8),
    ),
    (audit.TaskExpired("m", "working"), {f"taskgate_task_expirations_total{{phase=working,{UP}}}": 1}),
    (audit.TaskPurged(TaskStatus.CANCELLED), {"taskgate_tasks_purged_total{status=cancelled}": 1}),
    (
        audit.TaskCancelAsked("m", "propagated"),
        {f"taskgate_task_cancel_requests_total{{outcome=propagated,{UP}}}": 1},
    ),
    (audit.TaskRecovered("m", "retried"), {f"taskgate_task_recoveries_total{{outcome=retried,{UP}}}": 1}),
    (
        audit.TaskDenied("m", "tasks/result"),
        {f"taskgate_task_access_denials_total{{mcp_method_name=tasks/result,{UP}}}": 1},
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
            KEYS_AT: 1_800_000_000.5,
        },
    ),
    (
        audit.KeysFetched("corp", "stale", 2),
        {"taskgate_jwks_refreshes_total{issuer=corp,result=stale}": 1, "taskgate_jwks_keys{issuer=corp}": 2},
    ),
    (audit.KeysFetched("corp", "failed", 0), {"taskgate_jwks_refreshes_total{issuer=corp,result=failed}": 1}),
    (
        audit.AccessRefused("m", "tools/call", shadow=False),
        {f"taskgate_access_refusals_total{{mcp_method_name=tools/call,mode=enforced,{UP}}}": 1},
    ),
    (
        audit.AccessRefused("m", "tasks/get", shadow=True),
        {f"taskgate_access_refusals_total{{mcp_method_name=tasks/get,mode=shadow,{UP}}}": 1},
    ),
    (
        audit.CredentialsGot("m", 0.25, True),
        _observed("taskgate_token_exchange_duration_seconds", f"result=ok,{UP}", 0.25),
    ),
    (
        audit.CredentialsGot("m", 0.25, False),
        _observed("taskgate_token_exchange_duration_seconds", f"result=error,{UP}", 0.25),
    ),
    (audit.EnumerationSuspected("m"), {"taskgate_security_events_total{type=enumeration_suspected}": 1}),
    (audit.LateAnswerDropped("m"), {f"taskgate_task_late_answers_total{{{UP}}}": 1}),
    (audit.SessionLost("m"), {f"taskgate_upstream_sessions_lost_total{{{UP}}}": 1}),
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
        {
            "taskgate_store_tasks{status=working}": 3,
            "taskgate_store_size_bytes{backend=sqlite}": 4096,
            UNFINISHED: 3,
        },
    ),
    (audit.StoreCounted({TaskStatus.FAILED: 1}, None), {"taskgate_store_tasks{status=failed}": 1}),
    (audit.CallsRunning("m", 7), {f"taskgate_tasks_running{{{UP}}}": 7}),
    *(
        (audit.HttpRefused(reason), {f"taskgate_http_rejections_total{{reason={reason}}}": 1.0})
        for reason in ("rate", "concurrency", "queue", "bytes", "penalty")
    ),
    (
        audit.TaskFinished("m", TaskStatus.FAILED, "queue", _seconds(8), None),
        {f"taskgate_tasks_finished_total{{reason=queue,status=failed,{UP}}}": 1}
        | _observed("taskgate_task_duration_seconds", f"status=failed,{UP}", 8),
    ),
    (audit.StreamOpened("upstream", "listen"), {"taskgate_streams{kind=listen,side=upstream}": 1}),
    *(
        (
            audit.RateJudged("calls", scope, decision),
            {f"taskgate_rate_limit_decisions_total{{decision={decision},policy=calls,scope={scope}}}": 1.0},
        )
        for scope, decision in (("context", "allowed"), ("ip", "rejected"), ("tool", "shadow"))
    ),
    *(
        (
            audit.CapRefused(cap, scope),
            {f"taskgate_concurrency_rejections_total{{policy={cap},scope={scope}}}": 1.0},
        )
        for cap, scope in (("tasks", "tenant"), ("bytes", "global"), ("sessions", "context"), ("streams", "context"))
    ),
    (audit.WouldPromote("m"), {f"taskgate_shadow_promotions_total{{{UP}}}": 1}),
    (audit.CallJoined("m", "key"), {f"taskgate_calls_joined_total{{how=key,{UP}}}": 1}),
    (
        audit.SlotsUsed("m", 3, 32, 5),
        {
            f"taskgate_concurrency_in_use{{scope=upstream,{UP}}}": 3,
            f"taskgate_concurrency_limit{{scope=upstream,{UP}}}": 32,
            f"taskgate_queue_depth{{{UP}}}": 5,
        },
    ),
    (audit.QueueRefused("m", "timeout"), {f"taskgate_queue_rejections_total{{reason=timeout,{UP}}}": 1}),
    (audit.TaskPolled("m", "early"), {f"taskgate_task_polls_total{{result=early,{UP}}}": 1}),
    (audit.PollAdvised("m", _seconds(2.5)), {f"taskgate_poll_interval_seconds{{{UP}}}": 2.5}),
    (audit.UpstreamBegun("m"), {}),
    (audit.UpstreamRetried("m", "connect"), {f"taskgate_upstream_retries_total{{reason=connect,{UP}}}": 1}),
    (audit.CircuitMoved("m", "open"), {f"taskgate_upstream_circuit_open{{{UP}}}": 1}),
    (audit.CircuitMoved("m", "half_open"), {f"taskgate_upstream_circuit_open{{{UP}}}": 1}),
    (audit.CircuitMoved("m", "closed"), {}),
    (
        audit.HealthChecked("m", True, True),
        {f"taskgate_upstream_health_checks_total{{result=ok,{UP}}}": 1, f"taskgate_upstream_up{{{UP}}}": 1},
    ),
    (audit.HealthChecked("m", False, None), {f"taskgate_upstream_health_checks_total{{result=error,{UP}}}": 1}),
    (
        audit.ConfigReloaded("success", 77),
        {
            "taskgate_config_reloads_total{result=success}": 1,
            "taskgate_config_last_reload_successful{}": 1,
            "taskgate_config_last_reload_success_timestamp_seconds{}": 1_800_000_000.5,
            "taskgate_config_hash{}": 77,
        },
    ),
    (audit.ConfigReloaded("invalid", 77), {"taskgate_config_reloads_total{result=invalid}": 1}),
]
