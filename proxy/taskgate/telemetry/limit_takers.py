"""Facts about limits and polling become metrics: one short function a fact; see `metrics`."""

from taskgate.telemetry import audit, catalogue
from taskgate.telemetry.labels import ALL
from taskgate.telemetry.series import Registry, Takers


def limit_takers(registry: Registry) -> Takers:
    """For what was allowed or refused, and how often tasks are looked at."""
    decisions = registry.counter(catalogue.RATE_DECISIONS)
    caps = registry.counter(catalogue.CAP_REJECTIONS)
    turns = registry.counter(catalogue.QUEUE_REJECTIONS)
    promotions = registry.counter(catalogue.SHADOW_PROMOTIONS)
    joined = registry.counter(catalogue.JOINED)
    polls = registry.counter(catalogue.POLLS)
    intervals = registry.gauge(catalogue.POLL_INTERVAL)

    def rate_judged(fact: audit.RateJudged) -> None:
        # The fact is the key: it is what its family is labelled by.
        decisions[fact].inc()

    def cap_refused(fact: audit.CapRefused) -> None:
        caps[fact.cap, fact.scope].inc()

    def queue_refused(fact: audit.QueueRefused) -> None:
        turns[fact.mount, fact.reason].inc()

    def would_promote(fact: audit.WouldPromote) -> None:
        promotions[fact.mount,].inc()

    def call_joined(fact: audit.CallJoined) -> None:
        joined[fact.mount, fact.how].inc()

    def polled(fact: audit.TaskPolled) -> None:
        polls[fact].inc()

    def advised(fact: audit.PollAdvised) -> None:
        intervals[fact.mount,].set(fact.interval.total_seconds())

    return {
        audit.RateJudged: rate_judged,
        audit.CapRefused: cap_refused,
        audit.QueueRefused: queue_refused,
        audit.WouldPromote: would_promote,
        audit.CallJoined: call_joined,
        audit.TaskPolled: polled,
        audit.PollAdvised: advised,
    }


class Concurrency:
    """How much of what may be at once is: calls in flight to each upstream, and unfinished tasks in all."""

    def __init__(self, registry: Registry) -> None:
        self._in_use = registry.gauge(catalogue.IN_USE)
        self._limits = registry.gauge(catalogue.LIMIT)
        self._depth = registry.gauge(catalogue.QUEUE_DEPTH)

    def takers(self) -> Takers:
        """For the facts about it."""
        return {audit.SlotsUsed: self._slots_used}

    def count_unfinished(self, tasks: int) -> None:
        """So many tasks are unfinished now."""
        self._in_use[ALL, None].set(tasks)

    def limit_tasks(self, limit: int | None) -> None:
        """So many tasks may be unfinished."""
        if limit is None:
            self._limits.forget((ALL, None))
        else:
            self._limits[ALL, None].set(limit)

    def _slots_used(self, fact: audit.SlotsUsed) -> None:
        self._in_use["upstream", fact.mount].set(fact.in_use)
        self._limits["upstream", fact.mount].set(fact.limit)
        self._depth[fact.mount,].set(fact.queued)
