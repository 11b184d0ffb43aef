"""Transport over message channels, for servers that are not spoken to by Streamable HTTP.

A message channel is a two-way stream of whole messages: the pipes of a program (`stdio`) or an
event stream with its POSTs (`sse`). `base` has their interfaces. `dispatcher` is JSON-RPC on one
channel, with its requests (`pending`) and all else that the server works on (`outstanding`).
Several sessions may share a channel: `sharing` decides which of them gets a message, since nothing
in a notification says it. `session` is one legacy session, `transport` the channels to one server.
`peek` reads messages.
"""
