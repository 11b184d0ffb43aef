"""The OpenTelemetry SDK as the gateway uses it: ids, sampler, exporter, provider.

Only `setup` imports this module, and only if tracing is on, because the SDK is an optional
dependency. A thread of the SDK exports spans in batches, so that ending one does not wait for the
collector. Spans are lost while the collector is down.
"""

import asyncio
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from importlib import import_module
from logging import NullHandler, getLogger
from threading import Thread
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

from opentelemetry.context import Context
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision, ParentBased, Sampler, SamplingResult, TraceIdRatioBased
from opentelemetry.trace import Link, SpanKind, TraceState
from opentelemetry.util.types import Attributes

from taskgate.clock import Clock, Entropy
from taskgate.telemetry.opentelemetry.settings import EXPORTER_MODULES, Exporter, TracingSettings, TracingUnavailable
from taskgate.telemetry.opentelemetry.tracer import OpenTelemetryTracing

SHUTDOWN_TIMEOUT: Final = 2.0
"""Seconds that the end of the gateway waits for the last spans to be exported."""
OTLP_PATH: Final = "/v1/traces"
"""The path of a collector, by the OTLP specification."""

log = getLogger("taskgate.tracing")


def build_tracing(
    settings: TracingSettings,
    *,
    version: str,
    clock: Clock,
    entropy: Entropy,
    task_ref: Callable[[str], str] | None = None,
    methods: Callable[[], Collection[str]] = frozenset,
) -> OpenTelemetryTracing:
    """Tracing over a provider of its own; parameters and errors as in `open_tracing`."""
    # The SDK logs each failed batch, with the address of the collector; FailureLogger logs the change once.
    library = getLogger("opentelemetry")
    library.addHandler(NullHandler())
    library.propagate = False
    exporter = FailureLogger(_exporter(settings))
    provider = TracerProvider(
        sampler=sampler(settings.sample_ratio),
        resource=_resource(version, entropy),
        id_generator=EntropyIdGenerator(entropy),
        # ProviderShutdown does it instead, with a timeout.
        shutdown_on_exit=False,
    )
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return OpenTelemetryTracing(
        provider.get_tracer("taskgate", version),
        clock=clock,
        trusts=settings.trusts,
        records_arguments=settings.records_arguments,
        task_ref=task_ref,
        methods=methods,
        shutdown=ProviderShutdown(provider, exporter),
    )


class EntropyIdGenerator(IdGenerator):
    """Trace and span ids from the gateway's own `Entropy`, which tests can seed."""

    def __init__(self, entropy: Entropy) -> None:
        self._entropy = entropy

    def generate_span_id(self) -> int:
        # Zero is an invalid id.
        return int.from_bytes(self._entropy.token(8)) or 1

    def generate_trace_id(self) -> int:
        return int.from_bytes(self._entropy.token(16)) or 1

    def is_trace_id_random(self) -> bool:
        return True


# --- sampling --------------------------------------------------------------------------------------------------------


def sampler(ratio: float) -> Sampler:
    """Keep a child if its parent is kept, and that share of all root spans."""
    return ParentBased(RootSampler(ratio))


class RootSampler(Sampler):
    """A sampler of root spans: the call of a task follows the request that created the task."""

    def __init__(self, ratio: float) -> None:
        self._by_ratio = TraceIdRatioBased(ratio)

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        # The links of a SERVER span come from a host that is not trusted, so they decide nothing.
        if kind is SpanKind.CLIENT and links:
            is_kept = links[0].context.trace_flags.sampled
            return SamplingResult(Decision.RECORD_AND_SAMPLE if is_kept else Decision.DROP, attributes)
        return self._by_ratio.should_sample(parent_context, trace_id, name, kind, attributes, links, trace_state)

    def get_description(self) -> str:
        return f"Roots{{{self._by_ratio.get_description()}}}"


# --- export ----------------------------------------------------------------------------------------------------------


class FailureLogger(SpanExporter):
    """An exporter around another that logs when exports start to fail, and when they work again."""

    def __init__(self, inner: SpanExporter) -> None:
        self._inner = inner
        self._is_failing = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export spans; an exception of the inner exporter is a failure."""
        try:
            result = self._inner.export(spans)
        except Exception:
            result = SpanExportResult.FAILURE
        is_failing = result is not SpanExportResult.SUCCESS
        if is_failing and not self._is_failing:
            log.warning("spans are lost: they cannot be exported")
        elif self._is_failing and not is_failing:
            log.info("spans are exported again")
        self._is_failing = is_failing
        return result

    def shutdown(self) -> None:
        self._inner.shutdown()


class ProviderShutdown:
    """The shutdown of a provider on a thread of its own, which is abandoned after a timeout."""

    def __init__(self, provider: TracerProvider, exporter: SpanExporter) -> None:
        self._provider = provider
        self._exporter = exporter

    async def __call__(self) -> None:
        """Export all ended spans, within `SHUTDOWN_TIMEOUT`."""
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def work() -> None:
            self._provider.shutdown()
            # After the timeout the loop may be closed.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(done.set)

        Thread(target=work, name="taskgate-tracing-end", daemon=True).start()
        try:
            async with asyncio.timeout(SHUTDOWN_TIMEOUT):
                await done.wait()
        except TimeoutError:
            log.warning("spans are lost: their collector took too long at the end")
            # Ends the exporter's pause between retries, so that the first thread ends as well.
            Thread(target=self._exporter.shutdown, name="taskgate-tracing-cut", daemon=True).start()


def _exporter(settings: TracingSettings) -> SpanExporter:
    if settings.exporter is Exporter.CONSOLE:
        return ConsoleSpanExporter(out=sys.stderr, formatter=_line)
    module = import_module(EXPORTER_MODULES[settings.exporter])
    try:
        exporter: SpanExporter = module.OTLPSpanExporter(endpoint=_endpoint(settings))
    except Exception as error:
        # The text of the error may quote a variable, which may be a secret.
        raise TracingUnavailable(
            f"tracing: the variables OTEL_EXPORTER_OTLP_* cannot be followed ({type(error).__name__})"
        ) from None
    return exporter


def _endpoint(settings: TracingSettings) -> str | None:
    """The collector's URL; the usual path is added to one without. gRPC ignores the path."""
    if settings.endpoint is None:
        return None
    parts = urlsplit(settings.endpoint)
    return settings.endpoint if parts.path.strip("/") else urlunsplit(parts._replace(path=OTLP_PATH))


def _resource(version: str, entropy: Entropy) -> Resource:
    """The resource of all spans. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES override it."""
    defaults: dict[str, Any] = {
        "service.name": "taskgate",
        "service.version": version,
        "service.instance.id": str(UUID(bytes=entropy.token(16), version=4)),
    }
    return Resource(defaults).merge(OTELResourceDetector().detect())


def _line(span: ReadableSpan) -> str:
    return f"{span.to_json(indent=None)}\n"
