"""The overview: is the gateway healthy, and where does one look next."""

from typing import Final

from grafana.src import thresholds
from grafana.src.board import Board, Row
from grafana.src.boards.health import HEALTH, OUR_ERRORS
from grafana.src.boards.objectives import OBJECTIVES
from grafana.src.colours import Meaning
from grafana.src.panels import HALF, Ask, Panel, Shape, Told
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
        told=Told(
            "JSON-RPC requests of hosts, by method.",
            "a shape that you know; polls (tasks/get) are the most of it where tasks are long.",
            "a method that grows alone is one host's doing: the audit log says whose.",
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
        told=Told(
            "the share of requests that failed for no fault of the host, by upstream.",
            "near 0. One upstream alone is that server's trouble, all together are ours or the store's.",
            "take the upstream to its dashboard.",
        ),
        alert="TaskgateErrorBudgetSlowBurn",
    ),
    Panel(
        title="Errors by type",
        shape=Shape.STACK,
        asks=[Ask(rate(f"{_SERVED}_count", 'error_type!=""', by=["error_type"]), "{{error_type}}")],
        unit="reqps",
        told=Told(
            "requests that were answered with an error: its JSON-RPC code, or tool_error where the tool itself failed.",
            "few, and most of them tool_error.",
            "-32603 is an upstream that failed, 429 a limit, 503 a store or a gateway that shuts down.",
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
        told=Told(
            "how long requests take that end well; streams that stay open on purpose are left out.",
            "milliseconds, but for calls of tools that are no tasks: those take as long as the tool.",
            "compare with the upstreams' own times; a dot is a trace to open.",
        ),
        alert="TaskgateLatencyHigh",
    ),
    Panel(
        title="Poll latency",
        asks=[Ask(quantile(0.95, _SERVED, 'mcp_method_name="tasks/get"', _WELL), "p95 of tasks/get")],
        unit="s",
        bound=thresholds.LATENCY,
        exemplars=True,
        told=Told(
            "the 95th percentile of tasks/get, which needs no upstream: the gateway and its store alone.",
            "some milliseconds.",
            "look at the store and at the event loop on the dashboard of the runtime.",
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
        told=Told(
            "mean time of a request that is only relayed, as hosts see it, less what the upstream took; the worst "
            "method.",
            "a few milliseconds.",
            "look at the event loop, and at the queue of that upstream.",
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
        told=Told(
            "tasks created, and tasks ended by how and why.",
            "as many end as start; most are completed, ok. A tool's own error is completed, tool_error.",
            "failed is a call that came to nothing: its reason says whether the upstream, a limit or a restart ended "
            "it.",
        ),
        alert="TaskgateTaskFailureRatioHigh",
    ),
    Panel(
        title="Running tasks by upstream",
        shape=Shape.STACK,
        asks=[Ask(now("taskgate_tasks_running", by=["upstream"]), "{{upstream}}")],
        unit="short",
        told=Told(
            "calls of tasks under way now, by upstream.",
            "below the limit of each upstream.",
            "at its limit the rest waits: see the queue beside, and the dashboard of the limits.",
        ),
        alert="TaskgateConcurrencySaturated",
    ),
    Panel(
        title="Queue depth",
        shape=Shape.STACK,
        asks=[Ask(now("taskgate_queue_depth", by=["upstream"]), "{{upstream}}")],
        unit="short",
        told=Told(
            "calls that wait until the upstream has a place for them.",
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
        told=Told(
            "polls of hosts by result: changed, unchanged, terminal (ended), early, limited (refused), denied.",
            "a few unchanged polls for each that found something.",
            "many early or limited ones are a host that does not keep to the interval it was told.",
        ),
        alert="TaskgateExcessivePolling",
    ),
    Panel(
        title="Wasted task polls",
        asks=[Ask(among("taskgate_task_polls_total", 'result=~"unchanged|early"'), "wasted")],
        unit="percentunit",
        bound=thresholds.WASTED_POLLS,
        span=HALF,
        told=Told(
            "the share of looks that came too early or found the task as it was.",
            "below 95 %.",
            "raise `tasks.poll_interval.base`, or have hosts listen instead of look.",
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
        told=Told(
            "which revisions of MCP hosts speak; without a name are those that named none.",
            "a slow move to newer ones.",
            "what a host of an old revision is given is in docs/compatibility.md.",
        ),
        alert="TaskgateCardinalityOverflow",
    ),
    Panel(
        title="Running versions",
        shape=Shape.STACK,
        asks=[Ask(now("taskgate_build_info", by=["version", "revision"]), "{{version}} {{revision}}")],
        unit="short",
        span=HALF,
        told=Told(
            "instances by the release they run.",
            "one release, but for the time of a roll-out.",
            "a roll-out that stopped half-way: restart the rest.",
        ),
        alert="TaskgateDown",
    ),
)

BOARD: Final = Board(
    uid="taskgate-overview",
    title="taskgate / Overview",
    about="Is the gateway healthy, how much passes through it, and what is slow or failing.",
    rows=(
        Row(title="Health", panels=HEALTH),
        Row(title="Objectives", panels=OBJECTIVES),
        Row(title="Requests: rate, errors, duration", panels=_RED),
        Row(title="Tasks", panels=_TASKS),
        Row(title="Polling", panels=_POLLING),
        Row(title="Versions", panels=_VERSIONS),
    ),
)
