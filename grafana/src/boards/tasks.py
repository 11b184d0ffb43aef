"""Tasks: flow, duration, age and tools; `outcomes` has the other rows."""

from typing import Final

from grafana.src.board import Board, Row
from grafana.src.boards.outcomes import ENDS, QUESTIONS, RESULTS, SHADOW
from grafana.src.colours import Meaning
from grafana.src.panels import HALF, Ask, Guidance, Panel, Shape, quantiles
from grafana.src.queries import at_least_none, grown, now, quantile_within, rate

_CALLS: Final = "taskgate_tool_calls_total"

_RAN: Final = "taskgate_task_duration_seconds"
_OLDEST: Final = "taskgate_task_oldest_age_seconds"
_WAIT: Final = ("upstream",)


def _funnel(counter: str) -> str:
    return f"{grown(counter, within='$__range')} or vector(0)"


_FLOW: Final = (
    Panel(
        title="Task funnel",
        shape=Shape.BARS,
        asks=[
            Ask(_funnel(_CALLS), "tool calls", Meaning.STOPPED),
            Ask(_funnel("taskgate_tasks_started_total"), "tasks started", Meaning.WORKS),
            Ask(_funnel("taskgate_tasks_finished_total"), "tasks finished", Meaning.WORKS),
            Ask(_funnel("taskgate_task_delivery_delay_seconds_count"), "results delivered", Meaning.GOOD),
        ],
        unit="short",
        decimals=0,
        span=HALF,
        height=7,
        guidance=Guidance(
            "in the time shown: tool calls, calls that became tasks, ended tasks, and delivered results.",
            "the last three are nearly the same.",
            "fewer finished than started: tasks accumulate. Fewer delivered than finished: cancels, or hosts "
            "that do not fetch results; see the row of the results.",
        ),
        alert="TaskgateTasksUndelivered",
    ),
    Panel(
        title="Longest running tasks",
        shape=Shape.TABLE,
        asks=[
            Ask(now(_OLDEST, by=_WAIT, how="max"), "oldest now"),
            Ask(quantile_within(0.95, _RAN, by=_WAIT), "ended, p95"),
            Ask(quantile_within(0.5, _RAN, by=_WAIT), "ended, p50"),
        ],
        unit="s",
        span=HALF,
        height=7,
        guidance=Guidance(
            "the age of the oldest unfinished task by upstream, and the duration of the tasks that ended in the "
            "time shown.",
            "what the slowest tools take.",
            "a task far above the p95 of its upstream may hang. `taskgate tasks ls --sort created` names the "
            "oldest tasks.",
        ),
        alert="TaskgateTasksExpiring",
    ),
    Panel(
        title="Tool calls by disposition",
        shape=Shape.STACK,
        asks=[Ask(rate(_CALLS, by=["disposition"]), "{{disposition}}")],
        unit="reqps",
        guidance=Guidance(
            "calls by disposition: task; handoff (a handle for a host without tasks); inline (ended before promotion); "
            "direct (could not become a task, or failed); rejected.",
            "what your rules under `tasks.upgrade` say.",
            "rejected calls are limits and rules: see the dashboards of the limits and of security.",
        ),
        alert="TaskgateRateLimitRejectionsHigh",
    ),
    Panel(
        title="Tasks started and finished",
        asks=[
            Ask(rate("taskgate_tasks_started_total"), "started", Meaning.WORKS),
            Ask(rate("taskgate_tasks_finished_total"), "finished", Meaning.GOOD),
        ],
        unit="cps",
        guidance=Guidance(
            "tasks that start, and tasks that end with any status.",
            "the two follow each other.",
            "more starts than ends for long: tasks accumulate in the store until they expire.",
        ),
        alert="TaskgateTasksExpiring",
    ),
    Panel(
        title="Task status transitions",
        shape=Shape.STACK,
        asks=[
            Ask(
                rate("taskgate_task_transitions_total", by=["from_status", "to_status"]),
                "{{from_status}} to {{to_status}}",
            )
        ],
        unit="cps",
        guidance=Guidance(
            "every change of a task's status.",
            "mostly working to completed.",
            "many to input_required and few back: hosts do not answer.",
        ),
        alert="TaskgateInputWaitStuck",
    ),
    Panel(
        title="Stored tasks by status",
        shape=Shape.STACK,
        asks=[Ask(now("taskgate_store_tasks", by=["status"], how="max"), "{{status}}")],
        unit="short",
        span=HALF,
        guidance=Guidance(
            "tasks in the store, with ended tasks within their time to live. Instances that share a store "
            "report the same numbers, so this is their max.",
            "follows the load; the sweep removes ended tasks after their time to live.",
            "if working or input_required only grows, see below what these tasks wait for.",
        ),
        alert="TaskgateTasksExpiring",
    ),
    Panel(
        title="Purged tasks by status",
        shape=Shape.STACK,
        asks=[Ask(rate("taskgate_tasks_purged_total", by=["status"]), "{{status}}")],
        unit="cps",
        span=HALF,
        guidance=Guidance(
            "records that the sweep removed after their time to live.",
            "as many as were created a time to live ago.",
            "none for long: the sweep does not run. Find its errors on the dashboard of the runtime.",
        ),
        alert="TaskgateStoreFilling",
    ),
)

