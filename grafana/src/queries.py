"""How expressions are written: one way to select, to add up, to take a rate, a share, a mean and a quantile.

Every selector has the jobs and instances chosen on the dashboard. Families with the label `upstream` have the chosen
upstreams too. The queries of panels are in `boards`.
"""

from collections.abc import Sequence
from typing import Final

from taskgate.telemetry.metrics.catalogue import FAMILIES, FamilyKind

FOREIGN: Final = ("process_", "python_", "scrape_", "up")
"""What every Python process and every scrape has, beside the catalogue."""

_FAMILIES: Final = {family.name: family for family in FAMILIES}
_PARTS: Final = ("_bucket", "_sum", "_count")


def select(metric: str, *matchers: str) -> str:
    """The series of a metric that the dashboard is about. KeyError for an unknown metric."""
    chosen = ['job=~"$job"', 'instance=~"$instance"']
    if "upstream" in _labels(metric):
        chosen.append('upstream=~"$upstream"')
    return f"{metric}{{{', '.join((*chosen, *matchers))}}}"


def rate(metric: str, *matchers: str, by: Sequence[str] = ()) -> str:
    """Events per second, added up."""
    return f"{_over('sum', by)} (rate({select(metric, *matchers)}[$__rate_interval]))"


def per_second(*selected: str, by: Sequence[str] = ()) -> str:
    """Events of several counters per second, added up. The series have different labels."""
    return f"{_over('sum', by)} ({' or '.join(f'rate({each}[$__rate_interval])' for each in selected)})"


def grown(metric: str, *matchers: str, by: Sequence[str] = (), within: str = "$__rate_interval") -> str:
    """Events within a window, added up."""
    return f"{_over('sum', by)} (increase({select(metric, *matchers)}[{within}]))"


def now(metric: str, *matchers: str, by: Sequence[str] = (), how: str = "sum") -> str:
    """A gauge over the chosen instances: their sum, or their max where all report the same thing."""
    return f"{_over(how, by)} ({select(metric, *matchers)})"


def recorded(series: str, *, by: Sequence[str] = (), how: str) -> str:
    """What a rule recorded of each job. It is of all instances and upstreams, whatever is chosen."""
    return f'{_over(how, by)} ({series}{{job=~"$job"}})'


def quantile(rank: float, family: str, *matchers: str, by: Sequence[str] = ()) -> str:
    """A quantile of a histogram, at the grain of its buckets."""
    return f"histogram_quantile({rank:g}, {rate(f'{family}_bucket', *matchers, by=('le', *by))})"


def quantile_within(rank: float, family: str, *matchers: str, by: Sequence[str] = ()) -> str:
    """A quantile of all that a histogram observed in the time shown."""
    return f"histogram_quantile({rank:g}, {grown(f'{family}_bucket', *matchers, by=('le', *by), within='$__range')})"


def mean(family: str, *matchers: str, by: Sequence[str] = ()) -> str:
    """The mean of what a histogram observed; a gap where that was nothing."""
    total, count = (rate(f"{family}_{part}", *matchers, by=by) for part in ("sum", "count"))
    return f"{total} / ({count} > 0)"


def share(part: str, whole: str) -> str:
    """How much of the whole the part is; 0 where the part has no series, and a gap where the whole is nothing."""
    return f"({part} or {whole} * 0) / ({whole} > 0)"


def among(counter: str, *matchers: str, by: Sequence[str] = (), of: Sequence[str] = ()) -> str:
    """The share of a counter's events that match, of those that match `of`."""
    return share(rate(counter, *of, *matchers, by=by), rate(counter, *of, by=by))


def at_least_none(part: str, whole: str) -> str:
    """The part, or 0 where it has no series and the whole has."""
    return f"{part} or {whole} * 0"


def _over(how: str, by: Sequence[str]) -> str:
    return f"{how} by ({', '.join(by)})" if by else how


def _labels(metric: str) -> tuple[str, ...]:
    if metric.startswith(FOREIGN):
        return ()
    part = next((part for part in _PARTS if metric.endswith(part)), "")
    family = _FAMILIES[metric.removesuffix(part)]
    assert (family.kind is FamilyKind.HISTOGRAM) is bool(part), metric
    return tuple(label.name for label in family.labels)
