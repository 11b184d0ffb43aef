"""The setup of tracing from its settings, without loading the OpenTelemetry SDK unless it is on.

`wiring` calls `open_tracing` at the start. The check of a configuration calls `require_exporter`.
"""

from collections.abc import Callable, Collection
from importlib import import_module

from taskgate.clock import Clock, Entropy
from taskgate.telemetry.opentelemetry.settings import (
    EXPORTER_MODULES,
    Exporter,
    TracingSettings,
    TracingUnavailable,
)
from taskgate.telemetry.tracing import NO_TRACING, Tracing


def open_tracing(
    settings: TracingSettings | None,
    *,
    version: str,
    clock: Clock,
    entropy: Entropy,
    task_ref: Callable[[str], str] | None = None,
    methods: Callable[[], Collection[str]] = frozenset,
) -> Tracing:
    """Tracing with these settings, which the caller closes; `NO_TRACING` without settings.

    `task_ref` turns a task id into the reference that spans show; without it, spans name no task.
    `methods` returns the methods of the configured extensions at present. A span names these and
    the methods of MCP, and no other method that a host sends. Raises TracingUnavailable.
    """
    if settings is None:
        return NO_TRACING
    require_exporter(settings.exporter)
    from taskgate.telemetry.opentelemetry.sdk import build_tracing  # noqa: PLC0415 - it loads the SDK

    return build_tracing(settings, version=version, clock=clock, entropy=entropy, task_ref=task_ref, methods=methods)


def require_exporter(exporter: Exporter) -> None:
    """Raise TracingUnavailable if the packages of that exporter cannot be imported."""
    try:
        import_module(EXPORTER_MODULES[exporter])
    except ImportError:
        raise TracingUnavailable(
            f"tracing.exporter: {exporter} needs packages that are not installed: pip install 'taskgate[tracing]'"
        ) from None
