"""Facts about the store and the audit log become metrics: one short function a fact; see `metrics`."""

from collections.abc import Callable

from taskgate.domain.record import TaskStatus
from taskgate.errors import StoreFault
from taskgate.telemetry import audit
from taskgate.telemetry.metrics import store_families
from taskgate.telemetry.metrics.registry import Registry
from taskgate.telemetry.metrics.series import Takers


def store_takers(registry: Registry, backend: str, count_unfinished: Callable[[int], None]) -> Takers:
    """For what the store does and holds."""
    operations = registry.histogram(store_families.STORE_OPERATIONS)
    up = registry.gauge(store_families.STORE_UP)
    size = registry.gauge(store_families.STORE_SIZE)
    tasks = registry.gauge(store_families.STORE_TASKS)
    faults = registry.gauge(store_families.STORE_FAULT)
    for fault in StoreFault:
        faults[backend, fault].set(0)
    was_up: bool | None = None
    is_faulty = False

    def used(fact: audit.StoreUsed) -> None:
        nonlocal was_up
        operations[backend, fact.operation, fact.ok].observe(fact.seconds)
        is_up = fact.ok and not is_faulty
        if is_up is not was_up:
            was_up = is_up
            up[backend,].set(is_up)

    def faulted(fact: audit.StoreFaulted) -> None:
        nonlocal was_up, is_faulty
        is_faulty = fact.fault is not None
        for fault in StoreFault:
            faults[backend, fault].set(fault is fact.fault)
        was_up = not is_faulty
        up[backend,].set(was_up)

    def counted(fact: audit.StoreCounted) -> None:
        for status in TaskStatus:
            tasks[status,].set(fact.tasks.get(status, 0))
        count_unfinished(sum(count for status, count in fact.tasks.items() if not status.is_terminal))
        if fact.size is not None:
            size[backend,].set(fact.size)

    return {audit.StoreUsed: used, audit.StoreFaulted: faulted, audit.StoreCounted: counted}


def trail_takers(registry: Registry) -> Takers:
    """For the audit log."""
    events = registry.counter(store_families.AUDIT_EVENTS)
    writes = registry.histogram(store_families.AUDIT_WRITES)
    lost = registry.counter(store_families.AUDIT_DROPPED)

    def noted(fact: audit.AuditNoted) -> None:
        # The fact is the key: it is what its family is labelled by.
        events[fact].inc()

    def wrote(fact: audit.AuditWritten) -> None:
        writes[fact.sink,].observe(fact.seconds)

    def dropped(fact: audit.AuditDropped) -> None:
        lost[fact.sink, fact.reason].inc(fact.lines)

    return {audit.AuditNoted: noted, audit.AuditWritten: wrote, audit.AuditDropped: dropped}
