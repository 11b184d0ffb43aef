"""Limits: refusals, utilization, waits for a permit, and the cost of polls."""

from typing import Final

from grafana.src import thresholds
from grafana.src.board import Board, Row
from grafana.src.panels import HALF, QUARTER, Ask, Guidance, Panel, Shape, quantiles
from grafana.src.queries import among, now, rate

_DECISIONS: Final = "taskgate_rate_limit_decisions_total"
_POLLS: Final = "taskgate_task_polls_total"

_RATES: Final = (
    Panel(
        title="Rate limit decisions",
        shape=Shape.STACK,
        asks=[Ask(rate(_DECISIONS, by=["policy", "decision"]), "{{policy}} {{decision}}")],
        unit="reqps",
        span=HALF,
        guidance=Guidance(
            "the decision of each policy. A request has one for each policy, so it counts several times. "
            "delayed: it waited for its turn.",
            "allowed; delayed for a moment, when many hosts start.",
            "rejected shows which policy refuses callers; the audit log names them.",
        ),
        alert="TaskgateRateLimitRejectionsHigh",
    ),
    Panel(
        title="Rate limit rejection ratio",
        asks=[Ask(among(_DECISIONS, 'decision="rejected"', by=["policy"]), "{{policy}}")],
        unit="percentunit",
        span=HALF,
        bound=thresholds.RATE_REJECTIONS,
        guidance=Guidance(
            "the share of requests that a policy refused.",
            "near 0, with peaks of single callers that are too fast.",
            "if it refuses many callers, the rate is too low for their work.",
        ),
        alert="TaskgateRateLimitRejectionsHigh",
    ),
)

_SELDOM: Final = (
    Panel(
        title="Rate limit rejections in shadow",
        asks=[Ask(rate(_DECISIONS, 'decision="shadow"', by=["policy"]), "{{policy}}")],
        unit="reqps",
        guidance=Guidance(
            "requests that a policy with `mode: shadow` would have refused.",
            "0 without such a policy.",
            "remove `mode: shadow` when the policy would refuse the right requests.",
        ),
        alert="TaskgateRateLimitRejectionsHigh",
    ),
    Panel(
        title="Rate limit decisions without the store",
        shape=Shape.STACK,
        asks=[
            Ask(
                rate(_DECISIONS, 'decision=~"fail_local|fail_open"', by=["policy", "decision"]),
                "{{policy}} {{decision}}",
            )
        ],
        unit="reqps",
        bound=thresholds.LIMITER_FALLBACK,
        guidance=Guidance(
            "requests that passed while the shared store did not respond: by this instance's part of the rate "
            "(fail_local), or without a rate (fail_open).",
            "no series.",
            "check the store and the network to it; until then `limits.on_store_error` applies.",
        ),
        alert="TaskgateLimiterFallback",
    ),
    Panel(
        title="Requests that wait for a rate",
        asks=[Ask(now("taskgate_rate_limit_waiting"), "waiting")],
        unit="short",
        guidance=Guidance(
            "requests that wait for their turn at a rate, over all instances.",
            "0, with peaks when many hosts start.",
            "if many wait all the time, the rate is too low for the work of their callers.",
        ),
        alert="TaskgateRateLimitRejectionsHigh",
    ),
)

_BOTH: Final = ("scope", "upstream")
_SLOTS: Final = (
    Panel(
        title="Concurrency utilization",
        asks=[
            Ask(
                f"{now('taskgate_concurrency_in_use', by=_BOTH, how='max')} / "
                f"{now('taskgate_concurrency_limit', by=_BOTH, how='max')}",
                "{{scope}} {{upstream}}",
            )
        ],
        unit="percentunit",
        bound=thresholds.SATURATED,
        guidance=Guidance(
            "calls in flight to each upstream as a share of its `concurrency`; global is unfinished tasks as a "
            "share of `tasks_global`. Of several instances, the fullest.",
            "below 90 %.",
            "raise the limit if the upstream can serve more, or add instances.",
        ),
        alert="TaskgateConcurrencySaturated",
    ),
    Panel(
        title="Calls in flight",
        shape=Shape.STACK,
        asks=[Ask(now("taskgate_concurrency_in_use", 'scope="upstream"', by=["upstream"]), "{{upstream}}")],
        unit="short",
        guidance=Guidance(
            "calls in flight to each upstream, over all instances.",
            "your load.",
            "a flat top is a limit that was reached.",
        ),
        alert="TaskgateConcurrencySaturated",
    ),
    Panel(
        title="Concurrency limit rejections",
        shape=Shape.STACK,
        asks=[
            Ask(rate("taskgate_concurrency_rejections_total", by=["policy", "scope"]), "{{policy}} per {{scope}}"),
            Ask(rate("taskgate_sessions_evicted_total"), "sessions evicted"),
        ],
        unit="reqps",
        guidance=Guidance(
            "requests refused because the caller, or all callers, have too many tasks, bytes, sessions or streams. "
            "Sessions evicted: idle ones that ended for new ones of their caller; no request was refused.",
            "0; some evictions where hosts do not end their sessions.",
            "per context: one caller. global: all callers; raise `limits.concurrency`, or shorten the time to live.",
        ),
        alert="TaskgateConcurrencySaturated",
    ),
    Panel(
        title="Active and saturated callers",
        asks=[
            Ask(now("taskgate_active_contexts"), "active"),
            Ask(now("taskgate_saturated_contexts"), "at a cap"),
        ],
        unit="short",
        span=24,
        height=6,
        guidance=Guidance(
            "callers of the last five minutes, and callers at one of their own caps now. Each instance counts "
            "its own callers, so a caller of two instances counts twice.",
            "none at a cap.",
            "callers that stay at a cap are refused: the audit log names them and the limit.",
        ),
        alert="TaskgateConcurrencySaturated",
    ),
)

