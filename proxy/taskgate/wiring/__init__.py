"""The composition root: from a configuration to a running gateway, and to its end.

`app` has `Service`, which opens, drains and closes one gateway; `cli` and the tests use it. `build`
and `core` create the objects, `authentication` and `mounting` those for callers and servers,
`observation` and `auditing` those for telemetry. `reload` applies another configuration. `parting`
and `signals` are the shutdown, `sockets` the listen addresses.
"""
