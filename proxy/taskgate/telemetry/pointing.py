"""From a request about a task to the request that made it, in traces.

What must not live here: what a span is (`tracing`).
"""

from taskgate.domain.record import TaskRecord
from taskgate.telemetry.visit import current


def point_at(record: TaskRecord) -> None:
    """Let the span of the present request say that it is about this task, and point at the one that made it."""
    visit = current()
    if visit is None or visit.span is None:
        return
    visit.span.about(record.id)
    if record.trace is not None:
        visit.span.link(record.trace)
