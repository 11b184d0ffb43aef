"""Spans by OpenTelemetry: the implementation of the port `telemetry.tracing`.

`setup` opens it for `wiring`, and loads `sdk` only if tracing is on: the SDK is an optional
dependency. `sdk` has the sampler, the exporters and the provider. `tracer` makes spans by the
semantic conventions for MCP, with the names in `attributes`. `settings` has the values of the
configuration section `tracing`.
"""
