"""The composition root: from a configuration to a running gateway, and to its end.

`app` has `Service`, which opens, drains and closes one gateway; `cli` and the tests use it. `build`
creates the objects; `authentication`, `upstreams` and `observability` create those for callers,
servers and telemetry. `reload` applies another configuration. `shutdown` has the signals, the drain
and the order of closing.
"""
