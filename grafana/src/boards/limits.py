"""The limits: what is refused, what is nearly full, how long one waits for a turn, and what polling costs."""

from typing import Final

from grafana.src import thresholds
from grafana.src.board import Board, Row
from grafana.src.panels import HALF, QUARTER, Ask, Panel, Shape, Told, quantiles
from grafana.src.queries import among, now, rate

_DECISIONS: Final = "taskgate_rate_limit_decisions_total"
_POLLS: Final = "taskgate_task_polls_total"

_RATES: Final = (
    Panel(
        title="Rate limit decisions",
        shape=Shape.STACK,
        asks=[Ask(rate(_DECISIONS, by=["policy", "decision"]), "{{policy}} {{decision}}")],
        unit="reqps",
        told=Told(
            "what each policy said; a request asks several, so it counts several times.",
            "allowed.",
            "rejected ones tell which policy holds somebody back; the audit log says whom.",
        ),
        alert="TaskgateRateLimitRejectionsHigh",
    ),
    Panel(
        title="Rate limit rejection ratio",
        asks=[Ask(among(_DECISIONS, 'decision="rejected"', by=["policy"]), "{{policy}}")],
        unit="percentunit",
        bound=thresholds.RATE_REJECTIONS,
        told=Told(
            "the share of requests that a policy refused.",
            "near 0, with peaks where one caller is too fast.",
            "if many callers are refused, the rate is too low for what they do.",
        ),
        alert="TaskgateRateLimitRejectionsHigh",
    ),
    Panel(
        title="Rate limit rejections in shadow",
        asks=[Ask(rate(_DECISIONS, 'decision="shadow"', by=["policy"]), "{{policy}}")],
        unit="reqps",
        told=Told(
            "requests that a policy with `mode: shadow` would have refused.",
            "0 where there is none.",
            "take a policy out of shadow when what it would refuse is what you want refused.",
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
        span=24,
        height=6,
        bound=thresholds.LIMITER_FALLBACK,
        told=Told(
            "requests that passed while the store that gateways share could not be asked: by this one's part of the "
            "rate (fail_local), or as if there were none (fail_open).",
            "nothing at all.",
            "see to the store, or to the way there; until then `limits.on_store_error` counts.",
        ),
        alert="TaskgateLimiterFallback",
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
        told=Told(
            "calls in flight to each upstream as a share of its `concurrency`; global is unfinished tasks as a share "
            "of `tasks_global`. Of several instances, the fullest.",
            "well below 90 %.",
            "raise the limit if the upstream can take it, or add instances.",
        ),
        alert="TaskgateConcurrencySaturated",
    ),
    Panel(
        title="Calls in flight",
        shape=Shape.STACK,
        asks=[Ask(now("taskgate_concurrency_in_use", 'scope="upstream"', by=["upstream"]), "{{upstream}}")],
        unit="short",
        told=Told(
            "calls in flight to each upstream, over all instances.",
            "what your load is.",
            "a flat top is a limit that was reached.",
        ),
        alert="TaskgateConcurrencySaturated",
    ),
    Panel(
        title="Concurrency limit rejections",
        shape=Shape.STACK,
        asks=[Ask(rate("taskgate_concurrency_rejections_total", by=["policy", "scope"]), "{{policy}} per {{scope}}")],
        unit="reqps",
        told=Told(
            "requests refused since somebody has too many tasks, bytes, sessions or streams already.",
            "0.",
            "per context it is one caller's doing, global it is everybody's: raise `limits.concurrency`, or shorten "
            "the time to live.",
        ),
        alert="TaskgateConcurrencySaturated",
    ),
    Panel(
        title="Active and saturated callers",
        asks=[
            Ask(now("taskgate_active_contexts"), "active"),
            Ask(now("taskgate_saturated_contexts"), "at one of their caps"),
        ],
        unit="short",
        span=24,
        height=6,
        told=Told(
            "callers of the last five minutes, and those that are at one of their own caps now. An instance counts "
            "its own, so one that is served by two counts twice.",
            "none at a cap.",
            "callers that stay at a cap are refused: the audit log says who, and by which limit.",
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
        told=Told(
            "calls that wait for a turn at an upstream, as a share of its `queue.size`; of several instances the "
            "fullest.",
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
        told=Told(
            "calls that found no place to wait (full), or waited too long (timeout).",
            "0.",
            "raise `concurrency` if the upstream can take it; a longer queue only makes it later.",
        ),
        alert="TaskgateQueueSaturated",
    ),
    Panel(
        title="Queue wait",
        asks=quantiles("taskgate_task_queue_wait_seconds", 0.5, 0.99),
        unit="s",
        told=Told(
            "from the creation of a task until its call left.",
            "milliseconds.",
            "see which upstream it is, and how many it may have at once.",
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
        told=Told(
            "tasks that got another time to live than the host asked for: less, more, or the default for none.",
            "mostly defaulted.",
            "many clamped_max are hosts that want results longer than `tasks.ttl.max`.",
        ),
        alert="TaskgateTasksUndelivered",
    ),
    Panel(
        title="Granted TTL",
        asks=quantiles("taskgate_task_ttl_seconds", 0.5, 0.95),
        unit="s",
        span=HALF,
        told=Told(
            "time to live of new tasks, at the grain of the buckets.",
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
        told=Told(
            "looks of hosts: changed, unchanged, terminal, early, limited (refused), denied.",
            "a few unchanged ones for each that found something.",
            "early and limited ones are a host that does not keep to the interval it was told.",
        ),
        alert="TaskgateExcessivePolling",
    ),
    Panel(
        title="Wasted task polls",
        asks=[Ask(among(_POLLS, 'result=~"unchanged|early"', by=["upstream"]), "{{upstream}}")],
        unit="percentunit",
        bound=thresholds.WASTED_POLLS,
        span=QUARTER,
        told=Told(
            "the share of looks that came too early or found the task as it was.",
            "below 95 %.",
            "raise `tasks.poll_interval.base` for what takes long anyway.",
        ),
        alert="TaskgatePollingPressure",
    ),
    Panel(
        title="Advised poll interval",
        asks=[Ask(now("taskgate_poll_interval_seconds", by=["upstream"], how="max"), "{{upstream}}")],
        unit="s",
        span=QUARTER,
        told=Told(
            "the interval between looks that the newest answer advised.",
            "`tasks.poll_interval.base`; longer when callers come near their rate.",
            "at its max for long: callers have more tasks than their rate lets them look at.",
        ),
        alert="TaskgatePollingPressure",
    ),
    Panel(
        title="Polls per task",
        asks=quantiles("taskgate_task_polls_per_task", 0.5, 0.95),
        unit="short",
        span=QUARTER,
        told=Told(
            "how often a task was looked at until its end was seen.",
            "its duration over the interval.",
            "many looks per task: have hosts listen instead.",
        ),
        alert="TaskgatePollingPressure",
    ),
)

BOARD: Final = Board(
    uid="taskgate-limits",
    title="taskgate / Limits",
    about="What limits refuse or would refuse, what is nearly full, and what hosts spend on looking.",
    rows=(
        Row(title="Rates", panels=_RATES),
        Row(title="Slots and caps", panels=_SLOTS),
        Row(title="Queues", panels=_QUEUES),
        Row(title="Time to live", panels=_TIMES),
        Row(title="Polling", panels=_POLLING),
    ),
)
