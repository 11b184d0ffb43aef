"""The Model Context Protocol as text: messages, names, headers, event streams, both eras. Pure.

`messages` and `jsonrpc` read and write one message; `meta` edits its `_meta`; `classify` finds its
era. `host_requests` and `server_messages` are the values that the rest of taskgate uses. `dialects`
has the protocols that `legacy` and `modern` implement; they translate between text and values.
`vocabulary` has all names. Users are the gateway, the listener and `upstream`.
"""
