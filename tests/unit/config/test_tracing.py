"""What the section `tracing` takes, and what tracing is told of it."""

from typing import Any

import pytest
from pydantic import ValidationError

from taskgate.config.sections.telemetry import TracingSection
from taskgate.telemetry.opentelemetry.settings import Exporter, TracingSettings


def test_nothing_is_traced_unless_somebody_wants_it() -> None:
    assert TracingSection().to_settings() is None


def test_what_is_written_is_what_tracing_is_told() -> None:
    written = {
        "enabled": True,
        "exporter": "otlp_grpc",
        "endpoint": "https://collector.example.com:4317",
        "sample_ratio": 1,
        "trust_incoming": False,
        "record_arguments": True,
    }
    assert TracingSection.model_validate(written).to_settings() == TracingSettings(
        exporter=Exporter.OTLP_GRPC,
        endpoint="https://collector.example.com:4317",
        sample_ratio=1.0,
        trusts=False,
        records_arguments=True,
    )


def test_the_defaults_are_told_as_they_are() -> None:
    assert TracingSection(enabled=True).to_settings() == TracingSettings(
        exporter=Exporter.OTLP_HTTP, endpoint=None, sample_ratio=0.1, trusts=True, records_arguments=False
    )


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("enabled", "yes", "valid boolean"),
        ("exporter", "zipkin", "'otlp_http', 'otlp_grpc' or 'console'"),
        ("endpoint", "localhost:4318", "must be an absolute http or https URL"),
        ("endpoint", "http://user:secret@localhost", "must not hold a user name or password"),
        ("sample_ratio", 1.5, "must be between 0 and 1"),
        ("sample_ratio", "all", "must be a number"),
        ("ratio", 1, "Extra inputs"),
    ],
)
def test_what_makes_no_sense_is_refused(key: str, value: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TracingSection.model_validate({key: value})
