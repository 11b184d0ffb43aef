"""HTTP/1.1 to one server: requests, pooled connections, TLS and redirects.

`transport` is the `Transport` of Streamable HTTP, with its retries. It takes connections from `pool`,
which opens them. `connection` is one connection, with `heads` and `chunks` of its answers; `incoming` is an answer for
its reader. `trust` is its TLS. `sse` makes its requests by `transport` too. Sessions, tokens and messages are
elsewhere.
"""
