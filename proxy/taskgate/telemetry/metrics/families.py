"""What a metric family is, and how many series it may have.

What must not live here: the families themselves (see `catalogue`), and what counts them.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from taskgate.telemetry.metrics.labels import Label

Values = tuple[Any, ...]
"""What stands for the labels of one series, in their order, as events carry it."""


class FamilyKind(StrEnum):
    """The types of families in use."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesRoom:
    """How many series a family may have for each value of its first label.

    `begins` is what follows that label in the series that are there from the start: 0 means that nothing happened yet.
    Beside them and those of `kept` there are at most `most`, and then `shared` for all values of the first label
    together; every further one has `_OTHER` for all its labels but the first, and but those that are empty: an empty
    label says that nothing went wrong, or that there is none. `per_tool` and `shared_per_tool` are how many more for
    each tool that has a label, `sharing` how many where the store is one that gateways share. None bounds nothing: the
    sets of the labels do.
    """

    begins: frozenset[Values] = frozenset()
    kept: frozenset[Values] = frozenset()
    most: int | None = None
    per_tool: int = 0
    shared: int = 0
    shared_per_tool: int = 0
    sharing: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Family:
    """One family. `name` is the whole name, suffix included; `buckets` are the bounds of a histogram but for +Inf."""

    name: str
    kind: FamilyKind
    meaning: str
    labels: tuple[Label, ...] = ()
    buckets: tuple[float, ...] = ()
    room: SeriesRoom = SeriesRoom()


def counter(name: str, meaning: str, *by: Label, room: SeriesRoom = SeriesRoom()) -> Family:
    """A number of events."""
    return Family(name=name, kind=FamilyKind.COUNTER, meaning=meaning, labels=by, room=room)


def gauge(name: str, meaning: str, *by: Label, room: SeriesRoom = SeriesRoom()) -> Family:
    """How something is now."""
    return Family(name=name, kind=FamilyKind.GAUGE, meaning=meaning, labels=by, room=room)


def histogram(
    name: str, meaning: str, buckets: tuple[float, ...], *by: Label, room: SeriesRoom = SeriesRoom()
) -> Family:
    """How long, or how large, events were."""
    return Family(name=name, kind=FamilyKind.HISTOGRAM, meaning=meaning, labels=by, buckets=buckets, room=room)


def beginning(*values: Values, most: int | None = None) -> SeriesRoom:
    """Those series are there from the start."""
    return SeriesRoom(begins=frozenset(values), most=most)


ALONE: Final = beginning(())
"""Of one label: the series of each of its values is there from the start."""
