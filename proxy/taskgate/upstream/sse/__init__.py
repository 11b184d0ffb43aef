"""Servers of HTTP+SSE (2024-11-05): one event stream from the server, and POSTs to it.

`provider` opens a stream for each session, `channel` is one stream with its address for POSTs, and
`trouble` has the failures. They implement the message channels of `duplex.base`; `transport_choice`
puts them under a `DuplexTransport`. HTTP itself is in `wire`.
"""
