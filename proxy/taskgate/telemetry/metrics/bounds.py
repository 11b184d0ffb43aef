"""How many series there may be: arithmetic over the catalogue, the sets of its labels, and a configuration.

What must not live here: how that is held (`series`). What holds: nothing that peers send makes more series than this.
"""

from math import prod
from typing import Final, NamedTuple

from taskgate.telemetry.metrics import labels, server_families
from taskgate.telemetry.metrics.catalogue import FAMILIES
from taskgate.telemetry.metrics.families import Family
from taskgate.telemetry.metrics.labels import Label
from taskgate.telemetry.metrics.settings import Configured, MetricsSettings

STANDARD: Final = 20
"""The series of the process and the interpreter that every Python exporter has, a few more than there are."""

STRANGE: Final = 2
"""How many series of a family may have `_OTHER` as their first label for a name that is none; see `series`."""

MANY: Final = 10_000
"""More series than this of one gateway are worth a warning: a scrape of so many takes a tenth of a second."""


_OURS: Final = (labels.VERSION, labels.BACKEND)
"""Labels whose one value nobody but the gateway chooses."""

_WHOLE: Final = (labels.FAULT,)
"""Labels that the gateway alone sets, each time to a value of their set: there is no `_OTHER`."""


class Space(NamedTuple):
    """How many series there may be beside those that are always: of each value of the first label, and of all."""

    own: int
    shared: int


def space(family: Family, settings: MetricsSettings) -> Space | None:
    """What is left of the room of a family once its tools and tenants are known; see families.SeriesRoom."""
    room = family.room
    if room.most is None:
        return None
    tools = settings.timed_tools if labels.TIMED_TOOL in family.labels else settings.named_tools
    tenants = _tenants(settings) if labels.TENANT in family.labels else 1
    own, shared = room.most + room.per_tool * tools, room.shared + room.shared_per_tool * tools
    own += room.sharing if settings.shares_store else 0
    return Space(own * tenants, shared * tenants)


def bounds_of(family: Family, settings: MetricsSettings) -> tuple[float, ...]:
    """The buckets of a family, as the operator wants them."""
    return settings.buckets.get(family.name, family.buckets)


def most_series(family: Family, configured: Configured) -> int:
    """How many lines of a scrape a family may take, one for each bucket of a histogram."""
    buckets = bounds_of(family, configured.settings)
    return _children(family, configured) * (len(buckets) + 3 if buckets else 1)


def series_bound(configured: Configured) -> int:
    """How many series a gateway of that configuration can have. Of names that have gone, counters stay besides."""
    return STANDARD + sum(most_series(family, configured) for family in FAMILIES)


def _children(family: Family, configured: Configured) -> int:
    if not family.labels:
        return 1
    firsts = _firsts(family, configured)
    if not firsts and family in (server_families.CREDENTIALS, *server_families.OF_PROGRAMS):
        # Nobody is there of whom anything could be told.
        return 0
    each = prod(_values(label, configured) for label in family.labels[1:])
    folded = prod(_folded(label, configured) for label in family.labels[1:])
    strange = min(each, STRANGE + folded) if family.labels[0] not in _OURS else 0
    held = space(family, configured.settings)
    if held is None:
        return firsts * each + strange
    always = len(family.room.begins | family.room.kept)
    return min(firsts * each, firsts * (always + held.own + folded) + held.shared) + strange


def _firsts(family: Family, configured: Configured) -> int:
    """How many values the first label of a family has."""
    if family is server_families.CREDENTIALS:
        return len(configured.token_users)
    if family in server_families.OF_PROGRAMS:
        return len(configured.programs)
    label = family.labels[0]
    if label.values is not None:
        return len(label.values)
    configured_names = {
        labels.UPSTREAM: len(set(configured.upstreams.values())),
        # A token of no configured issuer is counted as such.
        labels.ISSUER: len(configured.issuers) + 1,
        labels.POLICY: len(configured.policies),
        labels.SINK: len(configured.sinks),
    }
    return configured_names.get(label, 1)


def _values(label: Label, configured: Configured) -> int:
    """How many values a label has that is not the first, `_OTHER` included."""
    settings = configured.settings
    if label.values is not None:
        named = {labels.EXTENSION: configured.extensions, labels.METHOD: configured.methods}.get(label, ())
        return len(label.values.keys() | named) + (label not in _WHOLE)
    if label is labels.UPSTREAM:
        return len(set(configured.upstreams.values())) + 2
    if label is labels.TOOL:
        return settings.named_tools + 1
    if label is labels.TIMED_TOOL:
        return settings.timed_tools + 2 if settings.timed_tools else 1
    return _tenants(settings) if label is labels.TENANT else 1


def _folded(label: Label, configured: Configured) -> int:
    """How many values a label may have where there is no room for more: `_OTHER`, and empty where it may be that."""
    if label is labels.TIMED_TOOL:
        return 2 if configured.settings.timed_tools else 1
    if label is labels.TENANT:
        return 1 if configured.settings.tenants is None else 2
    return 2 if label.values is not None and "" in label.values.values() else 1


def _tenants(settings: MetricsSettings) -> int:
    return 1 if settings.tenants is None else len(settings.tenants) + 2
