"""Servers of HTTP+SSE (2024-11-05): one event stream from the server, and POSTs to it.

`channel` has the message channel over one stream, and the provider that opens one for each session.
They implement the interfaces of `duplex.base`; `client` puts them under a
`ChannelTransport`. HTTP itself is in `wire`.
"""
