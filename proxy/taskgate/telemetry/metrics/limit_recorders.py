"""Events about limits become metrics: one short function an event; see `metrics`."""

from taskgate.telemetry import events
from taskgate.telemetry.metrics import limit_families, store_families, task_families
from taskgate.telemetry.metrics.labels import ALL
from taskgate.telemetry.metrics.registry import Registry
from taskgate.telemetry.metrics.series import Takers
from taskgate.telemetry.metrics.settings import Configured


def limit_takers(registry: Registry) -> Takers:
    """For what was allowed or refused."""
    decisions = registry.counter(limit_families.RATE_DECISIONS)
    caps = registry.counter(limit_families.CAP_REJECTIONS)
    turns = registry.counter(limit_families.QUEUE_REJECTIONS)
    promotions = registry.counter(task_families.SHADOW_PROMOTIONS)

    def rate_judged(event: events.RateLimitChecked) -> None:
        # The event is the key: it is what its family is labelled by.
        decisions[event].inc()

    def cap_refused(event: events.CapRefused) -> None:
        caps[event.cap, event.scope].inc()

    def queue_refused(event: events.QueueRefused) -> None:
        turns[event.mount, event.reason].inc()

    def would_promote(event: events.ShadowPromotion) -> None:
        promotions[event.mount,].inc()

    return {
        events.RateLimitChecked: rate_judged,
        events.CapRefused: cap_refused,
        events.QueueRefused: queue_refused,
        events.ShadowPromotion: would_promote,
    }


class Concurrency:
    """How much of what may be at once is, and how much that is at most: of calls, tasks, bytes and lines."""

    def __init__(self, registry: Registry) -> None:
        self._in_use = registry.gauge(limit_families.IN_USE)
        self._limits = registry.gauge(limit_families.LIMIT)
        self._depth = registry.gauge(limit_families.QUEUE_DEPTH)
        self._queue_limits = registry.gauge(limit_families.QUEUE_LIMIT)
        self._store_limit = registry.gauge(store_families.STORE_LIMIT)
        self._audit_limits = registry.gauge(store_families.AUDIT_QUEUE_LIMIT)
        # What was last shown beside the calls in flight, which seldom changes: by mount, the limit and how many wait.
        self._shown: dict[str, tuple[int, int]] = {}

    def recorders(self) -> Takers:
        """For the events about it."""
        return {events.ConcurrencyChanged: self._slots_used}

    def count_unfinished(self, tasks: int) -> None:
        """So many tasks are unfinished now."""
        self._in_use[ALL, None].set(tasks)

    def adopt(self, configured: Configured) -> None:
        """These are the limits from now on."""
        self._shown.clear()
        if configured.task_limit is None:
            self._limits.forget((ALL, None))
        else:
            self._limits[ALL, None].set(configured.task_limit)
        self._queue_limits.show({(mount,): limit for mount, limit in configured.queue_limits.items()})
        size, lines = configured.store_limit, configured.audit_queue
        self._store_limit.show({} if size is None else {(configured.backend,): size})
        self._audit_limits.show({} if lines is None else {(sink,): lines for sink in configured.sinks})

    def _slots_used(self, event: events.ConcurrencyChanged) -> None:
        self._in_use["upstream", event.mount].set(event.in_use)
        if self._shown.get(event.mount) != (event.limit, event.queued):
            self._shown[event.mount] = event.limit, event.queued
            self._limits["upstream", event.mount].set(event.limit)
            self._depth[event.mount,].set(event.queued)
