"""Whether what tracing needs is installed, without loading more than that takes. Knows no OpenTelemetry itself."""

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Final

from taskgate.telemetry.opentelemetry.settings import Exporter

EXPORTERS: Final[Mapping[Exporter, str]] = MappingProxyType(
    {
        Exporter.OTLP_HTTP: "opentelemetry.exporter.otlp.proto.http.trace_exporter",
        Exporter.OTLP_GRPC: "opentelemetry.exporter.otlp.proto.grpc.trace_exporter",
        Exporter.CONSOLE: "opentelemetry.sdk.trace.export",
    }
)
"""The module of each; the SDK comes with all of them."""


class TracingUnavailable(Exception):
    """Spans cannot be exported as the operator wants; the text is for them."""


def expect_installed(exporter: Exporter) -> None:
    """Raise TracingUnavailable where the packages for that exporter are not there."""
    try:
        import_module(EXPORTERS[exporter])
    except ImportError:
        raise TracingUnavailable(
            f"tracing.exporter: {exporter} needs packages that are not installed: pip install 'taskgate[tracing]'"
        ) from None
