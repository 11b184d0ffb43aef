"""Metrics and their largest number of series: `taskgate metrics`, and a warning of `check`.

The arithmetic is in `telemetry.metrics.catalogue`.
"""

from collections.abc import Iterator
from typing import Final

from taskgate.config import GatewayConfig
from taskgate.config.settings import metrics_config
from taskgate.telemetry.metrics import catalogue
from taskgate.telemetry.metrics.catalogue import PARTS
from taskgate.telemetry.metrics.families import Family
from taskgate.telemetry.metrics.settings import MetricsConfig

_EXAMPLE: Final = MetricsConfig(
    backend="sqlite", upstreams={"one": "one"}, issuers=("one",), policies=("one",), sinks=("file", "stdout")
)
"""The assumed configuration where none is given."""


def series_bound(config: GatewayConfig) -> int:
    """Return how many series a gateway of that configuration can have, whatever hosts send."""
    return catalogue.series_bound(metrics_config(config))


def series_warnings(config: GatewayConfig) -> tuple[str, ...]:
    """Return the warnings of `check`: one where there can be very many series."""
    if not config.metrics.enabled or (most := series_bound(config)) <= catalogue.MANY_SERIES:
        return ()
    ways = "fewer metrics.buckets, a smaller metrics.max_tools, or metrics.tool_histograms off"
    return (f"metrics may have up to {most} series, more than {catalogue.MANY_SERIES}: {ways} make it less",)


def metrics_text(config: GatewayConfig | None) -> str:
    """Return every family of metrics with its largest number of series, and their sum.

    Without a configuration the numbers are for one upstream, one issuer and one rate policy.
    """
    configured = _EXAMPLE if config is None else metrics_config(config)
    lines = [line for part, families in PARTS.items() for line in _part(part, families, configured)]
    return "\n".join([*lines, *_total(configured, config is None)]) + "\n"


def _part(part: str, families: tuple[Family, ...], configured: MetricsConfig) -> Iterator[str]:
    yield f"# {part}"
    for family in families:
        names = ",".join(label.name for label in family.labels)
        shown = f"{family.name}{{{names}}}" if names else family.name
        yield f"{catalogue.most_series(family, configured):>6}  {family.kind:<9}  {shown}"
        yield f"{'':>6}  {'':<9}    {family.meaning}"
    yield ""


def _total(configured: MetricsConfig, is_example: bool) -> Iterator[str]:
    of = "one upstream, one issuer and one rate policy" if is_example else "this configuration"
    yield f"{catalogue.STANDARD_SERIES:>6}  process_*, python_*"
    yield f"{catalogue.series_bound(configured):>6}  series at most, with {of}"
    if not configured.settings.enabled:
        yield "        metrics.enabled is false: nothing is counted or shown"