_QUEUES: Final = (
    Panel(
        title="Queue utilization",
        asks=[
            Ask(
                f"{now('taskgate_queue_depth', by=['upstream'], how='max')} / "
                f"{now('taskgate_queue_limit', by=['upstream'], how='max')}",
                "{{upstream}}",
            )
        ],
        unit="percentunit",
        bound=thresholds.QUEUE_FULL,
        guidance=Guidance(
            "calls that wait for a permit of an upstream, as a share of its `queue.size`; of several instances "
            "the fullest.",
            "near 0.",
            "the upstream is too slow for its load.",
        ),
        alert="TaskgateQueueSaturated",
    ),
    Panel(
        title="Queue rejections",
        shape=Shape.STACK,
        asks=[Ask(rate("taskgate_queue_rejections_total", by=["upstream", "reason"]), "{{upstream}} {{reason}}")],
        unit="reqps",
        guidance=Guidance(
            "calls refused because the queue was full, or because they waited too long (timeout).",
            "0.",
            "raise `concurrency` if the upstream can serve more; a longer queue only delays the refusal.",
        ),
        alert="TaskgateQueueSaturated",
    ),
    Panel(
        title="Queue wait",
        asks=quantiles("taskgate_task_queue_wait_seconds", 0.5, 0.99),
        unit="s",
        guidance=Guidance(
            "from the creation of a task to the dispatch of its call.",
            "milliseconds.",
            "find the upstream, and check its `concurrency`.",
        ),
        alert="TaskgateQueueSaturated",
    ),
)

_TIMES: Final = (
    Panel(
        title="TTL adjustments",
        shape=Shape.STACK,
        asks=[Ask(rate("taskgate_ttl_adjustments_total", by=["action"]), "{{action}}")],
        unit="cps",
        span=HALF,
        guidance=Guidance(
            "tasks with another time to live than the host requested: less, more, or the default without a request.",
            "mostly defaulted.",
            "many clamped_max: hosts want results for longer than `tasks.ttl.max`.",
        ),
        alert="TaskgateTasksUndelivered",
    ),
    Panel(
        title="Granted TTL",
        asks=quantiles("taskgate_task_ttl_seconds", 0.5, 0.95),
        unit="s",
        span=HALF,
        guidance=Guidance(
            "time to live of new tasks, with the precision of the buckets.",
            "`tasks.ttl.default`.",
            "long ones fill the store.",
        ),
        alert="TaskgateStoreFilling",
    ),
)

_POLLING: Final = (
    Panel(
        title="Task polls by result",
        shape=Shape.STACK,
        asks=[Ask(rate(_POLLS, by=["upstream", "result"]), "{{upstream}} {{result}}")],
        unit="reqps",
        span=QUARTER,
        guidance=Guidance(
            "polls of hosts by result: changed, unchanged, terminal, early, limited (refused), denied.",
            "a few unchanged polls for each changed one.",
            "early and limited: a host ignores the poll interval.",
        ),
        alert="TaskgateExcessivePolling",
    ),
    Panel(
        title="Wasted task polls",
        asks=[Ask(among(_POLLS, 'result=~"unchanged|early"', by=["upstream"]), "{{upstream}}")],
        unit="percentunit",
        bound=thresholds.WASTED_POLLS,
        span=QUARTER,
        guidance=Guidance(
            "the share of polls that were early or found no change.",
            "below 95 %.",
            "raise `tasks.poll_interval.base` for slow tools.",
        ),
        alert="TaskgatePollingPressure",
    ),
    Panel(
        title="Advised poll interval",
        asks=[Ask(now("taskgate_poll_interval_seconds", by=["upstream"], how="max"), "{{upstream}}")],
        unit="s",
        span=QUARTER,
        guidance=Guidance(
            "the poll interval in the newest response.",
            "up to `tasks.poll_interval.base`, less for new tasks; longer while the server is busy.",
            "at its max for long: the server has more calls than its `concurrency`.",
        ),
        alert="TaskgatePollingPressure",
    ),
    Panel(
        title="Polls per task",
        asks=quantiles("taskgate_task_polls_per_task", 0.5, 0.95),
        unit="short",
        span=QUARTER,
        guidance=Guidance(
            "the number of polls of a task until its end was seen.",
            "its duration divided by the interval.",
            "many polls per task: have hosts subscribe instead.",
        ),
        alert="TaskgatePollingPressure",
    ),
)

BOARD: Final = Board(
    uid="taskgate-limits",
    title="taskgate / Limits",
    about="Refusals by limits, also in shadow, utilization, queues, and polls of hosts.",
    rows=(
        Row(title="Rates", panels=_RATES),
        Row(title="Slots and caps", panels=_SLOTS, leads_to="taskgate-upstreams"),
        Row(title="Queues", panels=_QUEUES, leads_to="taskgate-upstreams"),
        Row(title="Time to live", panels=_TIMES, leads_to="taskgate-tasks"),
        Row(title="Polling", panels=_POLLING, leads_to="taskgate-tasks"),
        Row(title="Rates in shadow, delayed or without a store", panels=_SELDOM, is_closed=True),
    ),
)
