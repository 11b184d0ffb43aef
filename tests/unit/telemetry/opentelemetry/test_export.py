"""Spans get to their collector, and one that is slow, wrong or not there costs nothing but them."""

import asyncio
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from helpers.loop_pace import paced
from helpers.manual_clock import ManualClock, SeededEntropy
from helpers.otlp_collector import CLIENT, Collected, OtlpCollector, read
from helpers.waiting import PATIENCE, bounded
from taskgate.telemetry.opentelemetry.sdk import EntropyIdGenerator, FailureLogger, build_tracing
from taskgate.telemetry.opentelemetry.settings import Exporter, TracingSettings, TracingUnavailable
from taskgate.telemetry.tracing import Tracing

LOST = "spans are lost: they cannot be exported"


@pytest.fixture(autouse=True)
def nothing_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy stands before collectors on this machine."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def build(exporter: Exporter = Exporter.OTLP_HTTP, endpoint: str | None = None) -> Tracing:
    settings = TracingSettings(
        exporter=exporter, endpoint=endpoint, sample_ratio=1.0, trusts=True, records_arguments=False
    )
    return build_tracing(settings, version="1.2.3", clock=ManualClock(), entropy=SeededEntropy())


def one_call(tracing: Tracing) -> None:
    span = tracing.start_client_span("ping", mount="reports", tool=None, parent=None)
    assert span is not None
    span.end()


@contextmanager
def deaf() -> Iterator[str]:
    """A collector that can be connected to, and never says anything."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


async def left_to_itself() -> None:
    """Wait until what nobody waited for has ended."""
    for thread in threading.enumerate():
        if thread.name.startswith(("taskgate-tracing", "OtelBatch")):
            await asyncio.to_thread(thread.join, PATIENCE)


def nowhere() -> str:
    """Where nobody listens."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        return f"http://127.0.0.1:{listening.getsockname()[1]}"


async def test_spans_get_to_a_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    async with OtlpCollector() as collector:
        tracing = build(endpoint=collector.url)
        one_call(tracing)
        async with bounded():
            await tracing.close()
    (span,) = collector.spans
    assert (span.name, span.kind, collector.paths) == ("ping", CLIENT, ["/v1/traces"])
    of = span.resource
    assert (of["service.name"], of["service.version"], len(of["service.instance.id"])) == ("taskgate", "1.2.3", 36)


async def test_to_the_very_url_where_it_has_a_path() -> None:
    async with OtlpCollector() as collector:
        tracing = build(endpoint=f"{collector.url}/otel/spans")
        one_call(tracing)
        await tracing.close()
    assert collector.paths == ["/otel/spans"]


async def test_the_environment_tells_what_no_key_does(monkeypatch: pytest.MonkeyPatch) -> None:
    async with OtlpCollector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=acme")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "edge")
        tracing = build()
        one_call(tracing)
        await tracing.close()
    assert collector.spans[0].resource["service.name"] == "edge"
    assert (collector.headers[0]["x-tenant"], collector.headers[0]["Content-Encoding"]) == ("acme", "gzip")


async def test_an_environment_that_cannot_be_followed_is_told_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """In words of ours: those of the library quote it."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "quoted")
    with pytest.raises(TracingUnavailable) as refused:
        build(Exporter.OTLP_GRPC)
    assert str(refused.value) == "tracing: the variables OTEL_EXPORTER_OTLP_* cannot be followed (ValueError)"


async def test_over_grpc_too() -> None:
    taken: list[Collected] = []

    class Service(trace_service_pb2_grpc.TraceServiceServicer):
        def Export(self, request: ExportTraceServiceRequest, context: Any) -> ExportTraceServiceResponse:  # noqa: N802
            taken.extend(read(request))
            return ExportTraceServiceResponse()

    server = grpc.server(ThreadPoolExecutor(max_workers=1))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Service(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        tracing = build(Exporter.OTLP_GRPC, f"http://127.0.0.1:{port}")
        one_call(tracing)
        await tracing.close()
    finally:
        server.stop(None).wait(5)
    assert [span.name for span in taken] == ["ping"]


async def test_or_to_standard_error_a_line_each(capfd: pytest.CaptureFixture[str]) -> None:
    tracing = build(Exporter.CONSOLE)
    one_call(tracing)
    one_call(tracing)
    await tracing.close()
    out, err = capfd.readouterr()
    assert [json.loads(line)["name"] for line in err.splitlines()] == ["ping", "ping"]
    assert out == ""


# --- a collector that is not well ------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_there", [True, False])
async def test_the_end_waits_no_longer_than_it_may(
    is_there: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither for one that does not answer nor for one that is not there, and the loop goes on meanwhile."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    with deaf() as silent:
        tracing = build(endpoint=silent if is_there else nowhere())
        one_call(tracing)
        begun = time.monotonic()
        with paced(10):
            await tracing.close()
        assert time.monotonic() - begun < 1
    await left_to_itself()
    assert [message for message in caplog.messages if message.startswith("spans are lost")]


def test_what_is_left_to_itself_may_outlive_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")

    async def close(tracing: Tracing) -> None:
        with paced(10):
            await tracing.close()

    with deaf() as silent:
        tracing = build(endpoint=silent)
        one_call(tracing)
        asyncio.run(close(tracing))
        # What a thread raises here fails the test.
        asyncio.run(left_to_itself())


async def test_to_end_a_span_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    with deaf() as silent:
        tracing = build(endpoint=silent)
        begun = time.monotonic()
        for _ in range(5000):
            # More than are kept for an export, and more than are kept at all.
            one_call(tracing)
        assert time.monotonic() - begun < 5
        with paced(10):
            await tracing.close()
    await left_to_itself()


class Scripted(SpanExporter):
    """Does to each batch what its list says."""

    def __init__(self, *results: SpanExportResult | Exception) -> None:
        self.results = list(results)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result


def test_a_failure_is_told_once_and_its_end_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "taskgate.tracing")
    well, ill = SpanExportResult.SUCCESS, SpanExportResult.FAILURE
    exporter = FailureLogger(Scripted(well, ill, ValueError("http://secret"), well, well, ill))
    assert [exporter.export(()) for _ in range(6)] == [well, ill, ill, well, well, ill]
    assert caplog.messages == [LOST, "spans are exported again", LOST]


async def test_the_library_does_not_tell_it_again() -> None:
    """Its lines name the collector, come with each batch, and are in nobody's form."""
    heard: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record.name)

    # As an operator's handler is put up: pytest's own hears even what does not come so far.
    ear = Ear()
    logging.getLogger().addHandler(ear)
    try:
        async with OtlpCollector(status=400) as collector:
            tracing = build(endpoint=collector.url)
            one_call(tracing)
            await tracing.close()
    finally:
        logging.getLogger().removeHandler(ear)
    assert "taskgate.tracing" in heard
    assert not [name for name in heard if name.startswith("opentelemetry")]


# --- chance ----------------------------------------------------------------------------------------------------------


class Zero:
    """The worst of luck."""

    def token(self, count: int) -> bytes:
        return bytes(count)


def test_ids_are_of_the_chance_that_is_handed_in() -> None:
    ids, entropy = EntropyIdGenerator(SeededEntropy(7)), SeededEntropy(7)
    assert ids.generate_trace_id() == int.from_bytes(entropy.token(16))
    assert ids.generate_span_id() == int.from_bytes(entropy.token(8))
    assert ids.is_trace_id_random()


def test_zero_is_no_id() -> None:
    assert (EntropyIdGenerator(Zero()).generate_trace_id(), EntropyIdGenerator(Zero()).generate_span_id()) == (1, 1)
