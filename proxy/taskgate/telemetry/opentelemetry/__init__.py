"""Spans as OpenTelemetry has them: loaded where tracing is on, and not otherwise."""
