"""A gateway's metrics with two upstreams and two issuers, and its page as a scraper reads it."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache

import pytest

from helpers.emitting_metrics import EmittingMetrics
from taskgate.telemetry.metrics.settings import MetricsConfig

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]

_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

CONFIGURED = MetricsConfig(
    backend="sqlite",
    upstreams={"m": "reports", "n": "search"},
    issuers=["corp", "partner"],
    policies=["calls", "polls"],
    sinks=["file"],
)


class SetClock:
    """A clock that shows what it is set to, in seconds since 1970."""

    seconds = 1_800_000_000.5

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)

    def wall(self) -> datetime:
        return self.now()

    def wall_seconds(self) -> float:
        return self.wall().timestamp()

    def elapsed(self) -> float:
        return self.seconds


@cache
def read_series(series: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The name and the sorted labels of `name{label="value",…}`. The parser of the Prometheus client takes ten times
    as long; `test_page.py` judges whole pages by it."""
    name, _, rest = series.partition("{")
    return name, tuple(sorted(_LABEL.findall(rest)))


@pytest.fixture
def clock() -> SetClock:
    """The clock of `metrics`."""
    return SetClock()


@pytest.fixture
def metrics(clock: SetClock) -> EmittingMetrics:
    """Fresh metrics of a gateway with the mounts `m` and `n`, whose upstreams are `reports` and `search`.

    Its issuers are `corp` and `partner`, its rate policies `calls` and `polls`, its audit log has the sink `file`.
    """
    return EmittingMetrics(CONFIGURED, revision="abc123", clock=clock)


@pytest.fixture
def configured() -> MetricsConfig:
    """What `metrics` was told of its configuration."""
    return CONFIGURED


@pytest.fixture
def samples(metrics: EmittingMetrics) -> Callable[[], Samples]:
    """What the page says now, without what the interpreter says of itself: values by name and sorted labels."""

    def scrape() -> Samples:
        lines = metrics.render(None)[0].decode().splitlines()
        told = (line.rpartition(" ") for line in lines if not line.startswith(("#", "python_", "process_")))
        return {read_series(series): float(value) for series, _, value in told}

    return scrape


@pytest.fixture
def moved(samples: Callable[[], Samples]) -> Callable[[], dict[str, float]]:
    """What differs from the moment the fixture was made, as `name{label="value"}`; buckets are left out."""
    before = samples()

    def difference() -> dict[str, float]:
        return {
            f"{name}{{{','.join(f'{key}={value}' for key, value in labels)}}}": value - before.get((name, labels), 0.0)
            for (name, labels), value in samples().items()
            if value != before.get((name, labels), 0.0) and not name.endswith("_bucket")
        }

    return difference
