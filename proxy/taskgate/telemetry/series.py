"""Families become series here: closed label sets are enforced, and counting costs one look-up.

What is counted is none of this module's business. Holds: a family never has more series than its label sets allow, and
what peers invent costs neither a series nor memory. Configured names come and go while it runs: of one that has gone
the counters stay, since what they counted has happened, and the gauges vanish, since nothing is so any more. For one
thread, but for `Registry.render`.
"""

from collections.abc import Callable, Collection, Container, Mapping
from typing import Any, Final, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.exposition import choose_encoder

from taskgate.telemetry.catalogue import OVERFLOWS, Family
from taskgate.telemetry.labels import ISSUER, MAX_TOOLS, OTHER, POLICY, TOOL, UPSTREAM, Label

Metric = TypeVar("Metric", Counter, Gauge, Histogram)
Folded = Callable[[str], None]
"""Told the name of a label whose value became `_OTHER`."""

Takers = dict[type[Any], Callable[[Any], None]]
"""What counts a fact, by the fact's type."""

_LONGEST_TOOL: Final = 128
"""A longer name only makes every scrape longer."""


class Series(dict[tuple[Any, ...], Metric]):
    """The series of one family, by the values that facts carry; any tuple of the right length has one.

    With `nowhere`, that is where what is said of names that have gone is lost.
    """

    def __init__(self, metric: Metric, domains: tuple["_Domain", ...], nowhere: Metric | None = None) -> None:
        super().__init__()
        self._metric: Metric = metric
        self._domains = domains
        self._nowhere: Metric | None = nowhere

    def __missing__(self, values: tuple[Any, ...]) -> Metric:
        if self._nowhere is not None and self._is_of_the_gone(values):
            return self._nowhere
        texts = [domain.text(value) for domain, value in zip(self._domains, values, strict=True)]
        series = self._metric.labels(*(text or "" for text in texts)) if texts else self._metric
        # A value outside its set is no key: a peer could invent them without end. `_OTHER` itself is one value.
        if all(text is not OTHER or value is OTHER for text, value in zip(texts, values, strict=True)):
            self[values] = series
        return series

    def forget(self, values: tuple[Any, ...]) -> None:
        """Show that series no more, until it is asked for again."""
        if self.pop(values, None) is not None:
            self._metric.remove(*(domain.text(value) for domain, value in zip(self._domains, values, strict=True)))

    def forget_the_gone(self) -> None:
        """Show what is said of names that have gone no more."""
        if self._nowhere is not None:
            for values in [values for values in self if self._is_of_the_gone(values)]:
                self.forget(values)

    def _is_of_the_gone(self, values: tuple[Any, ...]) -> bool:
        return any(value in domain.gone for domain, value in zip(self._domains, values, strict=True))


class _Domain:
    """The values of one label; without a set, the gateway itself chooses them. `gone` are those that are over."""

    def __init__(self, name: str, texts: Mapping[Any, str] | None, gone: Collection[Any], folded: Folded) -> None:
        self._name = name
        self._texts = texts
        self._folded = folded
        self.gone = gone

    def text(self, value: Any) -> str:
        if self._texts is None:
            return str(value)
        text = self._texts.get(value)
        if text is None:
            self._folded(self._name)
            return OTHER
        return text


class ToolNames:
    """The tools that have a label of their own: the first `MAX_TOOLS` that were called at each of the mounts."""

    def __init__(self, mounts: Container[str], folded: Folded) -> None:
        self._mounts = mounts
        self._folded = folded
        self._names: dict[str, set[str]] = {}

    def label(self, mount: str, tool: str | None) -> str:
        """The label of a tool, None being one that no list named. A name too many, or unfit, counts as overflow."""
        if tool is None or mount not in self._mounts:
            return OTHER
        names = self._names.setdefault(mount, set())
        if tool in names:
            return tool
        if len(names) >= MAX_TOOLS or len(tool) > _LONGEST_TOOL or not tool.isprintable():
            self._folded(TOOL.name)
            return OTHER
        names.add(tool)
        return tool


