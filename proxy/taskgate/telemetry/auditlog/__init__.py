"""The audit log: what an operator is to be able to prove later, one line for each thing that happened.

`events` turns facts into events and `rendering` events into documents: what a line says. The rest is how lines are
kept. `log` takes facts on the event loop, a `lane` has what waits for one sink, a `worker` is the thread that writes
it, and a `book` makes lines of events there, each chained to the one before (`chain`) and some of them signed (`keys`).
`files` and `sinks` are where lines go, `recollection` what a file still knows of itself. `verifying` finds what was
changed afterwards.
"""
