"""Families become series here: closed label sets are enforced, and counting costs one look-up.

What is counted is none of this module's business. Holds: a family never has more series than its label sets allow, and
what peers invent costs neither a series nor memory. For one thread, but for `Registry.render`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.exposition import choose_encoder

from taskgate.telemetry.catalogue import ISSUER, MAX_TOOLS, OTHER, OVERFLOWS, TOOL, UPSTREAM, Family

Metric = TypeVar("Metric", Counter, Gauge, Histogram)
Folded = Callable[[str], None]
"""Told the name of a label whose value became `_OTHER`."""

_LONGEST_TOOL: Final = 128
"""A longer name only makes every scrape longer."""


class Series(dict[tuple[Any, ...], Metric]):
    """The series of one family, by the values that facts carry; any tuple of the right length has one."""

    def __init__(self, metric: Metric, domains: tuple["_Domain", ...]) -> None:
        super().__init__()
        self._metric: Metric = metric
        self._domains = domains

    def __missing__(self, values: tuple[Any, ...]) -> Metric:
        texts = [domain.text(value) for domain, value in zip(self._domains, values, strict=True)]
        series = self._metric.labels(*(text or "" for text in texts)) if texts else self._metric
        # A value outside its set is no key: a peer could invent them without end. `_OTHER` itself is one value.
        if all(text is not OTHER or value is OTHER for text, value in zip(texts, values, strict=True)):
            self[values] = series
        return series


class _Domain:
    """The values of one label; without a set, the gateway itself chooses them."""

    def __init__(self, name: str, texts: Mapping[Any, str] | None, folded: Folded) -> None:
        self._name = name
        self._texts = texts
        self._folded = folded

    def text(self, value: Any) -> str:
        if self._texts is None:
            return str(value)
        text = self._texts.get(value)
        if text is None:
            self._folded(self._name)
            return OTHER
        return text


class ToolNames:
    """The tools that have a label of their own: the first `MAX_TOOLS` that were called at each mount."""

    def __init__(self, mounts: Iterable[str], folded: Folded) -> None:
        self._folded = folded
        self._names: dict[str, set[str]] = {mount: set() for mount in mounts}

    def label(self, mount: str, tool: str | None) -> str:
        """The label of a tool, None being one that no list named. A name too many, or unfit, counts as overflow."""
        names = self._names.get(mount)
        if tool is None or names is None:
            return OTHER
        if tool in names:
            return tool
        if len(names) >= MAX_TOOLS or len(tool) > _LONGEST_TOOL or not tool.isprintable():
            self._folded(TOOL.name)
            return OTHER
        names.add(tool)
        return tool


class Registry:
    """Opens families over collectors of its own.

    `upstreams` maps the mounts that facts name to their labels; `issuers` are names that are their own labels.
    """

    def __init__(self, upstreams: Mapping[str, str], issuers: Collection[str] = ()) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.collectors = CollectorRegistry()
        self._upstreams = dict(upstreams)
        # A token without an issuer is nothing strange, so `_OTHER` as such is no overflow.
        self._issuers = {name: name for name in (*issuers, OTHER)}
        self._overflows: Series[Counter] = self.counter(OVERFLOWS)

    def folded(self, label: str) -> None:
        """Count a value that became `_OTHER`."""
        self._overflows[label,].inc()

    def counter(self, family: Family) -> Series[Counter]:
        """The series of a counter."""
        return self._series(Counter(*_head(family), registry=self.collectors), family)

    def gauge(self, family: Family) -> Series[Gauge]:
        """The series of a gauge."""
        return self._series(Gauge(*_head(family), registry=self.collectors), family)

    def histogram(self, family: Family) -> Series[Histogram]:
        """The series of a histogram."""
        metric = Histogram(*_head(family), registry=self.collectors, buckets=family.buckets)
        return self._series(metric, family)

    def tools(self) -> ToolNames:
        """A fresh table of tools."""
        return ToolNames(self._upstreams, self.folded)

    def render(self, accept: str | None) -> tuple[bytes, str]:
        """All series and their content type: OpenMetrics for whoever accepts it, else the older text format."""
        try:
            encode, content_type = choose_encoder(accept or "")
        except (TypeError, ValueError):  # a version that is no version
            encode, content_type = choose_encoder("")
        return encode(self.collectors), content_type

    def _series(self, metric: Metric, family: Family) -> Series[Metric]:
        ours = {UPSTREAM.name: self._upstreams, ISSUER.name: self._issuers}
        values = [ours.get(label.name, label.values) for label in family.labels]
        domains = [_Domain(label.name, texts, self.folded) for label, texts in zip(family.labels, values, strict=True)]
        series = Series(metric, tuple(domains))
        if family.labels in ((UPSTREAM,), (ISSUER,)):
            for value in ours[family.labels[0].name]:
                if value is not OTHER:
                    series[value,]  # a counter that starts with its first event hides that event from `rate()`
        return series


def _head(family: Family) -> tuple[str, str, tuple[str, ...]]:
    return family.name, family.meaning, tuple(label.name for label in family.labels)
