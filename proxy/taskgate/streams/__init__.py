"""HTTP exchanges with hosts and the event streams that they become.

`exchange` is the interface between the listener and the gateway. `event_stream` is what writers
see, `sse_connection` the queue of one connection. `resumable` has the streams of a session that its
host can resume, from an `event_log`; with a `shared_log` of `log_entries` also at another replica
(`handover`). `event_limits` has the largest events that hosts take, `bytes_in_flight` limits large
messages. `arrival` is the wait for the next request. The listener, the gateway, sessions and admission
are the users.
"""
