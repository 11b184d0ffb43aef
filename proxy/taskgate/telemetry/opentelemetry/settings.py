"""What tracing is told by its operator. Values only, without OpenTelemetry."""

from dataclasses import dataclass
from enum import StrEnum


class Exporter(StrEnum):
    """Where spans go, and how."""

    OTLP_HTTP = "otlp_http"
    OTLP_GRPC = "otlp_grpc"
    CONSOLE = "console"


@dataclass(frozen=True, slots=True, kw_only=True)
class TracingSettings:
    """`endpoint` None leaves it to the environment; `sample_ratio` is of the traces that begin here."""

    exporter: Exporter
    endpoint: str | None
    sample_ratio: float
    trusts: bool
    records_arguments: bool
