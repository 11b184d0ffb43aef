"""Metric families: `Family`, and how many series one may have (`SeriesLimits`, `SeriesBudget`)."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

from taskgate.telemetry.metrics.labels import HISTOGRAM_TOOL, TENANT, TOOL, Label
from taskgate.telemetry.metrics.settings import MetricsSettings

Values = tuple[Any, ...]
"""The values for the labels of one series, in their order, as events carry them."""


class FamilyKind(StrEnum):
    """The types of families in use."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesLimits:
    """The series that a family may have for each value of its first label.

    `MetricChildren` enforces the limits. `initial` and `reserved` name series by the values of the
    labels behind the first one.
    - `initial`: series that exist from the start, with 0
    - `reserved`: series that are not limited; they exist once they count something
    - `own`: further series for each value of the first label; None means no limit beside the sets
    - `shared`: further series after that, for all values of the first label together
    - `own_per_tool`, `shared_per_tool`: additions for each tool that gets a label
    - `own_if_store_shared`: an addition if gateways share the store

    In a series beyond that, all labels but the first become `_OTHER`. Empty ones stay empty, since
    an empty label means that nothing failed or that there is no such thing.
    """

    initial: frozenset[Values] = frozenset()
    reserved: frozenset[Values] = frozenset()
    own: int | None = None
    own_per_tool: int = 0
    own_if_store_shared: int = 0
    shared: int = 0
    shared_per_tool: int = 0


class SeriesBudget(NamedTuple):
    """The series of a family beside the unlimited ones, `own` and `shared` as in `SeriesLimits`."""

    own: int
    shared: int


UNKNOWN_BUDGET: Final = SeriesBudget(own=2, shared=0)
"""The budget of the first label's value `_OTHER`, if that stands for an unknown name."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Family:
    """A metric family, as the modules of metrics declare it; its series are in `MetricChildren`.

    `name` is whole, with its suffix. `buckets` are upper bounds without +Inf.
    """

    name: str
    kind: FamilyKind
    meaning: str
    labels: tuple[Label, ...] = ()
    buckets: tuple[float, ...] = ()
    limits: SeriesLimits = SeriesLimits()

    def budget(self, settings: MetricsSettings) -> SeriesBudget | None:
        """The budget with the tools and tenants of these settings; None if it has no limit."""
        limits = self.limits
        if limits.own is None:
            return None
        tools = settings.histogram_tools if HISTOGRAM_TOOL in self.labels else settings.counter_tools
        tenants = tenant_values(settings) if TENANT in self.labels else 1
        own = limits.own + limits.own_per_tool * tools
        own += limits.own_if_store_shared if settings.shares_store else 0
        shared = limits.shared + limits.shared_per_tool * tools
        return SeriesBudget(own * tenants, shared * tenants)

    def buckets_with(self, settings: MetricsSettings) -> tuple[float, ...]:
        """The upper bounds by these settings."""
        return settings.buckets.get(self.name, self.buckets)

    def must_restart(self, before: MetricsSettings, after: MetricsSettings) -> bool:
        """Whether a change of settings changes what its series mean, so that they restart at 0.

        That is so with other buckets, other tenants, fewer tools, and tools for the first time.
        """
        if self.buckets_with(before) != self.buckets_with(after):
            return True
        if TOOL in self.labels and _loses_tools(before.counter_tools, after.counter_tools):
            return True
        if HISTOGRAM_TOOL in self.labels and _loses_tools(before.histogram_tools, after.histogram_tools):
            return True
        return TENANT in self.labels and before.tenants != after.tenants


def tenant_values(settings: MetricsSettings) -> int:
    """The number of values of the label `tenant`, with the empty one and `_OTHER`."""
    return 1 if settings.tenants is None else len(settings.tenants) + 2


def _loses_tools(before: int, after: int) -> bool:
    """Whether tools lose their label, or the label appears at all."""
    return after < before or (before == 0) is not (after == 0)


def counter(name: str, meaning: str, *labels: Label, limits: SeriesLimits = SeriesLimits()) -> Family:
    """A counter: a number of events."""
    return Family(name=name, kind=FamilyKind.COUNTER, meaning=meaning, labels=labels, limits=limits)


def gauge(name: str, meaning: str, *labels: Label, limits: SeriesLimits = SeriesLimits()) -> Family:
    """A gauge: a present value."""
    return Family(name=name, kind=FamilyKind.GAUGE, meaning=meaning, labels=labels, limits=limits)


def histogram(
    name: str, meaning: str, buckets: tuple[float, ...], *labels: Label, limits: SeriesLimits = SeriesLimits()
) -> Family:
    """A histogram: the duration or size of events."""
    return Family(name=name, kind=FamilyKind.HISTOGRAM, meaning=meaning, labels=labels, buckets=buckets, limits=limits)


def from_start(*values: Values, own: int | None = None) -> SeriesLimits:
    """Limits with these initial series."""
    return SeriesLimits(initial=frozenset(values), own=own)


FROM_START: Final = from_start(())
"""The limits of a family with one label: the series of each value exists from the start."""
