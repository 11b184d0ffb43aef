"""The families about what is kept: the store and the audit log; see `catalogue`."""

from typing import Final

from taskgate.telemetry.metrics import labels
from taskgate.telemetry.metrics.families import ALONE, SeriesRoom, beginning, counter, gauge, histogram

_STORE_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_WRITE_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)

STORE_OPERATIONS = histogram(
    "taskgate_store_operation_duration_seconds",
    "Operations of the store.",
    _STORE_SECONDS,
    labels.BACKEND,
    labels.OPERATION,
    labels.RESULT,
    room=SeriesRoom(most=22, sharing=16),
)
STORE_UP = gauge(
    "taskgate_store_up", "1 if the last operation of the store worked, and it has no fault.", labels.BACKEND
)
STORE_FAULT = gauge("taskgate_store_fault", "1 for what keeps the store from working.", labels.BACKEND, labels.FAULT)
STORE_SIZE = gauge("taskgate_store_size_bytes", "Size of the store; absent where it is not known.", labels.BACKEND)
STORE_LIMIT = gauge(
    "taskgate_store_size_limit_bytes", "The most that it may be; absent where there is no limit.", labels.BACKEND
)
STORE_TASKS = gauge("taskgate_store_tasks", "Records in the store.", labels.STATUS)

STORE: Final = (STORE_OPERATIONS, STORE_UP, STORE_FAULT, STORE_SIZE, STORE_LIMIT, STORE_TASKS)

AUDIT_EVENTS = counter(
    "taskgate_audit_events_total",
    "Events that at least one sink of the audit log is to get.",
    labels.AUDIT_EVENT,
    labels.AUDIT_OUTCOME,
    room=SeriesRoom(most=2),
)
AUDIT_DROPPED = counter(
    "taskgate_audit_dropped_total",
    "Lines that a sink never got; anything but 0 is a loss.",
    labels.SINK,
    labels.LOST_LINE,
    room=beginning(("queue_full",), ("write_failed",), ("closed",)),
)
AUDIT_WRITES = histogram(
    "taskgate_audit_write_duration_seconds",
    "How long a sink took for the lines that it got together.",
    _WRITE_SECONDS,
    labels.SINK,
    room=ALONE,
)
AUDIT_QUEUE_DEPTH = gauge("taskgate_audit_queue_depth", "Lines that wait for a sink.", labels.SINK)
AUDIT_QUEUE_LIMIT = gauge("taskgate_audit_queue_limit", "The most that may wait for a sink.", labels.SINK)
AUDIT_SEQUENCE = gauge(
    "taskgate_audit_chain_sequence",
    "Number of the last line in the file of a sink; absent until it is open, and of a sink that is no file.",
    labels.SINK,
)

AUDIT: Final = (
    AUDIT_EVENTS, AUDIT_DROPPED, AUDIT_WRITES, AUDIT_QUEUE_DEPTH, AUDIT_QUEUE_LIMIT, AUDIT_SEQUENCE,
)  # fmt: skip
