"""What one series counts: a number of events, how something is now, or how long events were.

What must not live here: families and labels (`series`), and how samples are written (`exposition`). What holds: to
count takes a fraction of a microsecond, for requests count several times each. One thread counts; any may ask for
samples, and a histogram never shows more in a bucket than in all.
"""

import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client.samples import Exemplar, Sample
from prometheus_client.utils import floatToGoString

Labels = Mapping[str, str]


class Count:
    """A counter."""

    __slots__ = ("_value",)

    def __init__(self) -> None:
        self._value = 0.0

    def inc(self, amount: float = 1.0) -> None:
        """So many more; `amount` is not below 0."""
        self._value += amount

    def samples(self, name: str, labels: Labels) -> Iterator[Sample]:
        """What it shows; `name` is the family's, without a suffix that all counters have."""
        yield Sample(f"{name}_total", dict(labels), self._value)


class Level:
    """A gauge."""

    __slots__ = ("_value",)

    def __init__(self) -> None:
        self._value = 0.0

    def set(self, value: float) -> None:
        """It is that now."""
        self._value = float(value)

    def inc(self) -> None:
        """One more."""
        self._value += 1.0

    def dec(self) -> None:
        """One less."""
        self._value -= 1.0

    def samples(self, name: str, labels: Labels) -> Iterator[Sample]:
        """See Count."""
        yield Sample(name, dict(labels), self._value)


class Times:
    """A histogram with these upper bounds, ascending, and one more bucket for whatever is above."""

    __slots__ = ("_bounds", "_counts", "_exemplars", "_sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0
        self._exemplars: dict[int, Exemplar] = {}

    def observe(self, amount: float, exemplar: Labels | None = None) -> None:
        """One more event, of that size; `exemplar` names the trace that it is an example of."""
        self._sum += amount
        bucket = bisect_left(self._bounds, amount)
        self._counts[bucket] += 1
        if exemplar is not None:
            self._exemplars[bucket] = Exemplar(dict(exemplar), amount, time.time())

    def samples(self, name: str, labels: Labels) -> Iterator[Sample]:
        """See Count."""
        so_far = 0
        bounds = (*self._bounds, INFINITE)
        for bucket, count in enumerate(self._counts):
            so_far += count
            told = {**labels, "le": _written(bounds[bucket])}
            yield Sample(f"{name}_bucket", told, float(so_far), None, self._exemplars.get(bucket))
        yield Sample(f"{name}_count", dict(labels), float(so_far))
        yield Sample(f"{name}_sum", dict(labels), self._sum)


INFINITE: Final = float("inf")


def _written(bound: float) -> str:
    text: str = floatToGoString(bound)  # type: ignore[no-untyped-call]
    return text
