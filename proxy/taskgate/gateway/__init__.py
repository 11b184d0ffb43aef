"""The gateway: it takes each request from the listener, decides what it asks for, and answers it.

`pipeline` is the life of a request, with `Gateway`. `legacy` and the folder `modern` are the two
eras behind it. `relay` sends plain calls of legacy hosts; `outbound_calls` and `host_listener` have
what the calls of both eras share. `resuming` and `listen` serve GET streams, `notes` and
`session_messages` take what needs no answer. `sweeper` runs the periodic work. Code here is
asynchronous and opens no socket and no database. `wiring` creates the objects.
"""