_TIME: Final = (
    Panel(
        title="Task duration",
        asks=quantiles("taskgate_task_duration_seconds", 0.5, 0.95),
        unit="s",
        guidance=Guidance(
            "from the creation of a task to its end, with the precision of the buckets.",
            "what the tools take.",
            "compare with the duration of upstream calls: the rest is a wait for a permit, or for a host.",
        ),
        alert="TaskgateTasksExpiring",
    ),
    Panel(
        title="Task duration heatmap",
        shape=Shape.HEATMAP,
        asks=[Ask(grown("taskgate_task_duration_seconds_bucket", by=["le"]), "{{le}}")],
        unit="s",
        guidance=Guidance(
            "the number of tasks by duration; one column of cells is one moment.",
            "steady bands, one for each kind of tool.",
            "a rising band is a tool that gets slower; a band at the top is tasks that expire.",
        ),
        alert="TaskgateTasksExpiring",
    ),
    Panel(
        title="Queue wait",
        asks=quantiles("taskgate_task_queue_wait_seconds", 0.5, 0.95),
        unit="s",
        guidance=Guidance(
            "from the creation of a task to the dispatch of its call.",
            "milliseconds.",
            "the upstream is at its limit: see its queue on the dashboard of the limits.",
        ),
        alert="TaskgateQueueSaturated",
    ),
)

_AGE: Final = (
    Panel(
        title="Age of the oldest unfinished task",
        asks=[Ask(now(_OLDEST, by=_WAIT, how="max"), "{{upstream}}")],
        unit="s",
        span=24,
        height=6,
        guidance=Guidance(
            "the age of the oldest unfinished task by upstream: it runs, waits for a permit, or waits for its host.",
            "rises while a slow tool runs, and falls at its end.",
            "a line that only rises is a task that does not end: find the upstream that hangs.",
        ),
        alert="TaskgateTasksExpiring",
    ),
)

_BY_TOOL: Final = ("upstream", "tool")
_ALL_CALLS: Final = grown(_CALLS, by=_BY_TOOL, within="$__range")


def _of(disposition: str) -> str:
    return at_least_none(grown(_CALLS, f'disposition="{disposition}"', by=_BY_TOOL, within="$__range"), _ALL_CALLS)


_TOOLS: Final = (
    Panel(
        title="Top tools by calls",
        shape=Shape.TABLE,
        asks=[
            Ask(f"topk(20, {_ALL_CALLS})", "calls"),
            Ask(_of("task"), "tasks"),
            Ask(_of("rejected"), "rejected"),
        ],
        unit="short",
        decimals=0,
        span=24,
        height=10,
        guidance=Guidance(
            "the twenty most called tools in the time shown; `_OTHER` is all tools that no server lists.",
            "the tools that you know.",
            "many rejected calls of a tool: a limit or a rule refuses them. The audit log names the callers.",
        ),
        alert="TaskgateRateLimitRejectionsHigh",
    ),
)

BOARD: Final = Board(
    uid="taskgate-tasks",
    title="taskgate / Tasks",
    about="Tasks: number, duration, outcomes, waits, and delivery of results.",
    rows=(
        Row(title="Flow", panels=_FLOW),
        Row(title="Time", panels=(*_TIME, *_AGE), leads_to="taskgate-upstreams"),
        Row(title="Ends", panels=ENDS, leads_to="taskgate-upstreams"),
        Row(title="Results", panels=RESULTS),
        Row(title="Tools", panels=_TOOLS),
        Row(title="Servers that ask their users", panels=QUESTIONS, is_closed=True),
        Row(title="Rules in shadow", panels=SHADOW, is_closed=True),
    ),
)
