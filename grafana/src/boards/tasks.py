"""The tasks: how long they take, how they end, what they wait for, and which are stuck and why."""

from typing import Final

from grafana.src.board import Board, Row
from grafana.src.boards.outcomes import ENDS, QUESTIONS, RESULTS
from grafana.src.colours import Meaning
from grafana.src.panels import HALF, Ask, Panel, Shape, Told, quantiles
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
        told=Told(
            "in the time shown: tool calls, those that became tasks, tasks that ended, and results that were fetched.",
            "the last three are nearly the same.",
            "fewer finished than started: tasks pile up. Fewer delivered than finished: cancels, or hosts that do not "
            "fetch; see the row of the results.",
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
        told=Told(
            "the age of the oldest task that has not ended, by upstream; beside it the durations of those that ended "
            "in the time shown.",
            "what the slowest tools take.",
            "a task far above the p95 of its upstream may hang. `taskgate tasks ls --sort created` names the oldest "
            "tasks.",
        ),
        alert="TaskgateTasksExpiring",
    ),
    Panel(
        title="Tool calls by disposition",
        shape=Shape.STACK,
        asks=[Ask(rate(_CALLS, by=["disposition"]), "{{disposition}}")],
        unit="reqps",
        told=Told(
            "calls by what was made of them: task; inline, done before it had to be one; direct, as to any server; "
            "rejected.",
            "what your rules under `tasks.upgrade` say.",
            "rejected ones are limits and rules: see the dashboards of the limits and of security.",
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
        told=Told(
            "tasks that begin, and tasks that end in whatever way.",
            "the two follow each other.",
            "more starts than ends for long: tasks pile up in the store until they expire.",
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
        told=Told(
            "every change of a task's status.",
            "mostly working to completed.",
            "many to input_required and few back are hosts that do not answer.",
        ),
        alert="TaskgateInputWaitStuck",
    ),
    Panel(
        title="Stored tasks by status",
        shape=Shape.STACK,
        asks=[Ask(now("taskgate_store_tasks", by=["status"], how="max"), "{{status}}")],
        unit="short",
        span=HALF,
        told=Told(
            "what the store holds, ended tasks within their time to live included. Instances that share a store see "
            "the same, so this is their max.",
            "follows the load; ended tasks go when their time to live is over.",
            "if working or input_required only grows, see what they wait for below.",
        ),
        alert="TaskgateTasksExpiring",
    ),
    Panel(
        title="Purged tasks by status",
        shape=Shape.STACK,
        asks=[Ask(rate("taskgate_tasks_purged_total", by=["status"]), "{{status}}")],
        unit="cps",
        span=HALF,
        told=Told(
            "records that left the store when their time to live was over.",
            "as many as were created a time to live ago.",
            "none for long: the store is not swept, look for its errors on the dashboard of the runtime.",
        ),
        alert="TaskgateStoreFilling",
    ),
)

_TIME: Final = (
    Panel(
        title="Task duration",
        asks=quantiles("taskgate_task_duration_seconds", 0.5, 0.95),
        unit="s",
        told=Told(
            "from the creation of a task to its end, at the grain of the buckets.",
            "what the tools take.",
            "compare with the time upstream calls take: the rest is waiting for a turn, or for a host.",
        ),
        alert="TaskgateTasksExpiring",
    ),
    Panel(
        title="Task duration heatmap",
        shape=Shape.HEATMAP,
        asks=[Ask(grown("taskgate_task_duration_seconds_bucket", by=["le"]), "{{le}}")],
        unit="s",
        told=Told(
            "how many tasks ended after how long: one column of cells is one moment.",
            "bands that stay where they are, one for each kind of tool.",
            "a band that climbs is a tool that gets slower; one at the top is tasks that run into their time to live.",
        ),
        alert="TaskgateTasksExpiring",
    ),
    Panel(
        title="Queue wait",
        asks=quantiles("taskgate_task_queue_wait_seconds", 0.5, 0.95),
        unit="s",
        told=Told(
            "from the creation of a task until its call left for the upstream.",
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
        told=Told(
            "the time since the creation of the oldest task that has not ended, by upstream: it runs, waits for a "
            "turn, or waits for its host.",
            "it climbs while a slow tool runs, and falls when that ends.",
            "a line that only climbs is a task that does not end; look for the upstream that hangs.",
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
        told=Told(
            "the twenty tools that were called most in the time shown; `_OTHER` are tools that no list named.",
            "the tools you know.",
            "a tool with many rejected calls is held back by a limit or a rule; the audit log says who calls it.",
        ),
        alert="TaskgateRateLimitRejectionsHigh",
    ),
)

BOARD: Final = Board(
    uid="taskgate-tasks",
    title="taskgate / Tasks",
    about="How tasks go: how many, how long, how they end, what they wait for, and whether their results are fetched.",
    rows=(
        Row(title="Flow", panels=_FLOW),
        Row(title="Time", panels=(*_TIME, *_AGE)),
        Row(title="Ends", panels=ENDS),
        Row(title="Questions to hosts", panels=QUESTIONS),
        Row(title="Results", panels=RESULTS),
        Row(title="Tools", panels=_TOOLS),
    ),
)
