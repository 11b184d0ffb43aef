"""The values of the configuration section `tracing`, `TracingSettings`, and the packages that they need."""

from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module


class Exporter(StrEnum):
    """The exporters of spans: OTLP over HTTP or gRPC, or JSON lines on standard error."""

    OTLP_HTTP = "otlp_http"
    OTLP_GRPC = "otlp_grpc"
    CONSOLE = "console"


EXPORTER_MODULES = {
    Exporter.OTLP_HTTP: "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    Exporter.OTLP_GRPC: "opentelemetry.exporter.otlp.proto.grpc.trace_exporter",
    Exporter.CONSOLE: "opentelemetry.sdk.trace.export",
}
"""The module of each exporter, in a package of the extra `tracing`; the SDK comes with all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TracingSettings:
    """The settings of tracing.

    - `endpoint`: the URL of the collector; None leaves it to the environment
    - `sample_ratio`: the share of traces to keep, of those that start in the gateway
    - `trusts`: whether the trace context of a host becomes the parent; otherwise it is linked
    - `records_arguments`: whether spans hold the arguments of tool calls
    """

    exporter: Exporter
    endpoint: str | None
    sample_ratio: float
    trusts: bool
    records_arguments: bool


class TracingUnavailable(Exception):
    """Spans cannot be exported as configured; the text is for the operator."""


def require_exporter(exporter: Exporter) -> None:
    """Raise TracingUnavailable if the packages of that exporter cannot be imported."""
    try:
        import_module(EXPORTER_MODULES[exporter])
    except ImportError:
        raise TracingUnavailable(
            f"tracing.exporter: {exporter} needs packages that are not installed: pip install 'taskgate[tracing]'"
        ) from None
