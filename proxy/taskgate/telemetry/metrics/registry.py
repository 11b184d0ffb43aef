"""All families of one gateway: opened over collectors of their own, and adopting each configuration.

What must not live here: what is counted, and how a page of it is written (`exposition`). For one thread, but for
`write`.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, disable_created_metrics
from prometheus_client.metrics_core import Metric as Page

from taskgate.telemetry.metrics.bounds import bounds_of, space
from taskgate.telemetry.metrics.catalogue import FAMILIES
from taskgate.telemetry.metrics.counting import Count, Level, Times
from taskgate.telemetry.metrics.exposition import Rest, written
from taskgate.telemetry.metrics.families import Family, FamilyKind, Values
from taskgate.telemetry.metrics.labels import (
    EXTENSION,
    ISSUER,
    METHOD,
    OTHER,
    POLICY,
    SINK,
    TENANT,
    TIMED_TOOL,
    TOOL,
    UPSTREAM,
    Label,
)
from taskgate.telemetry.metrics.message_families import OVERFLOWS
from taskgate.telemetry.metrics.names import Domain, LabelValues, Tenants, ToolNames
from taskgate.telemetry.metrics.series import Metric, Series
from taskgate.telemetry.metrics.settings import Configured, MetricsSettings

Look = Callable[[], Mapping[Values, float]]
"""Asked for what a gauge is to show, by what stands for its labels."""

_log = logging.getLogger(__name__)


class Registry:
    """Opens families; the configured names are those that `adopt` was told last."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.standard = CollectorRegistry()
        # What is true over all upstreams names none. A token without an issuer is nothing strange, so `_OTHER` as such
        # is no overflow.
        self._names = {
            UPSTREAM: LabelValues({None: ""}),
            ISSUER: LabelValues({OTHER: OTHER}),
            POLICY: LabelValues({}),
            SINK: LabelValues({}),
            EXTENSION: LabelValues(EXTENSION.values or {}),
            METHOD: LabelValues(METHOD.values or {}),
        }
        self._settings = MetricsSettings()
        self._families: dict[Family, Series[Any]] = {}
        self._looks: dict[Family, Look] = {}
        self._overflows: Series[Count] = self.counter(OVERFLOWS)
        self.tools = ToolNames(self._names[UPSTREAM].texts, self._fold)
        self.tenants = Tenants()

    def adopt(self, configured: Configured) -> None:
        """Take these names and settings from now on.

        A family of which the buckets changed, or what its labels may say, begins again as after a restart.
        """
        before, self._settings = self._settings, configured.settings
        self._names[UPSTREAM].adopt(configured.upstreams)
        for label, names in (
            (ISSUER, configured.issuers),
            (POLICY, configured.policies),
            (SINK, configured.sinks),
            (EXTENSION, configured.extensions),
            (METHOD, configured.methods),
        ):
            self._names[label].adopt({name: name for name in names})
        self.tools.adopt(configured.settings)
        self.tenants.adopt(configured.settings)
        for family, series in self._families.items():
            if _begins_again(family, before, configured.settings):
                series.restart(self._times_of(family) if family.kind is FamilyKind.HISTOGRAM else Count)
            series.hold(space(family, configured.settings))
            series.point(configured.settings.exemplars)
            series.forget_the_gone()
            self._start(family, series)

    def counter(self, family: Family) -> Series[Count]:
        """The series of a counter."""
        return self._open(Count, family)

    def gauge(self, family: Family) -> Series[Level]:
        """The series of a gauge."""
        series = self._open(Level, family)
        series.lose(Level())
        return series

    def histogram(self, family: Family) -> Series[Times]:
        """The series of a histogram."""
        return self._open(self._times_of(family), family)

    def watch(self, family: Family, look: Look) -> None:
        """Let a gauge show what `look` says, at each scrape."""
        if family not in self._families:
            self.gauge(family)
        self._looks[family] = look

    def look(self) -> None:
        """Ask for whatever is only asked for at a scrape. Never raises."""
        for family, look in self._looks.items():
            try:
                self._families[family].show(look())
            except Exception:
                _log.exception("a gauge was not read", extra={"family": family.name})

    def write(self, accept: str | None, rest: Rest) -> tuple[bytes, str]:
        """All series as a scrape wants them, and their content type; `rest` is called between two pieces of work."""
        return written(self._pages(), accept, rest)

    def _pages(self) -> Iterator[Page]:
        yield from self.standard.collect()
        for family in FAMILIES:
            if family in self._families:
                yield from self._families[family].pages()

    def _fold(self, label: str) -> None:
        self._overflows[label,].inc()

    def _times_of(self, family: Family) -> Callable[[], Times]:
        return partial(Times, bounds_of(family, self._settings))

    def _open(self, make: Callable[[], Metric], family: Family) -> Series[Metric]:
        series = Series(family, make, tuple(self._domain(label) for label in family.labels), self._fold)
        series.hold(space(family, self._settings))
        self._families[family] = series
        self._start(family, series)
        return series

    def _domain(self, label: Label) -> Domain:
        names = self._names.get(label)
        if names is None:
            return Domain(label.name, label.values, (), self._fold)
        return Domain(label.name, names.texts, names.gone, self._fold)

    def _start(self, family: Family, series: Series[Any]) -> None:
        """A counter that starts with its first event hides that event from `rate()`."""
        if family.room.begins:
            first = family.labels[0]
            present = self._names[first].present() if first in self._names else first.values or ()
            for value in present:
                for rest in family.room.begins:
                    series[value, *rest]


def _begins_again(family: Family, before: MetricsSettings, now: MetricsSettings) -> bool:
    if bounds_of(family, before) != bounds_of(family, now):
        return True
    if TOOL in family.labels and _fewer(before.named_tools, now.named_tools):
        return True
    if TIMED_TOOL in family.labels and _fewer(before.timed_tools, now.timed_tools):
        return True
    return TENANT in family.labels and before.tenants != now.tenants


def _fewer(before: int, now: int) -> bool:
    """Whether labels that there were may be none any more, or there were none at all."""
    return now < before or (before == 0) is not (now == 0)
