"""Tracing whose spans stay in memory, and are there as soon as they are over."""

from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from helpers.manual_clock import ManualClock, SeededEntropy
from taskgate.telemetry.opentelemetry.sdk import EntropyIdGenerator, sampler
from taskgate.telemetry.opentelemetry.tracer import OpenTelemetryTracing

Make = Callable[..., OpenTelemetryTracing]


@pytest.fixture
def clock() -> ManualClock:
    """Time that stands still until the test moves it."""
    return ManualClock()


@pytest.fixture
def kept() -> InMemorySpanExporter:
    """Where spans go."""
    return InMemorySpanExporter()


@pytest.fixture
def ended(kept: InMemorySpanExporter) -> Callable[[], list[ReadableSpan]]:
    """The spans that are over, in the order in which they ended."""
    return lambda: list(kept.get_finished_spans())


@pytest.fixture
def make(kept: InMemorySpanExporter, clock: ManualClock, entropy: SeededEntropy) -> Make:
    """Makes tracing that keeps all its spans, unless told otherwise."""

    async def shutdown() -> None: ...

    def made(ratio: float = 1.0, **more: Any) -> OpenTelemetryTracing:
        provider = TracerProvider(
            sampler=sampler(ratio), id_generator=EntropyIdGenerator(entropy), shutdown_on_exit=False
        )
        provider.add_span_processor(SimpleSpanProcessor(kept))
        said: dict[str, Any] = {"trusts": True, "records_arguments": False, "task_ref": None, "methods": frozenset}
        said |= {"shutdown": shutdown} | more
        return OpenTelemetryTracing(provider.get_tracer("taskgate"), clock=clock, **said)

    return made
