"""HTTP/1.1 to one server: requests, pooled connections, TLS and redirects.

`transport` is the `Transport` of Streamable HTTP, with its retries. It takes connections from `pool`,
which opens them. `connection` is one connection on aiohttp's response parser, and reads its answers.
`trust` is its TLS. `sse` makes its requests by `transport` too. Sessions, tokens and messages are
elsewhere.
"""
