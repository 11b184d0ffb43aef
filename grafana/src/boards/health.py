"""The eight numbers on top of the overview."""

from typing import Final

from grafana.src import thresholds
from grafana.src.panels import BAD, EIGHTH, GOOD, Ask, Guidance, Panel, Shape
from grafana.src.queries import at_least_none, grown, now, per_second, quantile, rate, select

_NOT_OURS: Final = (
    "|_OTHER|tool_error|cancelled|-32800|-32700|-32600|-32601|-32602|-32002|-32020|-32021|-32022|-32042|403|429"
)
OUR_ERRORS: Final = f'error_type!~"{_NOT_OURS}"'
"""Errors that burn the error budget: none of a tool itself, and none that a host caused. Alerts match the same."""

SERVED: Final = "mcp_server_operation_duration_seconds"
CALLS: Final = 'mcp_method_name="tools/call"'
FAILED_TASKS: Final = 'status="failed", reason!~"expired|jsonrpc_error"'
EXPIRED_TASKS: Final = 'phase!="input_required"'
_TASKS: Final = "taskgate_tasks_finished_total"
_HANDLES: Final = 'disposition=~"task|handoff"'


def error_ratio(*by: str) -> str:
    """The share of calls that failed, each call once, at its end: its answer, or the end of its task."""
    failed = per_second(
        select(f"{SERVED}_count", CALLS, OUR_ERRORS),
        select(_TASKS, FAILED_TASKS),
        select(_TASKS, 'status="cancelled", reason="operator"'),
        select("taskgate_task_expirations_total", EXPIRED_TASKS),
        by=by,
    )
    ended = per_second(select(f"{SERVED}_count", CALLS), select(_TASKS, 'reason!="client"'), by=by)
    failed = f"({at_least_none(failed, ended)})"
    handles = f"({at_least_none(rate('taskgate_tool_calls_total', _HANDLES, by=by), ended)})"
    return f"{failed} / (clamp_min({ended} - {failed} - {handles}, 0) + {failed} > 0)"


HEALTH: Final = (
    Panel(
        title="Ready",
        shape=Shape.NUMBER,
        asks=[Ask(now("taskgate_ready", how="min"), "ready")],
        unit="bool_yes_no",
        words=[("0", "not ready", BAD), ("1", "ready", GOOD)],
        bound=thresholds.NOT_READY,
        span=EIGHTH,
        height=4,
        guidance=Guidance(
            "whether every chosen instance reports ready.",
            "ready; not ready for some seconds at a start and during a shutdown.",
            "request /readyz of the instance: its body names what is missing.",
        ),
        alert="TaskgateNotReady",
    ),
    Panel(
        title="Healthy upstreams",
        shape=Shape.NUMBER,
        asks=[Ask(now("taskgate_upstream_state", 'state="up"', how="avg"), "healthy")],
        unit="percentunit",
        bound=thresholds.UPSTREAM_DOWN,
        span=EIGHTH,
        height=4,
        guidance=Guidance(
            "the share of upstreams that are up, over all instances. One without a call or check does not count.",
            "100 %.",
            "open the dashboard of the upstreams: it names the unhealthy one.",
        ),
        alert="TaskgateUpstreamDown",
    ),
    Panel(
        title="Calls",
        shape=Shape.NUMBER,
        asks=[Ask(rate(f"{SERVED}_count", CALLS), "calls")],
        unit="reqps",
        span=EIGHTH,
        height=4,
        guidance=Guidance(
            "calls of tools a second, with those that become tasks.",
            "your load.",
            "a step down to nothing: hosts do not reach the gateway, or are not let in.",
        ),
        alert="TaskgateDown",
    ),
    Panel(
        title="Error ratio",
        shape=Shape.NUMBER,
        asks=[Ask(error_ratio(), "errors")],
        unit="percentunit",
        bound=thresholds.ERRORS,
        span=EIGHTH,
        height=4,
        guidance=Guidance(
            "the share of calls that failed, each at its end: its answer, or the end of its task. Polls do not count, "
            "nor errors of tools and errors that hosts caused.",
            "below 0.1 %, the budget. Red is 14.4 times the budget.",
            "find the upstream and the error type in the row of the calls.",
        ),
        alert="TaskgateErrorBudgetFastBurn",
    ),
    Panel(
        title="Call duration, p95",
        shape=Shape.NUMBER,
        asks=[Ask(quantile(0.95, SERVED, CALLS, 'error_type=""'), "p95")],
        unit="s",
        span=EIGHTH,
        height=4,
        guidance=Guidance(
            "the time in which 95 % of the successful calls were answered. A call that becomes a task is answered "
            "at once.",
            "what the tools take that are no tasks.",
            "compare with the duration at the upstreams: the rest is the gateway, or a wait for a permit.",
        ),
        alert="TaskgateOverheadHigh",
    ),
    Panel(
        title="Running tasks",
        shape=Shape.NUMBER,
        asks=[Ask(now("taskgate_tasks_running"), "running")],
        unit="short",
        decimals=0,
        span=EIGHTH,
        height=4,
        guidance=Guidance(
            "calls of tasks in flight to the upstreams.",
            "your load; the limit is on the dashboard of the limits.",
            "if it only grows, find tasks that never end on the dashboard of the tasks.",
        ),
        alert="TaskgateConcurrencySaturated",
    ),
    Panel(
        title="Audit lines dropped",
        shape=Shape.NUMBER,
        asks=[Ask(f"ceil({grown('taskgate_audit_dropped_total', within='$__range')})", "dropped")],
        unit="short",
        decimals=0,
        bound=thresholds.AUDIT_DROPPED,
        span=EIGHTH,
        height=4,
        guidance=Guidance(
            "lines of the audit log that were lost in the time shown.",
            "0, always.",
            "find the sink and the reason on the dashboard of security: a full disk, or a reader that has stopped.",
        ),
        alert="TaskgateAuditDropped",
    ),
    Panel(
        title="Configurations",
        shape=Shape.NUMBER,
        asks=[
            Ask(f'max (count by (job) (count_values by (job) ("hash", {select("taskgate_config_hash")})))', "in force")
        ],
        unit="short",
        decimals=0,
        bound=thresholds.CONFIG_DRIFT,
        span=EIGHTH,
        height=4,
        guidance=Guidance(
            "how many different configurations the instances of one job run with.",
            "1; more during a roll-out.",
            "reload or restart the instances with the old one; the dashboard of the runtime shows reloads.",
        ),
        alert="TaskgateConfigDrift",
    ),
)
