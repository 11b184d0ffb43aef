"""Metrics of what the gateway stores, in the store and in the audit log: families and recorders."""

from collections.abc import Callable
from typing import Final

from taskgate.domain.record import TaskStatus
from taskgate.errors import StoreFault
from taskgate.telemetry import events
from taskgate.telemetry.metrics import labels
from taskgate.telemetry.metrics.families import FROM_START, SeriesLimits, counter, from_start, gauge, histogram
from taskgate.telemetry.metrics.registry import Recorders, Registry

# --- families --------------------------------------------------------------------------------------------------------

_STORE_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_WRITE_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)

STORE_OPERATIONS = histogram(
    "taskgate_store_operation_duration_seconds",
    "Operations of the store.",
    _STORE_SECONDS,
    labels.BACKEND,
    labels.STORE_OPERATION,
    labels.RESULT,
    limits=SeriesLimits(own=22, own_if_store_shared=16),
)
STORE_UP = gauge(
    "taskgate_store_up", "1 if the last operation of the store worked, and it has no fault.", labels.BACKEND
)
STORE_FAULT = gauge(
    "taskgate_store_fault", "1 for the fault that keeps the store from working.", labels.BACKEND, labels.STORE_FAULT
)
STORE_SIZE = gauge("taskgate_store_size_bytes", "Size of the store; absent while unknown.", labels.BACKEND)
STORE_LIMIT = gauge(
    "taskgate_store_size_limit_bytes", "The limit on the size of the store; absent without a limit.", labels.BACKEND
)
STORE_TASKS = gauge("taskgate_store_tasks", "Records in the store.", labels.STATUS)

STORE_FAMILIES: Final = (STORE_OPERATIONS, STORE_UP, STORE_FAULT, STORE_SIZE, STORE_LIMIT, STORE_TASKS)

AUDIT_EVENTS = counter(
    "taskgate_audit_events_total",
    "Events for at least one sink of the audit log.",
    labels.AUDIT_EVENT,
    labels.AUDIT_OUTCOME,
    limits=SeriesLimits(own=2),
)
AUDIT_DROPPED = counter(
    "taskgate_audit_dropped_total",
    "Lines that a sink lost; anything but 0 is a loss.",
    labels.SINK,
    labels.DROP_REASON,
    limits=from_start(("queue_full",), ("write_failed",), ("closed",)),
)
AUDIT_WRITES = histogram(
    "taskgate_audit_write_duration_seconds",
    "Duration of writes of a sink, several lines at once.",
    _WRITE_SECONDS,
    labels.SINK,
    limits=FROM_START,
)
AUDIT_QUEUE_DEPTH = gauge("taskgate_audit_queue_depth", "Lines that wait for a sink.", labels.SINK)
AUDIT_QUEUE_LIMIT = gauge("taskgate_audit_queue_limit", "The most that may wait for a sink.", labels.SINK)
AUDIT_SEQUENCE = gauge(
    "taskgate_audit_chain_sequence",
    "Number of the last line in the file of a sink; absent until it is open, and of a sink that is no file.",
    labels.SINK,
)

AUDIT_FAMILIES: Final = (
    AUDIT_EVENTS, AUDIT_DROPPED, AUDIT_WRITES, AUDIT_QUEUE_DEPTH, AUDIT_QUEUE_LIMIT, AUDIT_SEQUENCE,
)  # fmt: skip

# --- recorders -------------------------------------------------------------------------------------------------------


def store_recorders(registry: Registry, backend: str, set_unfinished: Callable[[int], None]) -> Recorders:
    """The recorders of the store; `set_unfinished` takes the number of unfinished tasks."""
    operations = registry.histogram(STORE_OPERATIONS)
    up = registry.gauge(STORE_UP)
    size = registry.gauge(STORE_SIZE)
    tasks = registry.gauge(STORE_TASKS)
    faults = registry.gauge(STORE_FAULT)
    for fault in StoreFault:
        faults[backend, fault].value = 0
    was_up: bool | None = None
    is_faulty = False

    def store_used(event: events.StoreUsed) -> None:
        nonlocal was_up
        operations[backend, event.operation, event.ok].observe(event.seconds)
        is_up = event.ok and not is_faulty
        if is_up is not was_up:
            was_up = is_up
            up[backend,].value = is_up

    def store_faulted(event: events.StoreFaulted) -> None:
        nonlocal was_up, is_faulty
        is_faulty = event.fault is not None
        for fault in StoreFault:
            faults[backend, fault].value = fault is event.fault
        was_up = not is_faulty
        up[backend,].value = was_up

    def store_counted(event: events.StoreCounted) -> None:
        for status in TaskStatus:
            tasks[status,].value = event.tasks.get(status, 0)
        set_unfinished(sum(count for status, count in event.tasks.items() if not status.is_terminal))
        if event.size is not None:
            size[backend,].value = event.size

    return {events.StoreUsed: store_used, events.StoreFaulted: store_faulted, events.StoreCounted: store_counted}


def audit_recorders(registry: Registry) -> Recorders:
    """The recorders of the audit log."""
    recorded = registry.counter(AUDIT_EVENTS)
    writes = registry.histogram(AUDIT_WRITES)
    lost = registry.counter(AUDIT_DROPPED)

    def audit_event_recorded(event: events.AuditEventRecorded, times: int = 1) -> None:
        # The event is the key: its fields are the labels of the family.
        recorded.count(event, times)

    def audit_lines_written(event: events.AuditLinesWritten) -> None:
        writes[event.sink,].observe(event.seconds)

    def audit_lines_dropped(event: events.AuditLinesDropped) -> None:
        lost[event.sink, event.reason].value += event.lines

    return {
        events.AuditEventRecorded: audit_event_recorded,
        events.AuditLinesWritten: audit_lines_written,
        events.AuditLinesDropped: audit_lines_dropped,
    }
