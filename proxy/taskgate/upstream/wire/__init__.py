"""HTTP/1.1 to one server: requests, pooled connections, TLS and redirects.

`transport` is the `Transport` of Streamable HTTP. It makes requests through `origin`, which takes
connections from `pool`. `connection` is one connection on aiohttp's response parser, `dialing`
opens it, `trust` is its TLS. `answer` reads a response, and `retrying` has the pauses between
attempts. `sse` uses `origin` and `answer` too. Sessions, tokens
and messages are elsewhere.
"""
