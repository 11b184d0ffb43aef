"""The gateway: it takes each request from the listener, decides what it asks for, and answers it.

`pipeline` is the life of a request, with `Gateway`. `eras` has the interface of the two eras:
`legacy` and the folder `modern` decode a message, and encode the reply. `calls` handles every call,
with `promotion` and `listeners`; `task_requests` handles `tasks/*`. `get_streams` and
`session_messages` have more of the legacy era. `sweeper` runs the periodic work. Code here is
asynchronous and opens no socket and no database. `wiring` creates the objects.
"""
