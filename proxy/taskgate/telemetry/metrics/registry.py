"""The `Registry` of one gateway: opens metric families, and writes the exposition for a scraper.

`PrometheusRecorder` owns the registry. At the start the recorders open each family with `counter`,
`gauge` or `histogram`. They get its `MetricChildren`, and count by it while the gateway runs.
`adopt` applies each new configuration. A scrape calls `read_gauges` on the event loop, then
`write`, which alone may run on another thread.

In this module the exposition is the whole text that a scraper gets. A page is the library's
`Metric`: one family, or a part of a large one.
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

Recorders = dict[type[Any], Callable[..., None]]
"""The function that counts an event, by the type of the event; called at each such event.

The functions of frequent small events take a second argument, how often the event happened.
"""

ReadGauge = Callable[[], Mapping[Values, float]]
"""A function that returns the present values of a gauge family, by its label values."""

Pause = Callable[[], None]
"""A function that `write` calls on its thread after each piece of the exposition."""

OVERFLOWS: Final = counter(
    "taskgate_metrics_label_overflows_total",
    "Values that became `_OTHER`, by label.",
    labels.LABEL,
    limits=from_start(()),
)

_log = logging.getLogger(__name__)


class Registry:
    """The open families, and the label values that are configured now.

    `families` is the order of the exposition; a family that was not opened is left out. `standard`
    has the collectors of the Prometheus library, for the process and the interpreter. Recorders ask
    `tools` and `tenants` for label texts, and `exemplars` for the exemplar of a span.

    A name (of an upstream, issuer, policy or sink) is gone once the configuration lacks it. Its
    counters and histograms stay. Its gauges are removed, and later values for them are discarded.
    If the name returns, its gauges appear at their next value.
    """

    def __init__(self, families: Iterable[Family]) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.standard = CollectorRegistry()
        self._order = tuple(families)
        # Fixed values beside the configured names. Limits over all upstreams have the mount None, shown as empty.
        # A token without a known issuer is usual, so `_OTHER` is a valid issuer here and no overflow.
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

        A family restarts at 0 if the settings give its labels other tenants, fewer tools, or tools
        for the first time. It does so for other buckets, too. Other names of upstreams, issuers,
        policies or sinks restart none.
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
                # A gauge never restarts: it has no buckets, and no label for tools or tenants.
                children.restart(self._histogram_of(family) if family.kind is FamilyKind.HISTOGRAM else Counter)
            children.limit(family.budget(config.settings))
            children.show_exemplars(config.settings.exemplars)
            children.remove_gone()
            self._add_initial(family, children)

    def counter(self, family: Family) -> MetricChildren[Counter]:
        """Open a counter family; recorders count by the returned children."""
        return self._open(Counter, family)

    def gauge(self, family: Family) -> MetricChildren[Gauge]:
        """Open a gauge family, whose series vanish with the names that they are about."""
        children = self._open(Gauge, family)
        # A gauge outside of the family, so that nothing shows what recorders set for a name that is gone.
        children.discard_gone(Gauge())
        return children

    def histogram(self, family: Family) -> MetricChildren[Histogram]:
        """Open a histogram family, with the buckets of the settings of now."""
        return self._open(self._histogram_of(family), family)

    def watch(self, family: Family, read: ReadGauge) -> None:
        """Let a gauge family show what `read` returns at each scrape; opens the family if needed.

        A series that `read` does not return is removed, or is 0 if it is an initial one. A second
        call replaces `read`.
        """
        if family not in self._families:
            self.gauge(family)
        self._reads[family] = read

    def read_gauges(self) -> None:
        """Read the watched gauges, before a scrape. Does not raise.

        If a read fails, the error is logged and the family keeps its values.
        """
        for family, read in self._reads.items():
            try:
                children = self._families[family]
                children.replace(read())
                self._add_initial(family, children)
            except Exception:
                _log.exception("a gauge was not read", extra={"family": family.name})

    def write(self, accept: str | None, pause: Pause) -> tuple[bytes, str]:
        """The exposition and its content type; `accept` is the header of the scraper."""
        return write_pages(self._pages(), accept, pause)

    def _pages(self) -> Iterator[Page]:
        """The pages of the library's collectors, then those of each open family in order."""
        yield from self.standard.collect()
        for family in self._order:
            if family in self._families:
                yield from self._families[family].pages()

    def _count_overflow(self, label: str) -> None:
        """Count a value that was shown as `_OTHER`, by the name of its label."""
        self._overflows[label,].value += 1

    def _histogram_of(self, family: Family) -> Callable[[], Histogram]:
        """A maker of series of a histogram family, with its buckets by the settings of now."""
        return partial(Histogram, family.buckets_with(self._settings))

    def _open(self, make: Callable[[], Child], family: Family) -> MetricChildren[Child]:
        """Open a family; `make` makes each of its series."""
        label_sets = tuple(self._label_set(label) for label in family.labels)
        children = MetricChildren(family, make, label_sets, self._count_overflow)
        children.limit(family.budget(self._settings))
        self._families[family] = children
        self._add_initial(family, children)
        return children

    def _label_set(self, label: Label) -> LabelSet:
        """The values of one label of a family.

        For a label of configured names, it shares `texts` and `gone` with `_configured`. So
        `adopt` changes the values of every open family.
        """
        configured = self._configured.get(label)
        if configured is None:
            return LabelSet(label.name, label.values, (), self._count_overflow)
        return LabelSet(label.name, configured.texts, configured.gone, self._count_overflow)

    def _add_initial(self, family: Family, children: MetricChildren[Any]) -> None:
        """Add the initial series, with 0, for each value of the first label.

        Without them `rate()` of PromQL would miss the event that creates a series.
        """
        if family.limits.initial:
            first = family.labels[0]
            values = self._configured[first].configured() if first in self._configured else first.values or ()
            for value in values:
                for rest in family.limits.initial:
                    # The look-up itself adds a series that does not exist yet.
                    children[value, *rest]


# --- the exposition --------------------------------------------------------------------------------------------------

_END: Final = b"# EOF\n"
"""The last line of OpenMetrics; the encoder ends each page with it, so all but one are removed."""


def write_pages(pages: Iterable[Page], accept: str | None, pause: Pause) -> tuple[bytes, str]:
    """The text of all pages and its content type: OpenMetrics if `accept` allows it, else text 0.0.4.

    The pages of one family follow each other, and the text names the family once. `pause` is called
    after about `PIECE` samples. These take a millisecond, after which the writing thread can leave
    the interpreter to others.
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
    """The text of a page without HELP and TYPE, which the family's first page has."""
    while text.startswith(b"# "):
        _, _, text = text.partition(b"\n")
    return text
