"""The six numbers on top of the overview, each good or bad."""

from typing import Final

from grafana.src import thresholds
from grafana.src.panels import BAD, GOOD, SIXTH, Ask, Guidance, Panel, Shape
from grafana.src.queries import among, grown, now, select

_NOT_OURS: Final = (
    "|_OTHER|tool_error|cancelled|-32800|-32700|-32600|-32601|-32602|-32002|-32020|-32021|-32022|-32042|403|429"
)
OUR_ERRORS: Final = f'error_type!~"{_NOT_OURS}"'
"""Errors that burn the error budget: none of a tool itself, and none that a host caused. Alerts match the same."""

HEALTH: Final = (
    Panel(
        title="Ready",
        shape=Shape.NUMBER,
        asks=[Ask(now("taskgate_ready", how="min"), "ready")],
        unit="bool_yes_no",
        words=[("0", "not ready", BAD), ("1", "ready", GOOD)],
        bound=thresholds.NOT_READY,
        span=SIXTH,
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
        span=SIXTH,
        height=4,
        guidance=Guidance(
            "the share of upstreams that are up, over all instances. One without a call or check does not count.",
            "100 %.",
            "open the dashboard of the upstreams: it names the unhealthy one.",
        ),
        alert="TaskgateUpstreamDown",
    ),
    Panel(
        title="Running tasks",
        shape=Shape.NUMBER,
        asks=[Ask(now("taskgate_tasks_running"), "running")],
        unit="short",
        decimals=0,
        span=SIXTH,
        height=4,
        guidance=Guidance(
            "calls of tasks in flight to the upstreams.",
            "your load; the limit is on the dashboard of the limits.",
            "if it only grows, find tasks that never end on the dashboard of the tasks.",
        ),
        alert="TaskgateConcurrencySaturated",
    ),
    Panel(
        title="Error ratio",
        shape=Shape.NUMBER,
        asks=[Ask(among("mcp_server_operation_duration_seconds_count", OUR_ERRORS), "errors")],
        unit="percentunit",
        bound=thresholds.ERRORS,
        span=SIXTH,
        height=4,
        guidance=Guidance(
            "the share of failed requests, without errors of tools and errors that hosts caused.",
            "below 0.1 %, the budget. Red is 14.4 times the budget.",
            "find the upstream and the error type in the row below.",
        ),
        alert="TaskgateErrorBudgetFastBurn",
    ),
    Panel(
        title="Audit lines dropped",
        shape=Shape.NUMBER,
        asks=[Ask(f"ceil({grown('taskgate_audit_dropped_total', within='$__range')})", "dropped")],
        unit="short",
        decimals=0,
        bound=thresholds.AUDIT_DROPPED,
        span=SIXTH,
        height=4,
        guidance=Guidance(
            "lines of the audit log that were lost in the time shown.",
            "0, always.",
            "find the sink and the reason on the dashboard of security: a full disk, or a reader that has stopped.",
        ),
        alert="TaskgateAuditDropped",
    ),
    Panel(
        title="Configurations in force",
        shape=Shape.NUMBER,
        asks=[
            Ask(f'max (count by (job) (count_values by (job) ("hash", {select("taskgate_config_hash")})))', "in force")
        ],
        unit="short",
        decimals=0,
        bound=thresholds.CONFIG_DRIFT,
        span=SIXTH,
        height=4,
        guidance=Guidance(
            "how many different configurations the instances of one job run with.",
            "1; more during a roll-out.",
            "reload or restart the instances with the old one; the dashboard of the runtime shows reloads.",
        ),
        alert="TaskgateConfigDrift",
    ),
)
