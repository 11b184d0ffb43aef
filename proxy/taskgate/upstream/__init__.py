"""Connections to MCP servers: an `Upstream` for each configured server, and the sessions with it.

`base` has the interfaces: `Upstream`, `UpstreamSession` and, below a session, `Transport`. `client`
builds an upstream from its settings. `legacy` and `modern` have the sessions of the two eras; `era`
finds out which era a server speaks. A transport moves bytes: `wire` over HTTP, `duplex` over
message channels to programs (`stdio`) and HTTP+SSE servers (`sse`). Sessions reach it through
`SessionTransport`, with identity, credentials and circuit breaker; `health` checks the server. Used by
`gateway`, `lifecycle` and `sessions`; built by `wiring`. The meaning of a message is decided in
`protocol`.
"""
