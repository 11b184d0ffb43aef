"""HTTP/1.1 to one server: requests, pooled connections, TLS and redirects.

`transport` is the `Transport` of Streamable HTTP, with its pool, retries and answers. `dialer` opens
connections. `connection` is one connection, with `heads` and `chunks` of its answers. `trust` is its
TLS. `sse` makes its requests by `transport` too. Sessions, tokens and messages are elsewhere.
"""
