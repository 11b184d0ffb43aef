"""The overview: whether the gateway is healthy, and which dashboard to open next."""

from typing import Final

from grafana.src import thresholds
from grafana.src.board import Board, Row
from grafana.src.boards.health import HEALTH, OUR_ERRORS
from grafana.src.boards.objectives import OBJECTIVES
from grafana.src.colours import Meaning
from grafana.src.panels import HALF, Ask, Guidance, Panel, Shape
from grafana.src.queries import among, mean, now, quantile, rate

_SERVED: Final = "mcp_server_operation_duration_seconds"
_CALLED: Final = "mcp_client_operation_duration_seconds"
_WELL: Final = 'error_type=""'
_RELAYED: Final = 'mcp_method_name=~"tools/list|resources/.+|prompts/.+|completion/complete"'
_EACH: Final = ("upstream", "mcp_method_name")

_RED: Final = (
    Panel(
        title="Requests by method",
        shape=Shape.STACK,
        asks=[Ask(rate(f"{_SERVED}_count", by=["mcp_method_name"]), "{{mcp_method_name}}")],
        unit="reqps",
        guidance=Guidance(
            "JSON-RPC requests of hosts, by method.",
            "a steady shape; mostly polls (tasks/get) with long tasks.",
            "if one method alone grows, one host causes it: the audit log names the caller.",
        ),
        alert="TaskgateRateLimitRejectionsHigh",
    ),
    Panel(
        title="Error ratio by upstream",
        asks=[
            Ask(among(f"{_SERVED}_count", OUR_ERRORS, by=["upstream"]), "{{upstream}}"),
        ],
        unit="percentunit",
        bound=thresholds.ERRORS,
        guidance=Guidance(
            "the share of failed requests by upstream, without errors that hosts caused.",
            "near 0.",
            "one upstream alone: its server fails. All together: the gateway or its store fails.",
        ),
        alert="TaskgateErrorBudgetSlowBurn",
    ),
    Panel(
        title="Errors by type",
        shape=Shape.STACK,
        asks=[Ask(rate(f"{_SERVED}_count", 'error_type!=""', by=["error_type"]), "{{error_type}}")],
        unit="reqps",
        guidance=Guidance(
            "requests answered with an error: its JSON-RPC code, or tool_error for a tool's own error.",
            "few, and mostly tool_error.",
            "-32603 is a failed upstream, 429 a limit, 503 a store failure or a shutdown.",
        ),
        alert="TaskgateErrorBudgetFastBurn",
    ),
    Panel(
        title="Request duration",
        asks=[
            Ask(quantile(rank, _SERVED, _WELL, 'mcp_method_name!="subscriptions/listen"'), f"p{rank * 100:g}")
            for rank in (0.5, 0.95, 0.99)
        ],
        unit="s",
        exemplars=True,
        guidance=Guidance(
            "the duration of successful requests, without streams that stay open on purpose.",
            "milliseconds; tool calls that are no tasks take as long as the tool.",
            "compare with the duration at the upstreams; a dot is a trace to open.",
        ),
        alert="TaskgateLatencyHigh",
    ),
    Panel(
        title="Poll latency",
        asks=[Ask(quantile(0.95, _SERVED, 'mcp_method_name="tasks/get"', _WELL), "p95 of tasks/get")],
        unit="s",
        bound=thresholds.LATENCY,
        exemplars=True,
        guidance=Guidance(
            "the 95th percentile of tasks/get, which needs the gateway and its store, but no upstream.",
            "some milliseconds.",
            "check the store and the event loop on the dashboard of the runtime.",
        ),
        alert="TaskgateLatencyHigh",
    ),
    Panel(
        title="Gateway overhead",
        asks=[
            Ask(
                f"max by (upstream) ({mean(_SERVED, _WELL, _RELAYED, by=_EACH)} - {mean(_CALLED, _WELL, by=_EACH)})",
                "{{upstream}}",
            )
        ],
        unit="s",
        bound=thresholds.OVERHEAD,
        guidance=Guidance(
            "mean time of a forwarded request for the host, without the time at the upstream; the slowest method.",
            "a few milliseconds.",
            "check the event loop, and the queue of that upstream.",
        ),
        alert="TaskgateOverheadHigh",
    ),
)

