"""Transport over message channels, for servers that are not spoken to by Streamable HTTP.

A message channel is a two-way stream of whole messages: the pipes of a program (`stdio`) or an
event stream with its POSTs (`sse`). `base` has their interfaces. `transport.DuplexTransport` gives
sessions the HTTP-like interface of `Transport`. Several sessions may share a channel: `company`
decides which of them gets a message, since nothing in a notification says it. `channel` is one
channel with its requests (`waiting`, `replies`, `given_up`), `session` one legacy session on it,
`pending_requests` one modern request. `words`, `contents` and `strange` read messages.
"""
