"""Tracing is there where it is wanted and can be had, and nothing of it is loaded where it is not."""

import subprocess
import sys
from pathlib import Path

import pytest

import taskgate
from helpers.manual_clock import ManualClock, SeededEntropy
from taskgate.telemetry.opentelemetry.settings import (
    Exporter,
    TracingSettings,
    TracingUnavailable,
    require_exporter,
)
from taskgate.telemetry.opentelemetry.tracer import OpenTelemetryTracing
from taskgate.telemetry.tracing import NO_TRACING, Tracing
from taskgate.wiring.observability import open_tracing

PACKAGES = Path(taskgate.__file__).parents[1]


def opened(settings: TracingSettings | None) -> Tracing:
    return open_tracing(settings, version="1", clock=ManualClock(), entropy=SeededEntropy())


def settings(exporter: Exporter) -> TracingSettings:
    return TracingSettings(exporter=exporter, endpoint=None, sample_ratio=1.0, trusts=True, records_arguments=False)


def test_none_is_there_where_none_is_wanted() -> None:
    assert opened(None) is NO_TRACING


async def test_it_is_there_where_it_is_wanted() -> None:
    tracing = opened(settings(Exporter.CONSOLE))
    assert isinstance(tracing, OpenTelemetryTracing)
    await tracing.close()


@pytest.mark.parametrize(
    ("exporter", "lacks"),
    [
        (Exporter.OTLP_HTTP, "opentelemetry.exporter.otlp.proto.http"),
        (Exporter.OTLP_GRPC, "opentelemetry.exporter.otlp.proto.grpc"),
        (Exporter.CONSOLE, "opentelemetry.sdk.trace.export"),
    ],
)
def test_what_is_not_installed_is_told_with_how_to_get_it(
    exporter: Exporter, lacks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_exporter(exporter)
    for name in [name for name in sys.modules if name.startswith(lacks)] or [lacks]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(TracingUnavailable, match=rf"^tracing.exporter: {exporter} needs .*'taskgate\[tracing\]'$"):
        opened(settings(exporter))


@pytest.mark.program
def test_nothing_of_it_is_loaded_where_none_is_wanted() -> None:
    """Neither its memory nor its time at the start is to be paid for by who does not want it."""
    code = (
        "import sys, taskgate.wiring.app, taskgate.telemetry.opentelemetry.settings\n"
        "print([name for name in sys.modules if name.split('.')[0] == 'opentelemetry'])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(PACKAGES)}, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"
