"""The configuration of traces: the section `tracing`, what its keys say together, and what is made of them.

What must not live here: whether the packages that it takes are installed, which is for who starts a gateway or checks a
file. What holds: as in coherence, malformed parts contradict nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal
from urllib.parse import urlsplit

from taskgate.config.addresses import Url
from taskgate.config.fields import Flag, Section
from taskgate.config.numbers import NumberIn
from taskgate.config.written import Contradiction, section
from taskgate.telemetry.opentelemetry.settings import Exporter, TracingSettings

_WHERE = ("tracing", "endpoint")


class TracingSection(Section):
    """Traces of requests and calls, by OpenTelemetry. A change takes effect with a restart."""

    enabled: Flag = False
    """Whether there are any. The packages of the extra `tracing` have to be installed."""
    exporter: Literal["otlp_http", "otlp_grpc", "console"] = "otlp_http"
    """Where they go: to a collector by OTLP over HTTP or gRPC, or to standard error, a line of JSON for each span."""
    endpoint: Url | None = None
    """The URL of the collector; for otlp_http one without a path means /v1/traces.

    null leaves it to the variables OTEL_EXPORTER_OTLP_*, and without them to port 4318 (HTTP) or 4317 (gRPC) here.
    """
    sample_ratio: Annotated[float, NumberIn(least=0, most=1)] = 0.1
    """The share of the traces that begin at the gateway which is kept. What belongs to a trace is kept as that is."""
    trust_incoming: Flag = True
    """Whether a request goes on with the trace that its host names; else it begins one, and points at the host's."""
    record_arguments: Flag = False
    """Whether the spans of tools/call hold the arguments, up to 8192 characters of them, as they came."""


def tracing_contradictions(written: object) -> Iterator[Contradiction]:
    """Every contradiction among these keys."""
    tracing = section(written, "tracing")
    endpoint, exporter = tracing.get("endpoint"), tracing.get("exporter")
    if exporter == "console" and endpoint is not None:
        yield _WHERE, "must be null with tracing.exporter console"
    if exporter == "otlp_grpc" and isinstance(endpoint, str) and _has_path(endpoint):
        yield _WHERE, "must have no path with tracing.exporter otlp_grpc"


def tracing_settings(section_: TracingSection) -> TracingSettings | None:
    """What tracing is told; None where there is none."""
    if not section_.enabled:
        return None
    return TracingSettings(
        exporter=Exporter(section_.exporter),
        endpoint=section_.endpoint,
        sample_ratio=section_.sample_ratio,
        trusts=section_.trust_incoming,
        records_arguments=section_.record_arguments,
    )


def _has_path(endpoint: str) -> bool:
    try:
        parts = urlsplit(endpoint)
    except ValueError:
        return False
    return bool(parts.path.strip("/") or parts.query)
