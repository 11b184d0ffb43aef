"""Families become series here: closed label sets are enforced, and counting costs one look-up.

What is counted is none of this module's business. Holds: a family never has more series than `bounds` says, and what
peers invent costs neither a series nor memory. Configured names come and go while it runs: of one that has gone the
counters stay, since what they counted has happened, and the gauges vanish, since nothing is so any more. For one
thread, but for reading what stands here.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Generic, TypeVar

from prometheus_client.metrics_core import Metric as Page

from taskgate.telemetry.metrics.bounds import STRANGE, Space
from taskgate.telemetry.metrics.counting import Count, Level, Times
from taskgate.telemetry.metrics.exposition import PIECE
from taskgate.telemetry.metrics.families import Family, FamilyKind, Values
from taskgate.telemetry.metrics.labels import OTHER
from taskgate.telemetry.metrics.names import Domain, Folded

Metric = TypeVar("Metric", Count, Level, Times)

_FOR_STRANGERS: Final = Space(own=STRANGE, shared=0)

Takers = dict[type[Any], Callable[[Any], None]]
"""What counts an event, by the event's type."""


class Series(dict[Values, Metric], Generic[Metric]):
    """The series of one family, by the values that events carry; any tuple of the right length has one.

    Each is made by `make`. With `nowhere`, that is where what is said of names that have gone is lost.
    """

    def __init__(self, family: Family, make: Callable[[], Metric], domains: tuple[Domain, ...], folded: Folded) -> None:
        super().__init__()
        self.family = family
        self._make: Callable[[], Metric] = make
        self._domains = domains
        self._folded = folded
        self._nowhere: Metric | None = None
        self._always = family.room.begins | family.room.kept
        self._space: Space | None = None
        self._points = True
        self._children: dict[tuple[str, ...], Metric] = {}
        # By the first label, the others of what was let in beside those that are always.
        self._others: dict[str, set[tuple[str, ...]]] = {}
        self._begin()

    def lose(self, nowhere: Metric) -> None:
        """What is said of names that have gone is lost there from now on."""
        self._nowhere = nowhere

    def hold(self, space: Space | None) -> None:
        """There is so much space for others from now on, beside the series that are always."""
        self._space = space

    def point(self, at_traces: bool) -> None:
        """Whether what is shown points at traces from now on; what was counted before does so no more either."""
        self._points = at_traces

    def __missing__(self, values: Values) -> Metric:
        if self._nowhere is not None and self._is_of_the_gone(values):
            return self._nowhere
        texts = self._bounded(values, [domain.text(value) for domain, value in zip(self._domains, values, strict=True)])
        series = self._child(texts)
        # A value outside its set is no key: a peer could invent them without end. `_OTHER` itself is one value.
        if all(text is not OTHER or value is OTHER for text, value in zip(texts, values, strict=True)):
            self[values] = series
        return series

    def restart(self, make: Callable[[], Metric]) -> None:
        """Count from 0 again, in what that makes."""
        self.clear()
        self._others.clear()
        self._children = {}
        self._make = make
        self._begin()

    def show(self, found: Mapping[Values, float]) -> None:
        """Let a gauge show that and nothing else, as far as its labels have such values."""
        for values in self.keys() - found.keys():
            self.forget(values)
        for values, value in found.items():
            if all(domain.has(each) for domain, each in zip(self._domains, values, strict=True)):
                gauge: Any = self[values]
                gauge.set(value)

    def forget(self, values: Values) -> None:
        """Show that series no more, until it is asked for again."""
        if self.pop(values, None) is not None and values:
            texts = tuple(domain.text(value) for domain, value in zip(self._domains, values, strict=True))
            del self._children[texts]

    def forget_the_gone(self) -> None:
        """Show what is said of names that have gone no more."""
        if self._nowhere is not None:
            for values in [values for values in self if self._is_of_the_gone(values)]:
                self.forget(values)

    def pages(self) -> Iterator[Page]:
        """What there is now, in pages of about that many samples; also on another thread."""
        names = [label.name for label in self.family.labels]
        page, is_first = self._page(), True
        for texts, child in tuple(self._children.items()):
            labels = dict(zip(names, texts, strict=True))
            for sample in child.samples(page.name, labels):
                page.samples.append(sample if self._points else sample._replace(exemplar=None))
            if len(page.samples) >= PIECE:
                yield page
                page, is_first = self._page(), False
        if is_first or page.samples:
            yield page

    def _begin(self) -> None:
        """What has no labels is there from the start."""
        if not self.family.labels:
            self._child([])

    def _page(self) -> Page:
        name, kind = self.family.name, self.family.kind
        return Page(
            name.removesuffix("_total") if kind is FamilyKind.COUNTER else name, self.family.meaning, kind.value
        )

    def _child(self, texts: list[str]) -> Metric:
        child = self._children.get(tuple(texts))
        if child is None:
            child = self._children[tuple(texts)] = self._make()
        return child

    def _bounded(self, values: Values, texts: list[str]) -> list[str]:
        """The labels, or `_OTHER` for what they say behind the first where there would be too many; see SeriesRoom."""
        is_strange = texts[:1] == [OTHER] and not self._domains[0].has(values[0])
        space = _FOR_STRANGERS if is_strange else self._space
        rest: tuple[str, ...] = tuple(texts[1:])
        if space is None or not rest or (values[1:] in self._always and not is_strange):
            return texts
        others = self._others.setdefault("" if is_strange else texts[0], set())
        if rest in others:
            return texts
        if len(others) < space.own or self._shared() < space.shared:
            others.add(rest)
            return texts
        self._folded(self.family.labels[-1].name)
        return [texts[0], *(text and OTHER for text in rest)]

    def _shared(self) -> int:
        """How much of what is for all together is used."""
        own = 0 if self._space is None else self._space.own
        return sum(max(0, len(others) - own) for first, others in self._others.items() if first)

    def _is_of_the_gone(self, values: Values) -> bool:
        return any(value in domain.gone for domain, value in zip(self._domains, values, strict=True))
