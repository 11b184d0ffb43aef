"""Outcomes of tasks: status and reason at their end, input requests, and delivery of results."""

from typing import Final

from grafana.src import thresholds
from grafana.src.panels import HALF, Ask, Guidance, Panel, Shape, quantiles
from grafana.src.queries import among, grown, rate, share

_NOT_CANCELLED: Final = 'status!="cancelled"'

ENDS: Final = (
    Panel(
        title="Finished tasks by status and reason",
        shape=Shape.STACK,
        asks=[Ask(rate("taskgate_tasks_finished_total", by=["status", "reason"]), "{{status}}, {{reason}}")],
        unit="cps",
        guidance=Guidance(
            "ended tasks, by status and reason.",
            "completed, ok; some completed, tool_error.",
            "unreachable, closed and timeout: the upstream. call_lost and shutdown: restarts of the gateway. "
            "expired: a time to live that was too short.",
        ),
        alert="TaskgateTaskFailureRatioHigh",
    ),
    Panel(
        title="Task failure ratio",
        asks=[Ask(among("taskgate_tasks_finished_total", 'status="failed"', by=["upstream"]), "{{upstream}}")],
        unit="percentunit",
        bound=thresholds.TASK_FAILURES,
        guidance=Guidance(
            "the share of tasks whose call failed, by upstream, without errors of the tools themselves.",
            "near 0.",
            "see the reason in the panel beside, and open the dashboard of the upstream.",
        ),
        alert="TaskgateTaskFailureRatioHigh",
    ),
    Panel(
        title="Expired tasks by phase",
        asks=[Ask(rate("taskgate_task_expirations_total", by=["phase"]), "{{phase}}")],
        unit="cps",
        bound=thresholds.EXPIRING,
        guidance=Guidance(
            "unfinished tasks that expired, by phase: queued, working, or waiting for input.",
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
        guidance=Guidance(
            "cancels by hosts: propagated to the upstream, or too late.",
            "few.",
            "many: users do not want to wait. Find the slow tool.",
        ),
        alert="TaskgateTasksExpiring",
    ),
    Panel(
        title="Recovered tasks and lost leases",
        shape=Shape.STACK,
        asks=[
            Ask(grown("taskgate_task_recoveries_total", by=["outcome"]), "{{outcome}}"),
            Ask(grown("taskgate_leases_lost_total", by=["kind"]), "lost lease: {{kind}}"),
        ],
        unit="short",
        guidance=Guidance(
            "tasks taken over from an ended process: failed, because they may have run, or retried. Lost leases "
            "are takeovers from a process that still runs, but had stopped for too long.",
            "0; some after a crash.",
            "find out why the process ended; a normal stop waits for tasks (`server.drain`).",
        ),
        alert="TaskgateOrphanedTasks",
    ),
    Panel(
        title="Late answers",
        asks=[Ask(rate("taskgate_task_late_answers_total", by=["upstream"]), "{{upstream}}")],
        unit="cps",
        guidance=Guidance(
            "answers of upstreams that were dropped, because their task had already ended.",
            "0, or as many as cancelled tasks.",
            "an upstream continues to work after a cancel.",
        ),
        alert="TaskgateTasksExpiring",
    ),
)

SHADOW: Final = (
    Panel(
        title="Shadow promotions",
        asks=[Ask(rate("taskgate_shadow_promotions_total", by=["upstream"]), "{{upstream}}")],
        unit="cps",
        span=24,
        height=6,
        guidance=Guidance(
            "plain calls that a rule with `shadow: true` would have promoted to tasks.",
            "0 without such a rule.",
            "the panel shows the effect of the rule without `shadow`; no call is refused.",
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
        guidance=Guidance(
            "how long tasks were in input_required, each time to its end.",
            "the time that people need.",
            "hosts never show the question: see by kind beside, and `tasks.input_required.max_wait`.",
        ),
        alert="TaskgateInputWaitStuck",
    ),
    Panel(
        title="Input requests by kind and outcome",
        shape=Shape.STACK,
        asks=[Ask(rate("taskgate_task_input_requests_total", by=["kind", "outcome"]), "{{kind}} {{outcome}}")],
        unit="cps",
        span=HALF,
        guidance=Guidance(
            "closed input requests of servers: answered, declined, expired, or no longer needed.",
            "mostly answered.",
            "expired: no user saw the question. The host does not poll, or cannot show questions.",
        ),
        alert="TaskgateInputWaitStuck",
    ),
)

RESULTS: Final = (
    Panel(
        title="Result delivery delay",
        asks=quantiles("taskgate_task_delivery_delay_seconds", 0.5, 0.95),
        unit="s",
        guidance=Guidance(
            "from the end of a task to the first delivery of its outcome to the owner.",
            "about the poll interval.",
            "hosts poll too seldom: lower `tasks.poll_interval.max`, or have hosts subscribe.",
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
        guidance=Guidance(
            "the share of removed tasks whose outcome no host fetched, without cancelled tasks.",
            "below 20 %.",
            "hosts lose their tasks, or the time to live is too short for them.",
        ),
        alert="TaskgateTasksUndelivered",
    ),
    Panel(
        title="Result size",
        asks=quantiles("taskgate_task_result_bytes", 0.5, 0.95),
        unit="bytes",
        guidance=Guidance(
            "size of stored outcomes, with the precision of the buckets.",
            "kilobytes.",
            "check how full the store is; `tasks.max_result` limits one outcome.",
        ),
        alert="TaskgateStoreFilling",
    ),
)
