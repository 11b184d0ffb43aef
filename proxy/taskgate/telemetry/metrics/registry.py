"""The `Registry` of one gateway: opens families, adopts configurations, and writes the page.

A family opens as `MetricChildren`, by which recorders count. Only `write` may run on a thread
other than the event loop's.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from prometheus_client import CollectorRegistry, disable_created_metrics
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Page
from prometheus_client.registry import Collector

from taskgate.telemetry.metrics import labels
from taskgate.telemetry.metrics.children import PIECE, Child, Counter, Exemplars, Gauge, Histogram, MetricChildren
from taskgate.telemetry.metrics.families import Family, FamilyKind, Values, counter, from_start
from taskgate.telemetry.metrics.labels import ConfiguredValues, Label, LabelSet, TenantLabels, ToolLabels
from taskgate.telemetry.metrics.settings import MetricsConfig, MetricsSettings

Recorders = dict[type[Any], Callable[[Any], None]]
"""The function that counts an event, by the type of the event."""

ReadGauge = Callable[[], Mapping[Values, float]]
"""A function that returns the present values of a gauge family."""

Pause = Callable[[], None]
"""A function that is called between two pieces of the page."""

OVERFLOWS: Final = counter(
    "taskgate_metrics_label_overflows_total",
    "Values that became `_OTHER`, by label.",
    labels.LABEL,
    limits=from_start(()),
)

_log = logging.getLogger(__name__)


class Registry:
    """The open families, and the label values that are configured now.

    `families` is the order of the page. `standard` has the collectors of the Prometheus library, for
    the process and the interpreter. `tools`, `tenants` and `exemplars` are for recorders.
    """

    def __init__(self, families: Iterable[Family]) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.standard = CollectorRegistry()
        self._order = tuple(families)
        # The limits over all upstreams name none. A token without an issuer is nothing unusual, so its `_OTHER` is
        # a fixed value and no overflow.
        self._configured = {
            labels.UPSTREAM: ConfiguredValues({None: ""}),
            labels.ISSUER: ConfiguredValues({labels.OTHER: labels.OTHER}),
            labels.POLICY: ConfiguredValues({}),
            labels.SINK: ConfiguredValues({}),
            labels.EXTENSION: ConfiguredValues(labels.EXTENSION.values or {}),
            labels.METHOD: ConfiguredValues(labels.METHOD.values or {}),
        }
        self._settings = MetricsSettings()
        self._families: dict[Family, MetricChildren[Any]] = {}
        self._reads: dict[Family, ReadGauge] = {}
        self._overflows: MetricChildren[Counter] = self.counter(OVERFLOWS)
        self.tools = ToolLabels(self._configured[labels.UPSTREAM].texts, self._count_overflow)
        self.tenants = TenantLabels()
        self.exemplars = Exemplars()

    def adopt(self, config: MetricsConfig) -> None:
        """Use these names and settings from now on.

        A family restarts at 0 if its buckets change, or what its labels may say.
        """
        before, self._settings = self._settings, config.settings
        self._configured[labels.UPSTREAM].adopt(config.upstreams)
        for label, names in (
            (labels.ISSUER, config.issuers),
            (labels.POLICY, config.policies),
            (labels.SINK, config.sinks),
            (labels.EXTENSION, config.extensions),
            (labels.METHOD, config.methods),
        ):
            self._configured[label].adopt({name: name for name in names})
        self.tools.adopt(config.settings)
        self.tenants.adopt(config.settings)
        self.exemplars.adopt(config.settings)
        for family, children in self._families.items():
            if family.must_restart(before, config.settings):
                children.restart(self._histogram_of(family) if family.kind is FamilyKind.HISTOGRAM else Counter)
            children.limit(family.budget(config.settings))
            children.show_exemplars(config.settings.exemplars)
            children.remove_gone()
            self._add_initial(family, children)

    def counter(self, family: Family) -> MetricChildren[Counter]:
        """Open a counter family."""
        return self._open(Counter, family)

    def gauge(self, family: Family) -> MetricChildren[Gauge]:
        """Open a gauge family."""
        children = self._open(Gauge, family)
        children.discard_gone(Gauge())
        return children

    def histogram(self, family: Family) -> MetricChildren[Histogram]:
        """Open a histogram family."""
        return self._open(self._histogram_of(family), family)

    def watch(self, family: Family, read: ReadGauge) -> None:
        """Let a gauge family show what `read` returns at each scrape."""
        if family not in self._families:
            self.gauge(family)
        self._reads[family] = read

    def read_gauges(self) -> None:
        """Read the watched gauges, before a scrape. Does not raise."""
        for family, read in self._reads.items():
            try:
                self._families[family].replace(read())
            except Exception:
                _log.exception("a gauge was not read", extra={"family": family.name})

    def write(self, accept: str | None, pause: Pause) -> tuple[bytes, str]:
        """The page and its content type; `accept` is the header of the scraper."""
        return write_pages(self._pages(), accept, pause)

    def _pages(self) -> Iterator[Page]:
        yield from self.standard.collect()
        for family in self._order:
            if family in self._families:
                yield from self._families[family].pages()

    def _count_overflow(self, label: str) -> None:
        self._overflows[label,].inc()

    def _histogram_of(self, family: Family) -> Callable[[], Histogram]:
        return partial(Histogram, family.buckets_with(self._settings))

    def _open(self, make: Callable[[], Child], family: Family) -> MetricChildren[Child]:
        label_sets = tuple(self._label_set(label) for label in family.labels)
        children = MetricChildren(family, make, label_sets, self._count_overflow)
        children.limit(family.budget(self._settings))
        self._families[family] = children
        self._add_initial(family, children)
        return children

    def _label_set(self, label: Label) -> LabelSet:
        configured = self._configured.get(label)
        if configured is None:
            return LabelSet(label.name, label.values, (), self._count_overflow)
        return LabelSet(label.name, configured.texts, configured.gone, self._count_overflow)

    def _add_initial(self, family: Family, children: MetricChildren[Any]) -> None:
        """Add the initial series: `rate()` does not see the event that creates a counter."""
        if family.limits.initial:
            first = family.labels[0]
            values = self._configured[first].configured() if first in self._configured else first.values or ()
            for value in values:
                for rest in family.limits.initial:
                    children[value, *rest]


# --- the page --------------------------------------------------------------------------------------------------------

_END: Final = b"# EOF\n"


def write_pages(pages: Iterable[Page], accept: str | None, pause: Pause) -> tuple[bytes, str]:
    """The text of all pages and its content type: OpenMetrics if `accept` allows it, else text 0.0.4.

    A family may come in several pages that follow each other. `pause` is called after each piece of
    about a millisecond, so that a writing thread can leave the interpreter to others.
    """
    try:
        encode, content_type = choose_encoder(accept or "")
    except (TypeError, ValueError):  # an invalid version parameter
        encode, content_type = choose_encoder("")
    texts: list[bytes] = []
    family, end, samples = None, b"", 0
    for page in pages:
        text = encode(_OnePage(page))
        if text.endswith(_END):
            text, end = text.removesuffix(_END), _END
        texts.append(text if page.name != family else _without_head(text))
        family = page.name
        samples += len(page.samples)
        if samples >= PIECE:
            samples = 0
            pause()
    return b"".join((*texts, end)), content_type


class _OnePage(Collector):
    """A collector of one page, for the encoders of the library."""

    def __init__(self, page: Page) -> None:
        self._page = page

    def collect(self) -> Iterable[Page]:
        return (self._page,)


def _without_head(text: bytes) -> bytes:
    """A page without HELP and TYPE, which its family has already."""
    while text.startswith(b"# "):
        _, _, text = text.partition(b"\n")
    return text
