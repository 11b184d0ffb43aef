"""The SDK: which spans are kept, and how they get to whoever collects them. It is an extra: here alone it is loaded.

What must not live here: what spans say. What holds: whoever ends a span never waits for a collector, and one that is
not there costs nothing but the spans.
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

from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator

from taskgate.clock import Clock, Entropy
from taskgate.telemetry.opentelemetry.extra import EXPORTERS, TracingUnavailable
from taskgate.telemetry.opentelemetry.sampling import sampler
from taskgate.telemetry.opentelemetry.settings import Exporter, TracingSettings
from taskgate.telemetry.opentelemetry.tracer import OpenTelemetryTracing

PATIENCE: Final = 2.0
"""Seconds that the end of the gateway waits for the last spans to be exported."""
OTLP_PATH: Final = "/v1/traces"
"""Where a collector takes spans, by the specification."""

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
    """See `open_tracing`. Raises TracingUnavailable where something that it needs is not there."""
    # Its own complaints name the collector's address, and come with each batch: ours come once.
    library = getLogger("opentelemetry")
    library.addHandler(NullHandler())
    library.propagate = False
    exporter = TellingExporter(_exporter(settings))
    provider = TracerProvider(
        sampler=sampler(settings.sample_ratio),
        resource=_resource(version, entropy),
        id_generator=Ids(entropy),
        # The gateway says when it ends, and does not wait for ever.
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
        finish=Finish(provider, exporter),
    )


class Ids(IdGenerator):
    """Ids of traces and spans, by the chance that is handed in."""

    def __init__(self, entropy: Entropy) -> None:
        self._entropy = entropy

    def generate_span_id(self) -> int:
        """See IdGenerator; zero is no id."""
        return int.from_bytes(self._entropy.token(8)) or 1

    def generate_trace_id(self) -> int:
        """See IdGenerator; zero is no id."""
        return int.from_bytes(self._entropy.token(16)) or 1

    def is_trace_id_random(self) -> bool:
        """They are, all of it."""
        return True


class TellingExporter(SpanExporter):
    """Exports by another, and tells operators when that begins to fail, and when it works again."""

    def __init__(self, inner: SpanExporter) -> None:
        self._inner = inner
        self._fails = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """See SpanExporter. Never raises."""
        try:
            result = self._inner.export(spans)
        except Exception:
            result = SpanExportResult.FAILURE
        fails = result is not SpanExportResult.SUCCESS
        if fails and not self._fails:
            log.warning("spans are lost: they cannot be exported")
        elif self._fails and not fails:
            log.info("spans are exported again")
        self._fails = fails
        return result

    def shutdown(self) -> None:
        """See SpanExporter."""
        self._inner.shutdown()


class Finish:
    """Ends a provider on a thread of its own, which is left to itself where that takes too long."""

    def __init__(self, provider: TracerProvider, exporter: SpanExporter) -> None:
        self._provider = provider
        self._exporter = exporter

    async def __call__(self) -> None:
        """Have everything exported that has ended, as far as time allows."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def work() -> None:
            self._provider.shutdown()
            # Where nobody waits any more, the loop may be gone.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(ended.set)

        Thread(target=work, name="taskgate-tracing-end", daemon=True).start()
        try:
            async with asyncio.timeout(PATIENCE):
                await ended.wait()
        except TimeoutError:
            log.warning("spans are lost: their collector took too long at the end")
            # Cuts its pauses between tries short, so that the thread ends, too.
            Thread(target=self._exporter.shutdown, name="taskgate-tracing-cut", daemon=True).start()


def _exporter(settings: TracingSettings) -> SpanExporter:
    if settings.exporter is Exporter.CONSOLE:
        return ConsoleSpanExporter(out=sys.stderr, formatter=_line)
    try:
        made: SpanExporter = import_module(EXPORTERS[settings.exporter]).OTLPSpanExporter(endpoint=_endpoint(settings))
    except Exception as error:
        # By what the environment says of it; its text may quote that, and so a secret.
        raise TracingUnavailable(
            f"tracing: the variables OTEL_EXPORTER_OTLP_* cannot be followed ({type(error).__name__})"
        ) from None
    return made


def _endpoint(settings: TracingSettings) -> str | None:
    """A URL without a path means the usual one; gRPC looks at host and port alone."""
    if settings.endpoint is None:
        return None
    parts = urlsplit(settings.endpoint)
    return settings.endpoint if parts.path.strip("/") else urlunsplit(parts._replace(path=OTLP_PATH))


def _resource(version: str, entropy: Entropy) -> Resource:
    """What every span is said to be of; the environment knows better (OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES)."""
    ours: dict[str, Any] = {
        "service.name": "taskgate",
        "service.version": version,
        "service.instance.id": str(UUID(bytes=entropy.token(16), version=4)),
    }
    return Resource(ours).merge(OTELResourceDetector().detect())


def _line(span: ReadableSpan) -> str:
    return f"{span.to_json(indent=None)}\n"
