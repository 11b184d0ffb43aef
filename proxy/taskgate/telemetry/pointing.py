"""From a request about a task to the request that made it, in traces.

What must not live here: what a span is (`tracing`).
"""

from taskgate.domain.record import TaskRecord
from taskgate.telemetry.request_context import current


def point_at(record: TaskRecord) -> None:
    """Let the span of the present request say that it is about this task, and point at the one that made it."""
    request_context = current()
    if request_context is None or request_context.span is None:
        return
    request_context.span.about(record.id)
    if record.trace is not None:
        request_context.span.link(record.trace)
