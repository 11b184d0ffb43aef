"""Section `tracing`: traces by OpenTelemetry.

Whether the packages of the extra `tracing` are installed is checked where a gateway starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal
from urllib.parse import urlsplit

from taskgate.config.addresses import Url
from taskgate.config.fields import Flag, Section
from taskgate.config.raw import Conflict, mapping_at
from taskgate.config.units import NumberIn
from taskgate.telemetry.opentelemetry.settings import Exporter, TracingSettings

_ENDPOINT = ("tracing", "endpoint")


class TracingSection(Section):
    """Traces of requests and calls, by OpenTelemetry. A change takes effect with a restart."""

    enabled: Flag = False
    """Whether traces are recorded. The packages of the extra `tracing` have to be installed."""
    exporter: Literal["otlp_http", "otlp_grpc", "console"] = "otlp_http"
    """Where spans are sent: to a collector by OTLP over HTTP or gRPC, or to standard error, one
    line of JSON for each span.
    """
    endpoint: Url | None = None
    """The URL of the collector; for otlp_http one without a path means /v1/traces.

    null leaves it to the variables OTEL_EXPORTER_OTLP_*, and without them to port 4318 (HTTP) or
    4317 (gRPC) here.
    """
    sample_ratio: Annotated[float, NumberIn(least=0, most=1)] = 0.1
    """The share of traces that is recorded, of those that begin at the gateway. A span of an
    existing trace follows the decision of that trace.
    """
    trust_incoming: Flag = True
    """Whether a request continues the trace that its host names; otherwise it begins one that links
    to the host's.
    """
    record_arguments: Flag = False
    """Whether spans of tools/call hold the arguments as received, up to 8192 characters."""

    def to_settings(self) -> TracingSettings | None:
        """Return the settings of tracing, None where it is off."""
        if not self.enabled:
            return None
        return TracingSettings(
            exporter=Exporter(self.exporter),
            endpoint=self.endpoint,
            sample_ratio=self.sample_ratio,
            trusts=self.trust_incoming,
            records_arguments=self.record_arguments,
        )


def tracing_conflicts(raw: object) -> Iterator[Conflict]:
    """Find endpoints that the exporter cannot use."""
    tracing = mapping_at(raw, "tracing")
    endpoint, exporter = tracing.get("endpoint"), tracing.get("exporter")
    if exporter == "console" and endpoint is not None:
        yield _ENDPOINT, "must be null with tracing.exporter console"
    if exporter == "otlp_grpc" and isinstance(endpoint, str) and _has_path(endpoint):
        yield _ENDPOINT, "must have no path with tracing.exporter otlp_grpc"


def _has_path(endpoint: str) -> bool:
    try:
        parts = urlsplit(endpoint)
    except ValueError:
        return False
    return bool(parts.path.strip("/") or parts.query)