class _Names:
    """The values of a label that are configured: `texts` of all that ever were, and which of them are `gone`."""

    def __init__(self, fixed: Mapping[Any, str]) -> None:
        self._fixed = frozenset(fixed)
        self.texts: dict[Any, str] = dict(fixed)
        self.gone: set[Any] = set()

    def adopt(self, texts: Mapping[Any, str]) -> None:
        """These are the configured ones from now on."""
        self.texts.update(texts)
        self.gone.clear()
        self.gone.update(self.texts.keys() - texts.keys() - self._fixed)

    def present(self) -> list[Any]:
        """Those that are configured now."""
        return [value for value in self.texts if value not in self.gone and value not in self._fixed]


class Registry:
    """Opens families over collectors of its own; the configured names are those that `adopt` was told last."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.collectors = CollectorRegistry()
        # What is true over all upstreams names none. A token without an issuer is nothing strange, so `_OTHER` as such
        # is no overflow.
        self._upstreams, self._issuers, self._policies = _Names({None: ""}), _Names({OTHER: OTHER}), _Names({})
        self._names = {UPSTREAM.name: self._upstreams, ISSUER.name: self._issuers, POLICY.name: self._policies}
        self._families: list[tuple[Family, Series[Any]]] = []
        self._overflows: Series[Counter] = self.counter(OVERFLOWS)

    def adopt(self, upstreams: Mapping[str, str], issuers: Collection[str], policies: Collection[str]) -> None:
        """Take these names for the configured ones from now on.

        `upstreams` maps the mounts that facts name to their labels; issuers and policies are their own labels.
        """
        self._upstreams.adopt(upstreams)
        self._issuers.adopt({name: name for name in issuers})
        self._policies.adopt({name: name for name in policies})
        for family, series in self._families:
            series.forget_the_gone()
            self._start(family, series)

    def folded(self, label: str) -> None:
        """Count a value that became `_OTHER`."""
        self._overflows[label,].inc()

    def counter(self, family: Family) -> Series[Counter]:
        """The series of a counter."""
        return self._series(Counter(*_head(family), registry=self.collectors), family)

    def gauge(self, family: Family) -> Series[Gauge]:
        """The series of a gauge."""
        nowhere = Gauge("nowhere", "What is lost.", registry=None)
        return self._series(Gauge(*_head(family), registry=self.collectors), family, nowhere)

    def histogram(self, family: Family) -> Series[Histogram]:
        """The series of a histogram."""
        metric = Histogram(*_head(family), registry=self.collectors, buckets=family.buckets)
        return self._series(metric, family)

    def tools(self) -> ToolNames:
        """A fresh table of tools."""
        return ToolNames(self._upstreams.texts, self.folded)

    def render(self, accept: str | None) -> tuple[bytes, str]:
        """All series and their content type: OpenMetrics for whoever accepts it, else the older text format."""
        try:
            encode, content_type = choose_encoder(accept or "")
        except (TypeError, ValueError):  # a version that is no version
            encode, content_type = choose_encoder("")
        return encode(self.collectors), content_type

    def _series(self, metric: Metric, family: Family, nowhere: Metric | None = None) -> Series[Metric]:
        series = Series(metric, tuple(self._domain(label) for label in family.labels), nowhere)
        self._families.append((family, series))
        self._start(family, series)
        return series

    def _domain(self, label: Label) -> _Domain:
        # What is configured has no set in the catalogue; a label of the same name that has one is another.
        names = None if label.values is not None else self._names.get(label.name)
        if names is None:
            return _Domain(label.name, label.values, (), self.folded)
        return _Domain(label.name, names.texts, names.gone, self.folded)

    def _start(self, family: Family, series: Series[Metric]) -> None:
        """A counter that starts with its first event hides that event from `rate()`."""
        if family.starts and len(family.labels) == 1 and family.labels[0] in (UPSTREAM, ISSUER):
            for value in self._names[family.labels[0].name].present():
                series[value,]


def _head(family: Family) -> tuple[str, str, tuple[str, ...]]:
    return family.name, family.meaning, tuple(label.name for label in family.labels)
