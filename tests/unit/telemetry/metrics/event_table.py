"""Every event, and what it moves on the page of fresh metrics; see the fixtures `metrics` and `moved`."""

from datetime import timedelta
from typing import Any

from helpers.ended_requests import http_answered, rpc_answered
from helpers.records import new_record
from taskgate.domain.record import OwnerKey, TaskRecord, TaskStatus
from taskgate.errors import AuthReason, StoreFault
from taskgate.telemetry import events
from taskgate.telemetry.request_context import RequestContext

_STORE = "backend=sqlite,operation=load,result="
UNFINISHED = "taskgate_concurrency_in_use{scope=global,upstream=}"
KEYS_AT = "taskgate_jwks_last_success_timestamp_seconds{issuer=corp}"


SUSPICIONS = ("enumeration_suspected", "cross_context_access", "excessive_polling", "header_mismatch",
              "auth_bruteforce", "input_key_unknown")  # fmt: skip
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

EVENTS: list[tuple[events.Event, dict[str, float]]] = [
    (
        http_answered("mcp", "POST", 200, 0.5),
        observed(
            "http_server_request_duration_seconds",
            "http_request_method=POST,http_response_status_code=200,http_route=mcp",
            0.5,
        ),
    ),
    (events.HttpRefused("bad_host"), {"taskgate_http_rejections_total{reason=bad_host}": 1}),
    (events.HttpRefused("header_mismatch"), {"taskgate_http_rejections_total{reason=header_mismatch}": 1}),
    (events.HttpRefused("unauthenticated"), {"taskgate_http_rejections_total{reason=unauthenticated}": 1}),
    (events.HttpRefused("insufficient_scope"), {"taskgate_http_rejections_total{reason=insufficient_scope}": 1}),
    (events.HttpRefused("jwks_unavailable"), {"taskgate_http_rejections_total{reason=jwks_unavailable}": 1}),
    (
        http_answered("mcp", "POST", 401, 0.5),
        observed(
            "http_server_request_duration_seconds",
            "http_request_method=POST,http_response_status_code=401,http_route=mcp",
            0.5,
        ),
    ),
    (events.StreamOpened("downstream", "get"), {"taskgate_streams{kind=get,side=downstream}": 1}),
    (events.StreamEnded("upstream", "response"), {"taskgate_streams{kind=response,side=upstream}": -1}),
    (
        rpc_answered("m", "tools/call", "2025-11-25", 2.0, None),
        observed(
            "mcp_server_operation_duration_seconds",
            f"error_type=,gen_ai_tool_name=,mcp_method_name=tools/call,{UP}",
            2.0,
        )
        | {"taskgate_requests_by_protocol_total{mcp_protocol_version=2025-11-25}": 1},
    ),
    (
        rpc_answered("m", "tasks/get", "2025-06-18", 0.25, "-32602"),
        observed(
            "mcp_server_operation_duration_seconds",
            f"error_type=-32602,gen_ai_tool_name=,mcp_method_name=tasks/get,{UP}",
            0.25,
        )
        | {"taskgate_requests_by_protocol_total{mcp_protocol_version=2025-06-18}": 1},
    ),
    (
        rpc_answered("m", "tasks/list", "2025-11-25", 0.25, "403"),
        observed(
            "mcp_server_operation_duration_seconds",
            f"error_type=403,gen_ai_tool_name=,mcp_method_name=tasks/list,{UP}",
            0.25,
        )
        | {"taskgate_requests_by_protocol_total{mcp_protocol_version=2025-11-25}": 1},
    ),
    (
        events.UpstreamAnswered("m", "tools/list", 4.0, "timeout"),
        observed("mcp_client_operation_duration_seconds", f"error_type=timeout,mcp_method_name=tools/list,{UP}", 4.0),
    ),
    (
        events.ToolCalled("m", "sum", "task"),
        {f"taskgate_tool_calls_total{{disposition=task,tenant=,tool=sum,{UP}}}": 1},
    ),
    (
        events.ToolCalled("m", None, "rejected"),
        {f"taskgate_tool_calls_total{{disposition=rejected,tenant=,tool=_OTHER,{UP}}}": 1},
    ),
    *TASK_EVENTS,
    (events.TokenChecked("corp", "ok"), {"taskgate_auth_requests_total{issuer=corp,reason=,result=accepted}": 1}),
    *(
        (
            event,
            {
                "taskgate_auth_requests_total{issuer=corp,reason=,result=accepted}": 1.0,
                f"taskgate_token_cache_lookups_total{{result={result}}}": 1.0,
            },
        )
        for event, result in (
            (events.TokenRecognized("corp"), "hit"),
            (events.TokenChecked("corp", "ok", known=False), "miss"),
        )
    ),
    (
        events.TokenChecked("partner", "jwks_unavailable"),
        {"taskgate_auth_requests_total{issuer=partner,reason=jwks_unavailable,result=rejected}": 1},
    ),
    *(
        (
            events.TokenChecked("_OTHER", reason.value),
            {f"taskgate_auth_requests_total{{issuer=_OTHER,reason={reason.value},result=rejected}}": 1.0},
        )
        for reason in AuthReason
    ),
    (
        events.KeysFetched("corp", "ok", 3),
        {
            "taskgate_jwks_refreshes_total{issuer=corp,result=ok}": 1,
            "taskgate_jwks_keys{issuer=corp}": 3,
            KEYS_AT: 1_800_000_000.5,
        },
    ),
    (
        events.KeysFetched("corp", "stale", 2),
        {"taskgate_jwks_refreshes_total{issuer=corp,result=stale}": 1, "taskgate_jwks_keys{issuer=corp}": 2},
    ),
    (events.KeysFetched("corp", "failed", 0), {"taskgate_jwks_refreshes_total{issuer=corp,result=failed}": 1}),
    (
        events.AccessRefused("m", "tools/call", shadow=False),
        {f"taskgate_access_refusals_total{{mcp_method_name=tools/call,mode=enforced,{UP}}}": 1},
    ),
    (
        events.AccessRefused("m", "tasks/get", shadow=True),
        {f"taskgate_access_refusals_total{{mcp_method_name=tasks/get,mode=shadow,{UP}}}": 1},
    ),
    (
        events.CredentialsFetched("m", 0.25, True),
        observed("taskgate_token_exchange_duration_seconds", f"result=ok,{UP}", 0.25),
    ),
    (
        events.CredentialsFetched("m", 0.25, False),
        observed("taskgate_token_exchange_duration_seconds", f"result=error,{UP}", 0.25),
    ),
    *(
        (events.SuspicionRaised(kind, "m"), {f"taskgate_security_events_total{{type={kind}}}": 1.0})
        for kind in SUSPICIONS
    ),
    (RequestContext("id", "192.0.2.7", "POST", "/m"), {}),
    (events.OperatorRequestAnswered("POST", "/-/reload", 200, "192.0.2.7"), {}),
    (events.GatewayPhaseChanged("started", "1.0", 77), {}),
    (events.RateFallbackUsed("local"), {}),
    (
        events.AuditEventRecorded("task.created", "success"),
        {"taskgate_audit_events_total{event=task.created,outcome=success}": 1},
    ),
    (
        events.AuditLinesWritten("file", 0.125, 5, 0),
        observed("taskgate_audit_write_duration_seconds", "sink=file", 0.125),
    ),
    (
        events.AuditLinesDropped("file", "queue_full", 3),
        {"taskgate_audit_dropped_total{reason=queue_full,sink=file}": 3},
    ),
    (events.HttpRefused("audit"), {"taskgate_http_rejections_total{reason=audit}": 1}),
    (
        http_answered("prm", "GET", 200, 0.5),
        observed(
            "http_server_request_duration_seconds",
            "http_request_method=GET,http_response_status_code=200,http_route=prm",
            0.5,
        ),
    ),
    *(
        (
            events.ToolCalled("m", "sum", how),
            {f"taskgate_tool_calls_total{{disposition={how},tenant=,tool=sum,{UP}}}": 1.0},
        )
        for how in ("inline", "direct")
    ),
    (events.LateAnswerDropped("m"), {f"taskgate_task_late_answers_total{{{UP}}}": 1}),
    (events.TaskFaulted(TASK, "call_lost"), {}),
    (events.LeaseLost("task", "m", TASK.id), {"taskgate_leases_lost_total{kind=task}": 1}),
    (events.SessionLost("m"), {f"taskgate_upstream_sessions_lost_total{{{UP}}}": 1}),
    (
        events.StoreUsed("load", 0.125, True),
        observed("taskgate_store_operation_duration_seconds", f"{_STORE}ok", 0.125)
        | {"taskgate_store_up{backend=sqlite}": 1},
    ),
    (
        events.StoreUsed("load", 0.125, False),
        observed("taskgate_store_operation_duration_seconds", f"{_STORE}error", 0.125),
    ),
    (
        events.StoreFaulted(StoreFault.READ_ONLY),
        {"taskgate_store_fault{backend=sqlite,fault=read_only}": 1},
    ),
    (
        events.StoreCounted({TaskStatus.WORKING: 3}, 4096),
        {
            "taskgate_store_tasks{status=working}": 3,
            "taskgate_store_size_bytes{backend=sqlite}": 4096,
            UNFINISHED: 3,
        },
    ),
    (events.StoreCounted({TaskStatus.FAILED: 1}, None), {"taskgate_store_tasks{status=failed}": 1}),
    *(
        (events.HttpRefused(reason), {f"taskgate_http_rejections_total{{reason={reason}}}": 1.0})
        for reason in ("rate", "concurrency", "queue", "bytes", "penalty")
    ),
    (
        events.TaskFinished(TASK, TaskStatus.FAILED, "queue", seconds(8), None),
        {f"taskgate_tasks_finished_total{{reason=queue,status=failed,{UP}}}": 1}
        | observed("taskgate_task_duration_seconds", f"status=failed,{UP}", 8),
    ),
    (events.StreamOpened("upstream", "listen"), {"taskgate_streams{kind=listen,side=upstream}": 1}),
    (
        events.RateLimitAllowed("calls", "context"),
        {"taskgate_rate_limit_decisions_total{decision=allowed,policy=calls,scope=context}": 1.0},
    ),
    *(
        (
            events.RateLimitChecked("calls", scope, decision),
            {f"taskgate_rate_limit_decisions_total{{decision={decision},policy=calls,scope={scope}}}": 1.0},
        )
        for scope, decision in (
            ("ip", "rejected"),
            ("context", "delayed"),
            ("tool", "shadow"),
            ("global", "fail_local"),
            ("upstream", "fail_open"),
        )
    ),
    *(
        (
            events.CapRefused(cap, scope),
            {f"taskgate_concurrency_rejections_total{{policy={cap},scope={scope}}}": 1.0},
        )
        for cap, scope in (("tasks", "tenant"), ("bytes", "global"), ("sessions", "context"), ("streams", "context"))
    ),
    (events.SessionEvicted(), {"taskgate_sessions_evicted_total{}": 1}),
    (events.ShadowPromotion("m"), {f"taskgate_shadow_promotions_total{{{UP}}}": 1}),
    (events.CallCoalesced("m", "key"), {f"taskgate_calls_joined_total{{how=key,{UP}}}": 1}),
    (
        events.ConcurrencyChanged("m", 3, 32, 5),
        {
            f"taskgate_concurrency_in_use{{scope=upstream,{UP}}}": 3,
            f"taskgate_concurrency_limit{{scope=upstream,{UP}}}": 32,
            f"taskgate_queue_depth{{{UP}}}": 5,
        },
    ),
    (events.QueueRefused("m", "timeout"), {f"taskgate_queue_rejections_total{{reason=timeout,{UP}}}": 1}),
    (events.TaskPolled("m", "early"), {f"taskgate_task_polls_total{{result=early,{UP}}}": 1}),
    (events.UpstreamAdded("m"), {}),
    (events.UpstreamRetried("m", "connect"), {f"taskgate_upstream_retries_total{{reason=connect,{UP}}}": 1}),
    (events.CircuitChanged("m", "open"), {f"taskgate_upstream_circuit_open{{{UP}}}": 1}),
    (events.CircuitChanged("m", "half_open"), {f"taskgate_upstream_circuit_open{{{UP}}}": 1}),
    (events.CircuitChanged("m", "closed"), {}),
    (
        events.HealthChecked("m", True, True),
        {f"taskgate_upstream_health_checks_total{{result=ok,{UP}}}": 1, f"taskgate_upstream_up{{{UP}}}": 1},
    ),
    (events.UpstreamStateChanged("m", "refusing", "HTTP 401"), {}),
    (events.UpstreamRequestFailed("m", "tools/call", "refused", "HTTP 401"), {}),
    (events.HealthChecked("m", False, None), {f"taskgate_upstream_health_checks_total{{result=error,{UP}}}": 1}),
    (events.ProgramRestarted("m", "exit"), {f"taskgate_upstream_restarts_total{{reason=exit,{UP}}}": 1}),
    (events.ProgramAvailabilityChanged("m", True), {f"taskgate_upstream_up{{{UP}}}": 1}),
    (
        events.ExtensionDenied("m", "io.modelcontextprotocol/events"),
        {f"taskgate_extensions_denied_total{{extension=io.modelcontextprotocol/events,{UP}}}": 1},
    ),
    (events.ProgramsCounted("m", 3), {f"taskgate_upstream_processes{{{UP}}}": 3}),
    (
        events.ConfigReloaded("success", 77),
        {
            "taskgate_config_reloads_total{result=success}": 1,
            "taskgate_config_last_reload_successful{}": 1,
            "taskgate_config_last_reload_success_timestamp_seconds{}": 1_800_000_000.5,
            "taskgate_config_hash{}": 77,
        },
    ),
    (events.ConfigReloaded("invalid", 77), {"taskgate_config_reloads_total{result=invalid}": 1}),
]
