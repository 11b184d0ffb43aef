"""Events about the store and the audit log become metrics: one short function an event; see `metrics`."""

from collections.abc import Callable

from taskgate.domain.record import TaskStatus
from taskgate.errors import StoreFault
from taskgate.telemetry import events as kinds
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

    def used(event: kinds.StoreUsed) -> None:
        nonlocal was_up
        operations[backend, event.operation, event.ok].observe(event.seconds)
        is_up = event.ok and not is_faulty
        if is_up is not was_up:
            was_up = is_up
            up[backend,].set(is_up)

    def faulted(event: kinds.StoreFaulted) -> None:
        nonlocal was_up, is_faulty
        is_faulty = event.fault is not None
        for fault in StoreFault:
            faults[backend, fault].set(fault is event.fault)
        was_up = not is_faulty
        up[backend,].set(was_up)

    def counted(event: kinds.StoreCounted) -> None:
        for status in TaskStatus:
            tasks[status,].set(event.tasks.get(status, 0))
        count_unfinished(sum(count for status, count in event.tasks.items() if not status.is_terminal))
        if event.size is not None:
            size[backend,].set(event.size)

    return {kinds.StoreUsed: used, kinds.StoreFaulted: faulted, kinds.StoreCounted: counted}


def trail_takers(registry: Registry) -> Takers:
    """For the audit log."""
    events = registry.counter(store_families.AUDIT_EVENTS)
    writes = registry.histogram(store_families.AUDIT_WRITES)
    lost = registry.counter(store_families.AUDIT_DROPPED)

    def noted(event: kinds.AuditEventRecorded) -> None:
        # The event is the key: it is what its family is labelled by.
        events[event].inc()

    def wrote(event: kinds.AuditLinesWritten) -> None:
        writes[event.sink,].observe(event.seconds)

    def dropped(event: kinds.AuditLinesDropped) -> None:
        lost[event.sink, event.reason].inc(event.lines)

    return {kinds.AuditEventRecorded: noted, kinds.AuditLinesWritten: wrote, kinds.AuditLinesDropped: dropped}
