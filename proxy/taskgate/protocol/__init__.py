"""The Model Context Protocol as text: messages, names, headers, event streams, both eras. Pure.

`messages` and `jsonrpc` read and write one message; `meta` edits its `_meta`; `classify` finds its
era. `host_requests` and `server_messages` are the values that the rest of taskgate uses. `legacy` and
`modern` translate between text and values: each has one dialect towards hosts (`downstream`) and
one towards servers (`upstream`). `vocabulary` has all names. Users are the gateway, the listener
and `upstream`.
"""
