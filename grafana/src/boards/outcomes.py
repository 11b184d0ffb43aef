"""What comes of tasks: how they end and why, what they ask of hosts, and whether their results are fetched."""

from typing import Final

from grafana.src import thresholds
from grafana.src.panels import HALF, QUARTER, Ask, Panel, Shape, Told, quantiles
from grafana.src.queries import among, grown, rate, share

_NOT_CANCELLED: Final = 'status!="cancelled"'

ENDS: Final = (
    Panel(
        title="Finished tasks by status and reason",
        shape=Shape.STACK,
        asks=[Ask(rate("taskgate_tasks_finished_total", by=["status", "reason"]), "{{status}}, {{reason}}")],
        unit="cps",
        told=Told(
            "how tasks end and why.",
            "completed, ok; some completed, tool_error.",
            "unreachable, closed and timeout are the upstream's; call_lost and shutdown are restarts of ours; expired "
            "is a time to live that was too short.",
        ),
        alert="TaskgateTaskFailureRatioHigh",
    ),
    Panel(
        title="Task failure ratio",
        asks=[Ask(among("taskgate_tasks_finished_total", 'status="failed"', by=["upstream"]), "{{upstream}}")],
        unit="percentunit",
        bound=thresholds.TASK_FAILURES,
        told=Told(
            "the share of tasks whose call came to nothing, by upstream; errors of the tools themselves count not.",
            "near 0.",
            "take the reason from the panel beside, and the upstream to its dashboard.",
        ),
        alert="TaskgateTaskFailureRatioHigh",
    ),
    Panel(
        title="Expired tasks by phase",
        asks=[Ask(rate("taskgate_task_expirations_total", by=["phase"]), "{{phase}}")],
        unit="cps",
        bound=thresholds.EXPIRING,
        told=Told(
            "unfinished tasks that expired, by what they were doing: queued, working, or waiting for input.",
            "0.",
            "queued: the upstream is too slow. working: raise the tool's `ttl`. input_required: hosts do not answer.",
        ),
        alert="TaskgateTasksExpiring",
    ),
    Panel(
        title="Cancel requests",
        shape=Shape.STACK,
        asks=[Ask(rate("taskgate_task_cancel_requests_total", by=["outcome"]), "{{outcome}}")],
        unit="cps",
        span=QUARTER,
        told=Told(
            "cancels by hosts: propagated to the upstream, or too late.",
            "few.",
            "many are users who do not want to wait: see which tool is slow.",
        ),
        alert="TaskgateTasksExpiring",
    ),
    Panel(
        title="Recovered tasks and lost leases",
        shape=Shape.STACK,
        asks=[
            Ask(grown("taskgate_task_recoveries_total", by=["outcome"]), "{{outcome}}"),
            Ask(grown("taskgate_leases_lost_total", by=["kind"]), "lost by who held it: {{kind}}"),
        ],
        unit="short",
        span=QUARTER,
        told=Told(
            "tasks taken over from a process that was gone: failed, as they may have run, or retried; and those that "
            "a process which goes on had taken from it, since it stood still.",
            "0; some after a crash.",
            "find out why the process ended; a clean end waits for tasks (`server.drain`).",
        ),
        alert="TaskgateOrphanedTasks",
    ),
    Panel(
        title="Late answers",
        asks=[Ask(rate("taskgate_task_late_answers_total", by=["upstream"]), "{{upstream}}")],
        unit="cps",
        span=QUARTER,
        told=Told(
            "answers of upstreams that were dropped, as their task had ended before.",
            "0, or as many as are cancelled.",
            "an upstream that works on after a cancel: it does so for nothing.",
        ),
        alert="TaskgateTasksExpiring",
    ),
    Panel(
        title="Shadow promotions",
        asks=[Ask(rate("taskgate_shadow_promotions_total", by=["upstream"]), "{{upstream}}")],
        unit="cps",
        span=QUARTER,
        told=Told(
            "plain calls of which a rule with `shadow: true` would have made a task.",
            "0 without such a rule.",
            "nothing is refused here; it tells what taking the rule out of shadow would do.",
        ),
        alert="TaskgateConcurrencySaturated",
    ),
)

QUESTIONS: Final = (
    Panel(
        title="Input wait",
        asks=quantiles("taskgate_task_input_wait_seconds", 0.5, 0.9),
        unit="s",
        bound=thresholds.INPUT_WAIT,
        span=HALF,
        told=Told(
            "how long tasks were in input_required, each time to its end.",
            "as fast as people are.",
            "hosts that never show the question: see by kind beside, and `tasks.input_required.max_wait`.",
        ),
        alert="TaskgateInputWaitStuck",
    ),
    Panel(
        title="Input requests by kind and outcome",
        shape=Shape.STACK,
        asks=[Ask(rate("taskgate_task_input_requests_total", by=["kind", "outcome"]), "{{kind}} {{outcome}}")],
        unit="cps",
        span=HALF,
        told=Told(
            "questions of servers during tasks that are over: answered, declined, expired or no more needed.",
            "mostly answered.",
            "expired ones were seen by nobody: the host does not look, or cannot show them.",
        ),
        alert="TaskgateInputWaitStuck",
    ),
)

RESULTS: Final = (
    Panel(
        title="Result delivery delay",
        asks=quantiles("taskgate_task_delivery_delay_seconds", 0.5, 0.95),
        unit="s",
        told=Told(
            "from the end of a task until its owner first saw the outcome.",
            "about the interval between looks.",
            "hosts that look too seldom: lower `tasks.poll_interval.max`, or have them listen.",
        ),
        alert="TaskgateTasksUndelivered",
    ),
    Panel(
        title="Undelivered results",
        asks=[
            Ask(
                share(
                    rate("taskgate_tasks_undelivered_total", _NOT_CANCELLED),
                    rate("taskgate_tasks_purged_total", _NOT_CANCELLED),
                ),
                "never fetched",
            )
        ],
        unit="percentunit",
        bound=thresholds.UNDELIVERED,
        told=Told(
            "the share of removed tasks whose outcome was never fetched; cancelled ones have none and count not.",
            "below 20 %.",
            "hosts lose their tasks, or the time to live is shorter than their patience.",
        ),
        alert="TaskgateTasksUndelivered",
    ),
    Panel(
        title="Result size",
        asks=quantiles("taskgate_task_result_bytes", 0.5, 0.95),
        unit="bytes",
        told=Told(
            "size of stored outcomes, at the grain of the buckets.",
            "kilobytes.",
            "see how full the store is; `tasks.max_result` is the most one may have.",
        ),
        alert="TaskgateStoreFilling",
    ),
)
