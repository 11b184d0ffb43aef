"""The HTTP side towards hosts, on aiohttp: the public listener and the operators' listener.

`listener` opens and closes the public one. `acceptor` accepts connections within
`connection_limits`; `tls` adds TLS; `protocol` is one connection. `endpoint` takes a request from
its head to the answer: checks (`door`), body (`body`), answer (`answers`, `stream`).
`operations` is the operators' listener, with health, metrics, reload and drain. `wiring` creates
both.
"""
