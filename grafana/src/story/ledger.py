"""`Ledger`: the counters, gauges and histograms of a gateway in a story, written as OpenMetrics with their times.

Families, labels and buckets are those of the catalogue. A name that is not there is a KeyError.
"""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from taskgate.telemetry.metrics.catalogue import FAMILIES, Family, FamilyKind

Key = tuple[str, ...]

INSTANCE: Final = 'instance="gw-1:9464",job="taskgate"'
_FAMILIES: Final = {family.name: family for family in FAMILIES}


class Ledger:
    """Counts what happens. `page` is what a scrape would read at that moment."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[Family, Key], float] = {}
        self._observed: dict[tuple[Family, Key], list[float]] = {}

    def count(self, name: str, amount: float = 1, /, **labels: str) -> None:
        """Adds to a counter; labels that are not named are empty."""
        family, key = _series(name, FamilyKind.COUNTER, labels)
        self._numbers[family, key] = self._numbers.get((family, key), 0.0) + amount

    def set(self, name: str, value: float, /, **labels: str) -> None:
        """Sets a gauge."""
        self._numbers[_series(name, FamilyKind.GAUGE, labels)] = value

    def observe(self, name: str, value: float, /, **labels: str) -> None:
        """Adds a value to a histogram."""
        family, key = _series(name, FamilyKind.HISTOGRAM, labels)
        cells = self._observed.setdefault((family, key), [0.0] * (len(family.buckets) + 2))
        cells[bisect_left(family.buckets, value)] += 1
        cells[-1] += value

    def page(self, moment: float) -> Iterator[str]:
        """Every sample as it is at that moment, in seconds since 1970."""
        for (family, key), value in self._numbers.items():
            yield f"{family.name}{{{_labels(family, key)}}} {value:.15g} {moment:.3f}\n"
        for (family, key), cells in self._observed.items():
            labels, below = _labels(family, key), 0.0
            for bound, number in zip((*family.buckets, "+Inf"), cells, strict=False):
                below += number
                yield f'{family.name}_bucket{{{labels},le="{bound}"}} {below:.0f} {moment:.3f}\n'
            yield f"{family.name}_sum{{{labels}}} {cells[-1]:.6f} {moment:.3f}\n"
            yield f"{family.name}_count{{{labels}}} {below:.0f} {moment:.3f}\n"


def _series(name: str, kind: FamilyKind, labels: dict[str, str]) -> tuple[Family, Key]:
    family = _FAMILIES[name]
    names = [label.name for label in family.labels]
    if family.kind is not kind or not labels.keys() <= set(names):
        raise KeyError(f"{name} is no {kind} with {sorted(labels)}")
    return family, tuple(labels.get(each, "") for each in names)


def _labels(family: Family, key: Key) -> str:
    own = (f'{label.name}="{value}"' for label, value in zip(family.labels, key, strict=True) if value)
    return ",".join((INSTANCE, *own))
