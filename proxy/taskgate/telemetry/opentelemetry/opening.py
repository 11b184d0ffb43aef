"""The way in: tracing as its operator wants it, for whoever may have no OpenTelemetry SDK at all.

What must not live here: what is loaded only where tracing is on.
"""

from collections.abc import Callable, Collection

from taskgate.clock import Clock, Entropy
from taskgate.telemetry.opentelemetry.extra import expect_installed
from taskgate.telemetry.opentelemetry.settings import TracingSettings
from taskgate.telemetry.tracing import UNTRACED, Tracing


def open_tracing(
    settings: TracingSettings | None,
    *,
    version: str,
    clock: Clock,
    entropy: Entropy,
    task_ref: Callable[[str], str] | None = None,
    methods: Callable[[], Collection[str]] = frozenset,
) -> Tracing:
    """Tracing with these settings; none without. To be closed.

    `task_ref` tells of a task what everybody may know, None where nobody is to know any. `methods` has those that
    extensions have now. Raises TracingUnavailable.
    """
    if settings is None:
        return UNTRACED
    expect_installed(settings.exporter)
    # It loads the SDK.
    from taskgate.telemetry.opentelemetry.exporting import build_tracing  # noqa: PLC0415

    return build_tracing(settings, version=version, clock=clock, entropy=entropy, task_ref=task_ref, methods=methods)
