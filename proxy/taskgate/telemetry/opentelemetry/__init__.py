"""Spans by OpenTelemetry: the implementation of the port `telemetry.tracing`.

`wiring` loads `sdk` only if tracing is on: the SDK is an optional dependency. `sdk` has the sampler,
the exporters and the provider. `tracer` makes spans by the semantic conventions for MCP. `settings`
has the values of the configuration section `tracing`.
"""
