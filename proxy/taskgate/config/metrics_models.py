"""The configuration of what is counted: the section `metrics` with types, defaults and bounds.

What must not live here: rules between keys (metrics_coherence), what metrics make of it (measuring).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isfinite
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from taskgate.config.fields import ONCE_EACH, Flag, Section, Text
from taskgate.listener.operations import TAKEN
from taskgate.telemetry.metrics.catalogue import FAMILIES, FamilyKind

_PATH: Final = r"^(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+$"
_LONGEST_PATH: Final = 256
_MOST_BUCKETS: Final = 50
_HISTOGRAMS: Final = tuple(family.name for family in FAMILIES if family.kind is FamilyKind.HISTOGRAM)


def _path(written: object) -> str:
    if not isinstance(written, str) or len(written) > _LONGEST_PATH or not re.fullmatch(_PATH, written):
        raise ValueError("must be a path such as /metrics, of letters, digits and . _ ~ -")
    if any(written == taken or written.startswith(f"{taken}/") for taken in TAKEN):
        raise ValueError(f"must not be {', '.join(TAKEN[:-1])} or {TAKEN[-1]}, nor below one of them")
    return written


def _family(written: str) -> str:
    if written not in _HISTOGRAMS:
        raise ValueError("must be the name of a histogram: taskgate metrics lists them")
    return written


def _bounds(written: object) -> tuple[float, ...]:
    numbers = [each for each in written if _is_bound(each)] if isinstance(written, list | tuple) else []
    if not numbers or len(numbers) != len(written) or numbers != sorted(set(numbers)):  # type: ignore[arg-type]
        raise ValueError("must be numbers above 0, each greater than the one before it")
    if len(numbers) > _MOST_BUCKETS:
        raise ValueError(f"must be at most {_MOST_BUCKETS} numbers")
    return tuple(map(float, numbers))


def _is_bound(written: object) -> bool:
    return isinstance(written, int | float) and not isinstance(written, bool) and isfinite(written) and written > 0


_Path = Annotated[str, BeforeValidator(_path), WithJsonSchema({"type": "string", "pattern": _PATH})]
_Histogram = Annotated[str, AfterValidator(_family)]
_Number = {"type": "number", "exclusiveMinimum": 0}
_BOUNDS_SCHEMA = {"type": "array", "items": _Number, "minItems": 1, "maxItems": _MOST_BUCKETS, "uniqueItems": True}
_Bounds = Annotated[tuple[float, ...], BeforeValidator(_bounds), WithJsonSchema(_BOUNDS_SCHEMA)]


class MetricsSection(Section):
    """What is counted for operators, and where they find it."""

    enabled: Flag = True
    """Whether anything is counted and shown."""
    path: _Path = "/metrics"
    """Where on the admin listener."""
    tool_label: Flag = True
    """Whether counters of calls name the tool."""
    tool_histograms: Flag = False
    """Whether mcp_server_operation_duration_seconds names it too, which is several hundred series an upstream."""
    max_tools: Annotated[int, Field(strict=True, ge=1, le=1000)] = 50
    """How many tools of one upstream are named: the first that are called. All others are _OTHER."""
    tenant_label: Flag = False
    """Whether counters of calls and of tasks name the caller's tenant."""
    tenants: Annotated[tuple[Text, ...], *ONCE_EACH] = ()
    """The tenants that are named; all others are _OTHER."""
    exemplars: Flag = True
    """Whether times point at a trace that is an example of them, for scrapers that accept OpenMetrics."""
    buckets: Mapping[_Histogram, _Bounds] = {}
    """Other bounds for the buckets of a histogram, by its name; +Inf is added."""
