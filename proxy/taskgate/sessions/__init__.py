"""Sessions of hosts, and the server sessions behind them.

`registry` opens, finds and ends a `host_session`, which has `questions` of the server to the host.
`binding` is what a call needs of a session to run. `upstream_usage` counts sessions and requests of
servers, `upstream_tracing` traces their calls. The gateway and the lifecycle are the users.
"""
