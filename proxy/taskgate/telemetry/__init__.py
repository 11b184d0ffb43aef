"""Telemetry for operators: events, metrics, the audit log, spans and log lines.

The folders above emit `events` to an `EventSink`, each in the `request_context` of its request.
`metrics` counts events and `auditlog` records them. `span_annotations` adds them to spans, which
`opentelemetry` makes behind the port `tracing`. `ring` brings events to their readers, and `logs`
formats log lines.
"""
