"""The audit log: one line for each event that an operator must be able to prove later.

`mapping` turns gateway events into audit events, and `formats` turns those into documents: what a
line says. `log` takes events on the event loop; a `sink_queue` holds what waits for one sink. A
`chain_writer` makes lines, each chained to the one before, and some signed (`chain`).
It makes usual lines on the event loop. The thread of the sink makes the others, and writes all.
`sinks` are where lines go, `recovery` reads how a file ended. `verification` finds what was changed
afterwards.
"""
