"""The overview: whether the gateway is healthy, and which dashboard to open next."""

from typing import Final

from grafana.src import thresholds
from grafana.src.board import Board, Row
from grafana.src.boards.health import CALLS, HEALTH, OUR_ERRORS, SERVED, error_ratio
from grafana.src.boards.objectives import OBJECTIVES
from grafana.src.colours import Meaning
from grafana.src.panels import HALF, QUARTER, Ask, Guidance, Panel, Shape
from grafana.src.queries import among, mean, now, quantile, rate

_CALLED: Final = "mcp_client_operation_duration_seconds"
_WELL: Final = 'error_type=""'
_RELAYED: Final = 'mcp_method_name=~"tools/list|resources/.+|prompts/.+|completion/complete"'
_EACH: Final = ("upstream", "mcp_method_name")

_RED: Final = (
    Panel(
        title="Calls by upstream",
        shape=Shape.STACK,
        asks=[Ask(rate(f"{SERVED}_count", CALLS, by=["upstream"]), "{{upstream}}")],
        unit="reqps",
        guidance=Guidance(
            "calls of tools, by upstream, with those that become tasks.",
            "a steady shape.",
            "a step down: that server is held or down, or its hosts are gone.",
        ),
        alert="TaskgateUpstreamDown",
    ),
    Panel(
        title="Error ratio by upstream",
        asks=[Ask(error_ratio("upstream"), "{{upstream}}")],
        unit="percentunit",
        bound=thresholds.ERRORS,
        guidance=Guidance(
            "the share of calls that failed, by upstream, each at its end: its answer, or the end of its task.",
            "near 0.",
            "one upstream alone: its server fails. All together: the gateway or its store fails.",
        ),
        alert="TaskgateErrorBudgetSlowBurn",
    ),
    Panel(
        title="Call errors by type",
        shape=Shape.STACK,
        asks=[Ask(rate(f"{SERVED}_count", CALLS, 'error_type!=""', by=["error_type"]), "{{error_type}}")],
        unit="reqps",
        guidance=Guidance(
            "calls answered with an error: its JSON-RPC code, or tool_error for a tool's own error. Failed tasks are "
            "in the row of the tasks.",
            "few, and mostly tool_error.",
            "-32603 is a failed upstream, 429 a limit, 503 a store failure or a shutdown.",
        ),
        alert="TaskgateErrorBudgetFastBurn",
    ),
    Panel(
        title="Call duration",
        asks=[Ask(quantile(rank, SERVED, CALLS, _WELL), f"p{rank * 100:g}") for rank in (0.5, 0.95, 0.99)],
        unit="s",
        exemplars=True,
        guidance=Guidance(
            "the duration of successful calls. A call that becomes a task is answered at once.",
            "what the tools take that are no tasks.",
            "compare with the duration at the upstreams; a dot is a trace to open.",
        ),
        alert="TaskgateOverheadHigh",
    ),
    Panel(
        title="Gateway overhead",
        asks=[
            Ask(
                f"max by (upstream) ({mean(SERVED, _WELL, _RELAYED, by=_EACH)} - {mean(_CALLED, _WELL, by=_EACH)})",
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
    Panel(
        title="Requests by method",
        shape=Shape.STACK,
        asks=[Ask(rate(f"{SERVED}_count", by=["mcp_method_name"]), "{{mcp_method_name}}")],
        unit="reqps",
        guidance=Guidance(
            "JSON-RPC requests of hosts, by method.",
            "a steady shape; mostly polls (tasks/get) with long tasks.",
            "if one method alone grows, one host causes it: the audit log names the caller.",
        ),
        alert="TaskgateRateLimitRejectionsHigh",
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
        span=QUARTER,
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
        span=QUARTER,
        guidance=Guidance(
            "the share of polls that were early or found no change.",
            "below 95 %.",
            "raise `tasks.poll_interval.base`, or have hosts subscribe instead of poll.",
        ),
        alert="TaskgatePollingPressure",
    ),
    Panel(
        title="Poll latency",
        asks=[Ask(quantile(0.95, SERVED, 'mcp_method_name="tasks/get"', _WELL), "p95 of tasks/get")],
        unit="s",
        bound=thresholds.LATENCY,
        span=QUARTER,
        exemplars=True,
        guidance=Guidance(
            "the 95th percentile of tasks/get, which needs the gateway and its store, but no upstream.",
            "some milliseconds.",
            "check the store and the event loop on the dashboard of the runtime.",
        ),
        alert="TaskgateLatencyHigh",
    ),
    Panel(
        title="Error ratio of polls and other requests",
        asks=[
            Ask(among(f"{SERVED}_count", OUR_ERRORS, of=['mcp_method_name=~"tasks/.+"']), "polls"),
            Ask(among(f"{SERVED}_count", OUR_ERRORS, of=['mcp_method_name!~"tasks/.+|tools/call"']), "other requests"),
        ],
        unit="percentunit",
        span=QUARTER,
        guidance=Guidance(
            "the share of failed requests about tasks, and of all others but calls: lists, resources, prompts.",
            "near 0. They are no part of an objective.",
            "polls fail with the store; other requests fail with their upstream.",
        ),
        alert="TaskgateStoreDown",
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
        Row(title="Health", panels=HEALTH, leads_to="taskgate-upstreams"),
        Row(title="Objectives", panels=OBJECTIVES, leads_to="taskgate-upstreams"),
        Row(title="Calls: rate, errors, duration", panels=_RED, leads_to="taskgate-upstreams"),
        Row(title="Tasks", panels=_TASKS, leads_to="taskgate-tasks"),
        Row(title="Polling", panels=_POLLING, leads_to="taskgate-limits"),
        Row(title="Versions", panels=_VERSIONS, leads_to="taskgate-runtime"),
    ),
)
