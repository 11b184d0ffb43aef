"""The series of one family: `MetricChildren`, and the `Counter`, `Gauge` and `Histogram` in it.

A child is one series, as in the Prometheus client libraries. `Registry` makes the `MetricChildren`
of each family. A recorder looks a child up by the label values of an event, as in
`children[mount, method].value += 1`; the first look-up makes it. It lives as long as the gateway,
unless its family restarts, or it is a gauge and its name is gone.

Requests count several times each, so a child counts in a fraction of a microsecond, and finding one
costs one look-up in a dictionary. The event loop counts; any thread may read.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

from prometheus_client.metrics_core import Metric as Page
from prometheus_client.samples import Exemplar, Sample
from prometheus_client.utils import floatToGoString

from taskgate.telemetry.metrics.families import UNKNOWN_BUDGET, Family, FamilyKind, SeriesBudget, Values
from taskgate.telemetry.metrics.labels import OTHER, LabelSet, OnOverflow
from taskgate.telemetry.metrics.settings import MetricsSettings
from taskgate.telemetry.tracing import Span

PIECE: Final = 100
"""Samples in a piece of the exposition: writing them takes about a millisecond."""
INFINITE: Final = float("inf")

Labels = Mapping[str, str]


class Counter:
    """A series of a counter; recorders add to `value`, and never subtract."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def samples(self, name: str, labels: Labels) -> Iterator[Sample]:
        """The samples to show; `name` is that of the family without its suffix `_total`."""
        yield Sample(f"{name}_total", dict(labels), self.value)


