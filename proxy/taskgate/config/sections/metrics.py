"""Section `metrics`: what is counted for operators, and where it is served."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from taskgate.config.fields import UNIQUE, Flag, Section, Text, json_pattern
from taskgate.config.raw import Conflict, mapping_at
from taskgate.config.sections.auth import has_tenants, without_tenants
from taskgate.listener.operations import TAKEN
from taskgate.telemetry.metrics.catalogue import FAMILIES, FamilyKind
from taskgate.telemetry.metrics.settings import MetricsSettings

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
