"""The catalogue of metric families, in the order of `docs/metrics.md`, and how many series they can have.

The bound follows from the families, the sets of their labels and a configuration. `MetricChildren`
enforces it: nothing that peers send makes more series.
"""

from math import prod
from typing import Final

from taskgate.telemetry.metrics import admission, gateway, labels, requests, storage, tasks, upstreams
from taskgate.telemetry.metrics.families import UNKNOWN_BUDGET, Family, FamilyKind, tenant_values
from taskgate.telemetry.metrics.labels import Label
from taskgate.telemetry.metrics.settings import MetricsConfig

__all__ = ["FAMILIES", "MANY_SERIES", "PARTS", "STANDARD_SERIES", "Family", "FamilyKind", "most_series", "series_bound"]

PARTS: Final = {
    "The process": gateway.FAMILIES,
    "Messages": requests.FAMILIES,
    "Upstreams": upstreams.FAMILIES,
    "Tasks": tasks.FAMILIES,
    "Limits": admission.LIMIT_FAMILIES,
    "Who may do what": admission.ACCESS_FAMILIES,
    "The store": storage.STORE_FAMILIES,
    "The audit log": storage.AUDIT_FAMILIES,
}
"""The families by the headings of the page."""

FAMILIES: Final = tuple(family for part in PARTS.values() for family in part)

# --- the number of series --------------------------------------------------------------------------------------------

STANDARD_SERIES: Final = 20
"""The series about the process and the interpreter; slightly more than there are."""

MANY_SERIES: Final = 10_500
"""Series of one gateway above which `check` warns: scraping them takes a tenth of a second."""

_OWN_LABELS: Final = (labels.VERSION, labels.BACKEND)
"""Labels with a single value, which the gateway chooses."""

_COMPLETE_LABELS: Final = (labels.STORE_FAULT,)
"""Labels that only ever have a value of their set, and so no `_OTHER`."""


def series_bound(config: MetricsConfig) -> int:
    """The most series that a gateway can have; counters of names that are gone come on top."""
    return STANDARD_SERIES + sum(most_series(family, config) for family in FAMILIES)


def most_series(family: Family, config: MetricsConfig) -> int:
    """The most samples of a family in a scrape, with one for each bucket of a histogram."""
    buckets = family.buckets_with(config.settings)
    return _most_children(family, config) * (len(buckets) + 3 if buckets else 1)


def _most_children(family: Family, config: MetricsConfig) -> int:
    if not family.labels:
        return 1
    firsts = _first_values(family, config)
    if not firsts and family in (upstreams.CREDENTIALS, *upstreams.PROGRAM_FAMILIES):
        # No upstream can count in it, an unknown one neither.
        return 0
    combinations = prod(_values(label, config) for label in family.labels[1:])
    overflows = prod(_overflow_values(label, config) for label in family.labels[1:])
    unknown = min(combinations, UNKNOWN_BUDGET.own + overflows) if family.labels[0] not in _OWN_LABELS else 0
    budget = family.budget(config.settings)
    if budget is None:
        return firsts * combinations + unknown
    unlimited = len(family.limits.initial | family.limits.reserved)
    return min(firsts * combinations, firsts * (unlimited + budget.own + overflows) + budget.shared) + unknown


def _first_values(family: Family, config: MetricsConfig) -> int:
    """The number of values of the first label, without `_OTHER`."""
    if family is upstreams.CREDENTIALS:
        return len(config.token_users)
    if family in upstreams.PROGRAM_FAMILIES:
        return len(config.programs)
    label = family.labels[0]
    if label.values is not None:
        return len(label.values)
    configured = {
        labels.UPSTREAM: len(set(config.upstreams.values())),
        # With `_OTHER`, by which a token of an unknown issuer counts.
        labels.ISSUER: len(config.issuers) + 1,
        labels.POLICY: len(config.policies),
        labels.SINK: len(config.sinks),
    }
    return configured.get(label, 1)


def _values(label: Label, config: MetricsConfig) -> int:
    """The number of values of a label that is not the first, with `_OTHER`."""
    settings = config.settings
    if label.values is not None:
        configured = {labels.EXTENSION: config.extensions, labels.METHOD: config.methods}.get(label, ())
        return len(label.values.keys() | configured) + (label not in _COMPLETE_LABELS)
    if label is labels.UPSTREAM:
        return len(set(config.upstreams.values())) + 2
    if label is labels.TOOL:
        return settings.counter_tools + 1
    if label is labels.HISTOGRAM_TOOL:
        return settings.histogram_tools + 2 if settings.histogram_tools else 1
    return tenant_values(settings) if label is labels.TENANT else 1


def _overflow_values(label: Label, config: MetricsConfig) -> int:
    """The number of values of a label in series beyond the budget: `_OTHER`, and empty if it may be that."""
    if label is labels.HISTOGRAM_TOOL:
        return 2 if config.settings.histogram_tools else 1
    if label is labels.TENANT:
        return 1 if config.settings.tenants is None else 2
    return 2 if label.values is not None and "" in label.values.values() else 1