class Gauge:
    """A series of a gauge; `value` is the present one, which recorders set."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def samples(self, name: str, labels: Labels) -> Iterator[Sample]:
        """The samples to show."""
        yield Sample(name, dict(labels), self.value)


class Histogram:
    """A series of a histogram, with ascending upper bounds and a last bucket for anything above."""

    __slots__ = ("_bounds", "_counts", "_exemplars", "_sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0
        self._exemplars: dict[int, Exemplar] = {}

    def observe(self, amount: float, exemplar: Exemplar | None = None) -> None:
        """Count an event of that duration or size; `exemplar` names its trace."""
        self._sum += amount
        bucket = bisect_left(self._bounds, amount)
        self._counts[bucket] += 1
        if exemplar is not None:
            self._exemplars[bucket] = exemplar

    def samples(self, name: str, labels: Labels) -> Iterator[Sample]:
        """The samples to show.

        The shown count is the sum of the buckets as read here, so that it fits them while the event
        loop counts on.
        """
        so_far = 0
        bounds = (*self._bounds, INFINITE)
        for bucket, count in enumerate(self._counts):
            so_far += count
            bucket_labels = {**labels, "le": _bound_text(bounds[bucket])}
            yield Sample(f"{name}_bucket", bucket_labels, float(so_far), None, self._exemplars.get(bucket))
        yield Sample(f"{name}_count", dict(labels), float(so_far))
        yield Sample(f"{name}_sum", dict(labels), self._sum)


def _bound_text(bound: float) -> str:
    text: str = floatToGoString(bound)  # type: ignore[no-untyped-call]
    return text


class Exemplars:
    """The maker of exemplars for durations: the trace and span of the request that took so long."""

    def __init__(self) -> None:
        self._is_on = True

    def adopt(self, settings: MetricsSettings) -> None:
        """Turn exemplars on or off."""
        self._is_on = settings.exemplars

    def of(self, span: Span, seconds: float, at: datetime) -> Exemplar | None:
        """The exemplar of a span; None if the span is not exported, or exemplars are off."""
        if not self._is_on or not span.is_sampled:
            return None
        return Exemplar({"trace_id": span.trace_id, "span_id": span.span_id}, seconds, at.timestamp())


Child = TypeVar("Child", Counter, Gauge, Histogram)


class MetricChildren(dict[Values, Child], Generic[Child]):
    """The children of one family by the values of events.

    `children[values]` never fails for a tuple of the right length: it makes a missing child. The
    dictionary is a cache over `_children`, which has the children by label texts. A family has at
    most the series that `catalogue.most_series` computes: invented values share `_OTHER`, and are
    not cached.

    A value is gone once the configuration lacks its name. Its counters stay, since what they
    counted has happened. Its gauges vanish, and later values for it go to the `discard` child.
    """

    def __init__(
        self, family: Family, make: Callable[[], Child], label_sets: tuple[LabelSet, ...], on_overflow: OnOverflow
    ) -> None:
        super().__init__()
        self.family = family
        self._make: Callable[[], Child] = make
        self._label_sets = label_sets
        self._on_overflow = on_overflow
        self._discard: Child | None = None
        self._unlimited = family.limits.initial | family.limits.reserved
        self._budget: SeriesBudget | None = None
        self._shows_exemplars = True
        self._children: dict[tuple[str, ...], Child] = {}
        # By the text of the first label, the other texts of the series that use up the budget.
        self._limited: dict[str, set[tuple[str, ...]]] = {}
        self._add_unlabelled()

    def discard_gone(self, discard: Child) -> None:
        """Return `discard`, which nothing shows, for values that are gone; called for gauges."""
        self._discard = discard

    def limit(self, budget: SeriesBudget | None) -> None:
        """Limit the series that are added from now on; None means no limit."""
        self._budget = budget

    def show_exemplars(self, shown: bool) -> None:
        """Show or hide exemplars, earlier ones as well."""
        self._shows_exemplars = shown

    def __missing__(self, values: Values) -> Child:
        if self._discard is not None and self._is_gone(values):
            return self._discard
        texts = self._limited_texts(values, self._texts(values))
        child = self._child(texts)
        # An invalid value is not cached: a peer could invent them without end. `_OTHER` itself is valid.
        if all(text is not OTHER or value is OTHER for text, value in zip(texts, values, strict=True)):
            self[values] = child
        return child

    def count(self, values: Values, times: int) -> None:
        """Count an event so many times, and the overflow of an invalid value each time."""
        counter: Any = self[values]
        counter.value += times
        if values not in self:
            for _ in range(times - 1):
                # The look-up alone counts an overflow.
                self[values]

    def restart(self, make: Callable[[], Child]) -> None:
        """Drop all children, and make those of later look-ups with `make`."""
        self.clear()
        self._limited.clear()
        self._children = {}
        self._make = make
        self._add_unlabelled()

    def replace(self, found: Mapping[Values, float]) -> None:
        """Set a gauge family to these values and remove its other series.

        Series of invalid or gone label values are left out.
        """
        for values in self.keys() - found.keys():
            self.remove(values)
        for values, value in found.items():
            if all(each.is_current(part) for each, part in zip(self._label_sets, values, strict=True)):
                gauge: Any = self[values]
                gauge.value = value

    def remove(self, values: Values) -> None:
        """Remove a series; the next look-up makes it again, at 0.

        Without effect if it does not exist, or if the family has no labels.
        """
        if self.pop(values, None) is not None and values:
            del self._children[tuple(self._texts(values))]

    def remove_gone(self) -> None:
        """Remove the gauges of values that are gone; without effect for other kinds of families."""
        if self._discard is not None:
            for values in [values for values in self if self._is_gone(values)]:
                self.remove(values)

    def pages(self) -> Iterator[Page]:
        """The samples of now, in pages of about `PIECE`; at least one page. Any thread may read them."""
        names = [label.name for label in self.family.labels]
        page, is_first = self._new_page(), True
        for texts, child in tuple(self._children.items()):
            labels = dict(zip(names, texts, strict=True))
            for sample in child.samples(page.name, labels):
                page.samples.append(sample if self._shows_exemplars else sample._replace(exemplar=None))
            if len(page.samples) >= PIECE:
                yield page
                page, is_first = self._new_page(), False
        if is_first or page.samples:
            yield page

    def _add_unlabelled(self) -> None:
        """Add the one series of a family without labels, which exists from the start."""
        if not self.family.labels:
            self._child([])

    def _new_page(self) -> Page:
        name, kind = self.family.name, self.family.kind
        return Page(
            name.removesuffix("_total") if kind is FamilyKind.COUNTER else name, self.family.meaning, kind.value
        )

    def _child(self, texts: list[str]) -> Child:
        child = self._children.get(tuple(texts))
        if child is None:
            child = self._children[tuple(texts)] = self._make()
        return child

    def _texts(self, values: Values) -> list[str]:
        return [label_set.text(value) for label_set, value in zip(self._label_sets, values, strict=True)]

    def _limited_texts(self, values: Values, texts: list[str]) -> list[str]:
        """The texts, or `_OTHER` for all but the first if the budget is used up.

        Counts a new series against the budget (`SeriesLimits`), so it is called once for each.
        """
        is_unknown = texts[:1] == [OTHER] and not self._label_sets[0].is_current(values[0])
        budget = UNKNOWN_BUDGET if is_unknown else self._budget
        rest: tuple[str, ...] = tuple(texts[1:])
        if budget is None or not rest or (values[1:] in self._unlimited and not is_unknown):
            return texts
        limited = self._limited.setdefault("" if is_unknown else texts[0], set())
        if rest in limited:
            return texts
        if len(limited) < budget.own or self._shared_in_use() < budget.shared:
            limited.add(rest)
            return texts
        self._on_overflow(self.family.labels[-1].name)
        return [texts[0], *(text and OTHER for text in rest)]

    def _shared_in_use(self) -> int:
        """The number of series beyond `own`, over all known values of the first label."""
        own = 0 if self._budget is None else self._budget.own
        return sum(max(0, len(limited) - own) for first, limited in self._limited.items() if first)

    def _is_gone(self, values: Values) -> bool:
        """Whether one of the values is a name that the configuration lacks now."""
        return any(value in label_set.gone for label_set, value in zip(self._label_sets, values, strict=True))
