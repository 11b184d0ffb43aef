"""Sections `logging`, `metrics` and `tracing`: what operators see of a gateway.

Whether the packages of the extra `tracing` are installed is checked where a gateway starts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from taskgate.config.addresses import Url
from taskgate.config.fields import UNIQUE, Flag, NumberIn, Section, Text, json_pattern
from taskgate.config.problems import Conflict, mapping_at
from taskgate.config.sections.auth import has_tenants, without_tenants
from taskgate.listener.operations import TAKEN
from taskgate.telemetry.metrics.catalogue import FAMILIES, FamilyKind
from taskgate.telemetry.metrics.settings import MetricsSettings
from taskgate.telemetry.opentelemetry.settings import Exporter, TracingSettings


class LoggingSection(Section):
    """The log."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level that is logged."""
    format: Literal["auto", "json", "logfmt", "console"] = "auto"
    """The format of lines; auto means console on a terminal, with a banner at the start, and json
    elsewhere.
    """
    access: Flag = False
    """Whether each tool call has a line at info: its upstream, tool, disposition, task reference,
    status and milliseconds.
    """


_PATH: Final = r"^(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+$"
_MAX_PATH: Final = 256
_MAX_BUCKETS: Final = 50
_HISTOGRAMS: Final = tuple(family.name for family in FAMILIES if family.kind is FamilyKind.HISTOGRAM)


def _check_path(written: object) -> str:
    if not isinstance(written, str) or len(written) > _MAX_PATH or not re.fullmatch(_PATH, written):
        raise ValueError("must be a path such as /metrics, of letters, digits and . _ ~ -")
    if any(written == taken or written.startswith(f"{taken}/") for taken in TAKEN):
        raise ValueError(f"must not be {', '.join(TAKEN[:-1])} or {TAKEN[-1]}, nor below one of them")
    return written


def _check_histogram(written: str) -> str:
    if written not in _HISTOGRAMS:
        raise ValueError("must be the name of a histogram: taskgate metrics lists them")
    return written


def _read_buckets(written: object) -> tuple[float, ...]:
    numbers = [each for each in written if _is_bucket(each)] if isinstance(written, list | tuple) else []
    if not numbers or len(numbers) != len(written) or numbers != sorted(set(numbers)):  # type: ignore[arg-type]
        raise ValueError("must be numbers above 0, each greater than the one before it")
    if len(numbers) > _MAX_BUCKETS:
        raise ValueError(f"must be at most {_MAX_BUCKETS} numbers")
    return tuple(map(float, numbers))


def _is_bucket(written: object) -> bool:
    return isinstance(written, int | float) and not isinstance(written, bool) and isfinite(written) and written > 0


_Path = Annotated[str, BeforeValidator(_check_path), json_pattern(_PATH)]
_Histogram = Annotated[str, AfterValidator(_check_histogram)]
_NUMBER_SCHEMA = {"type": "number", "exclusiveMinimum": 0}
_BUCKETS_SCHEMA = {
    "type": "array",
    "items": _NUMBER_SCHEMA,
    "minItems": 1,
    "maxItems": _MAX_BUCKETS,
    "uniqueItems": True,
}
_Buckets = Annotated[tuple[float, ...], BeforeValidator(_read_buckets), WithJsonSchema(_BUCKETS_SCHEMA)]


class MetricsSection(Section):
    """Metrics for operators, and where they find them."""

    enabled: Flag = True
    """Whether metrics are counted and served."""
    path: _Path = "/metrics"
    """The path of the page on the admin listener."""
    tool_label: Flag = True
    """Whether counters of calls name the tool."""
    tool_histograms: Flag = False
    """Whether mcp_server_operation_duration_seconds names the tool too, which is several hundred
    series for each upstream.
    """
    max_tools: Annotated[int, Field(strict=True, ge=1, le=1000)] = 50
    """The number of tools of one upstream that are named: the first that are called. All others are
    _OTHER.
    """
    tenant_label: Flag = False
    """Whether counters of calls and of tasks name the caller's tenant."""
    tenants: Annotated[tuple[Text, ...], *UNIQUE] = ()
    """The tenants that are named; all others are _OTHER."""
    exemplars: Flag = True
    """Whether histograms have exemplars, which name a trace, for scrapers that accept OpenMetrics.
    """
    buckets: Mapping[_Histogram, _Buckets] = {}
    """Other bounds for the buckets of a histogram, by its name; +Inf is added."""

    def to_settings(self, *, shares_store: bool) -> MetricsSettings:
        """Return the settings of metrics; `shares_store` is true for replicas on one store."""
        return MetricsSettings(
            enabled=self.enabled,
            path=self.path,
            tool_label=self.tool_label,
            tool_histograms=self.tool_histograms,
            max_tools=self.max_tools,
            tenants=frozenset(self.tenants) if self.tenant_label else None,
            exemplars=self.exemplars,
            buckets=dict(self.buckets),
            shares_store=shares_store,
        )


def metrics_conflicts(raw: object) -> Iterator[Conflict]:
    """Find conflicts between `tenant_label`, `tenants` and the tenants of issuers."""
    metrics = mapping_at(raw, "metrics")
    tenants = metrics.get("tenants", [])
    if not isinstance(tenants, list):
        return
    if metrics.get("tenant_label") is True and not has_tenants(raw):
        yield ("metrics", "tenant_label"), f"must be false {without_tenants(raw)}"
    elif metrics.get("tenant_label") is True and not tenants:
        yield ("metrics", "tenant_label"), "must be false unless metrics.tenants names some: all would be _OTHER"
    if metrics.get("tenant_label", False) is False and tenants:
        yield ("metrics", "tenants"), "must be [] unless metrics.tenant_label is true"


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
