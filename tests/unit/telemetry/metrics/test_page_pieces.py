"""A page is written a little at a time, and is the same page."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from time import sleep

import pytest
from prometheus_client import CollectorRegistry, Gauge, Histogram, disable_created_metrics
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from helpers.emitting_metrics import EmittingMetrics
from helpers.ended_requests import rpc_answered
from helpers.waiting import bounded
from taskgate.protocol.vocabulary import METHODS_OF_HOSTS
from taskgate.telemetry import events
from taskgate.telemetry.metrics.admission import PENALIZED
from taskgate.telemetry.metrics.children import PIECE
from taskgate.telemetry.metrics.families import histogram
from taskgate.telemetry.metrics.labels import UPSTREAM
from taskgate.telemetry.metrics.registry import Registry, write_pages
from taskgate.telemetry.metrics.settings import MetricsConfig

OPENMETRICS = "application/openmetrics-text;version=1.0.0"
MANY = [str(number) for number in range(40)]


def collectors() -> CollectorRegistry:
    """Some of every kind, one of them with many series."""
    registry = CollectorRegistry()
    Gauge("empty", "Nothing.", ["upstream"], registry=registry)
    times = Histogram("times_seconds", "Many.", ["upstream"], registry=registry)
    for name in MANY:
        times.labels(name).observe(float(name))
    Gauge("one", "One.", registry=registry).set(7)
    return registry


def cut(pages: Iterable[Metric], size: int) -> Iterable[Metric]:
    """The same, each page in several."""
    for page in pages:
        for start in range(0, max(len(page.samples), 1), size):
            part = Metric(page.name, page.documentation, page.type)
            part.samples = page.samples[start : start + size]
            yield part


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize(("accept", "generate"), [(None, generate_latest), (OPENMETRICS, generate_openmetrics)])
def test_in_however_many_pieces_it_is_the_same_page(
    size: int, accept: str | None, generate: Callable[[CollectorRegistry], bytes]
) -> None:
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = collectors()
    assert write_pages(cut(registry.collect(), size), accept, lambda: None)[0] == generate(registry)


def test_nobody_waits_for_more_than_a_piece() -> None:
    """Between two rests there is never more than one piece and the longest series, which is a histogram."""
    registry = Registry(())
    registry.adopt(MetricsConfig(backend="memory", upstreams={name: name for name in MANY}))
    family = histogram("times_seconds", "Many.", (1.0, 2.0, 3.0), UPSTREAM)
    series = registry.histogram(family)
    for name in MANY * 10:
        series[name,].observe(1)
    since_last: list[int] = [0]

    def counted(pages: Iterable[Metric]) -> Iterable[Metric]:
        for page in pages:
            since_last[-1] += len(page.samples)
            yield page

    write_pages(counted(series.pages()), None, lambda: since_last.append(0))
    assert sum(since_last) == len(MANY) * 6
    assert max(since_last) <= PIECE + 6
    assert len(since_last) == len(MANY) * 6 // (PIECE + 2) + 1


def busy() -> EmittingMetrics:
    """Metrics of a gateway with some thousands of series."""
    metrics = EmittingMetrics(MetricsConfig(backend="memory", upstreams={name: name for name in MANY[:10]}))
    for mount in MANY[:10]:
        for method in METHODS_OF_HOSTS:
            metrics.emit(rpc_answered(mount, method, "2025-11-25", 0.1, None))
            metrics.emit(events.UpstreamAnswered(mount, method, 0.1, None))
    return metrics


async def test_the_loop_goes_on_while_a_page_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever only offers the interpreter to others often has it back first: the writer sleeps, if not for long."""
    metrics = busy()
    turns = naps = 0

    def nap(seconds: float) -> None:
        nonlocal naps
        naps += 1
        sleep(seconds)

    monkeypatch.setattr(time, "sleep", nap)
    async with bounded():
        scrape = asyncio.ensure_future(metrics.scrape(OPENMETRICS))
        while not scrape.done():
            await asyncio.sleep(0.001)
            turns += 1
    page, _ = scrape.result()
    series = sum(not line.startswith(b"#") for line in page.splitlines())
    assert series > 4000
    assert naps >= series / (PIECE + 25) - 1
    assert turns >= 10, "a page that is written at a stretch would leave it one or two"
    assert {family.name for family in parse_openmetrics(page.decode())}


async def test_what_others_count_is_asked_for_on_the_loop() -> None:
    metrics = busy()
    asked: list[bool] = []

    def look() -> dict[tuple[()], float]:
        asked.append(threading.current_thread() is threading.main_thread())
        return {(): 1}

    metrics.watch(PENALIZED, look)
    async with bounded():
        await metrics.scrape(None)
    assert asked == [True]