_TASKS: Final = (
    Panel(
        title="Tasks started and finished",
        asks=[
            Ask(rate("taskgate_tasks_started_total"), "started", Meaning.WORKS),
            Ask(rate("taskgate_tasks_finished_total", by=["status", "reason"]), "{{status}}, {{reason}}"),
        ],
        unit="cps",
        guidance=Guidance(
            "created tasks, and ended tasks by status and reason.",
            "as many ends as starts; mostly completed, ok. A tool's own error is completed, tool_error.",
            "failed is a call without a result: its reason names the upstream, a limit or a restart.",
        ),
        alert="TaskgateTaskFailureRatioHigh",
    ),
    Panel(
        title="Running tasks by upstream",
        shape=Shape.STACK,
        asks=[Ask(now("taskgate_tasks_running", by=["upstream"]), "{{upstream}}")],
        unit="short",
        guidance=Guidance(
            "calls of tasks in flight, by upstream.",
            "below the limit of each upstream.",
            "at the limit, other calls wait: see the queue beside, and the dashboard of the limits.",
        ),
        alert="TaskgateConcurrencySaturated",
    ),
    Panel(
        title="Queue depth",
        shape=Shape.STACK,
        asks=[Ask(now("taskgate_queue_depth", by=["upstream"]), "{{upstream}}")],
        unit="short",
        guidance=Guidance(
            "calls that wait for a permit of the upstream.",
            "0, or short peaks.",
            "the upstream is too slow for its load, or its `concurrency` is too low.",
        ),
        alert="TaskgateQueueSaturated",
    ),
)

_POLLING: Final = (
    Panel(
        title="Task polls by result",
        shape=Shape.STACK,
        asks=[Ask(rate("taskgate_task_polls_total", by=["result"]), "{{result}}")],
        unit="reqps",
        span=HALF,
        guidance=Guidance(
            "polls of hosts by result: changed, unchanged, terminal (ended), early, limited (refused), denied.",
            "a few unchanged polls for each changed one.",
            "many early or limited polls: a host ignores the poll interval.",
        ),
        alert="TaskgateExcessivePolling",
    ),
    Panel(
        title="Wasted task polls",
        asks=[Ask(among("taskgate_task_polls_total", 'result=~"unchanged|early"'), "wasted")],
        unit="percentunit",
        bound=thresholds.WASTED_POLLS,
        span=HALF,
        guidance=Guidance(
            "the share of polls that were early or found no change.",
            "below 95 %.",
            "raise `tasks.poll_interval.base`, or have hosts subscribe instead of poll.",
        ),
        alert="TaskgatePollingPressure",
    ),
)

_VERSIONS: Final = (
    Panel(
        title="Requests by protocol revision",
        shape=Shape.STACK,
        asks=[
            Ask(rate("taskgate_requests_by_protocol_total", by=["mcp_protocol_version"]), "{{mcp_protocol_version}}")
        ],
        unit="reqps",
        span=HALF,
        guidance=Guidance(
            "the revisions of MCP that hosts use; hosts without a name sent none.",
            "a slow move to newer revisions.",
            "docs/compatibility.md shows what each revision can do.",
        ),
        alert="TaskgateCardinalityOverflow",
    ),
    Panel(
        title="Running versions",
        shape=Shape.STACK,
        asks=[Ask(now("taskgate_build_info", by=["version", "revision"]), "{{version}} {{revision}}")],
        unit="short",
        span=HALF,
        guidance=Guidance(
            "instances by their release.",
            "one release; two during a roll-out.",
            "a roll-out stopped half-way: restart the other instances.",
        ),
        alert="TaskgateDown",
    ),
)

BOARD: Final = Board(
    uid="taskgate-overview",
    title="taskgate / Overview",
    about="Health of the gateway, its load, and slow or failing requests.",
    rows=(
        Row(title="Health", panels=HEALTH),
        Row(title="Objectives", panels=OBJECTIVES),
        Row(title="Requests: rate, errors, duration", panels=_RED),
        Row(title="Tasks", panels=_TASKS),
        Row(title="Polling", panels=_POLLING),
        Row(title="Versions", panels=_VERSIONS),
    ),
)
