"""Sessions of hosts, and the server sessions behind them.

`registry` opens, finds and ends a `host_session`, which has `questions` of the server to the host.
`session_pool` has the server sessions of requests without a session. `binding` is what a call needs
of a session to run. `upstream_usage` counts sessions and requests of servers, `upstream_tracing`
traces their calls. The gateway and the lifecycle are the users.
"""
