"""What one series counts, and shows as the client library would."""

from collections.abc import Callable

import prometheus_client
import pytest
from prometheus_client import disable_created_metrics
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Exemplar, Sample

from taskgate.telemetry.metrics.children import Counter, Gauge, Histogram

BOUNDS = (0.005, 0.5, 1.0, 10.0)
AMOUNTS = (0.0, 0.005, 0.0051, 0.5, 7, 10.0, 10.5, 1e9)


def shown(collector: prometheus_client.Counter | prometheus_client.Gauge | prometheus_client.Histogram) -> list[Sample]:
    """What the client library shows."""
    pages: list[Metric] = list(collector.collect())
    return [sample for page in pages for sample in page.samples]


@pytest.fixture(autouse=True)
def without_beginnings() -> None:
    """As the gateway has it."""
    disable_created_metrics()  # type: ignore[no-untyped-call]


def test_a_counter_shows_what_that_of_the_client_library_shows() -> None:
    ours, theirs = Counter(), prometheus_client.Counter("c", "Counts.", ["tool"], registry=None)
    for amount in (1, 2.5, 0):
        ours.value += amount
        theirs.labels("a").inc(amount)

    assert list(ours.samples("c", {"tool": "a"})) == shown(theirs)


def test_a_gauge_shows_what_that_of_the_client_library_shows() -> None:
    ours, theirs = Gauge(), prometheus_client.Gauge("g", "Is.", ["tool"], registry=None)
    for value in (True, 7, 2.5):
        ours.value = value
        theirs.labels("a").set(value)

    assert list(ours.samples("g", {"tool": "a"})) == shown(theirs)


def test_a_histogram_shows_what_that_of_the_client_library_shows() -> None:
    ours, theirs = (
        Histogram(BOUNDS),
        prometheus_client.Histogram("h", "Times.", ["tool"], buckets=BOUNDS, registry=None),
    )
    assert list(ours.samples("h", {"tool": "a"})) == shown_of_a(theirs)
    for amount in AMOUNTS:
        ours.observe(amount)
        theirs.labels("a").observe(amount)

    assert list(ours.samples("h", {"tool": "a"})) == shown_of_a(theirs)


def shown_of_a(theirs: prometheus_client.Histogram) -> list[Sample]:
    """The series with that label, there from now on."""
    theirs.labels("a")
    return shown(theirs)


def test_the_last_example_of_each_bucket_is_kept() -> None:
    times = Histogram(BOUNDS)
    for amount, trace in ((0.1, "a"), (0.2, "b"), (20.0, "c")):
        times.observe(amount, Exemplar({"trace_id": trace}, amount))
    times.observe(0.3)

    examples = {sample.labels["le"]: sample.exemplar for sample in times.samples("h", {}) if sample.exemplar}

    assert {at: (one.labels, one.value) for at, one in examples.items()} == {
        "0.5": ({"trace_id": "b"}, 0.2),
        "+Inf": ({"trace_id": "c"}, 20.0),
    }


@pytest.mark.parametrize("make", [Counter, Gauge, lambda: Histogram(BOUNDS)], ids=["counter", "gauge", "histogram"])
def test_a_sample_does_not_share_its_labels(make: Callable[[], Counter | Gauge | Histogram]) -> None:
    labels = {"tool": "a"}

    for sample in make().samples("m", labels):
        sample.labels["tool"] = "b"

    assert labels == {"tool": "a"}


def test_a_histogram_never_shows_more_in_a_bucket_than_in_all() -> None:
    """It is written on another thread than the one that counts, which goes on meanwhile."""
    times, values = Histogram(BOUNDS), []
    times.observe(0.1)
    for sample in times.samples("h", {}):
        values.append(sample.value)
        times.observe(100.0)
        times.observe(0.001)

    *buckets, total, _ = values
    assert buckets == sorted(buckets)
    assert buckets[-1] == total
