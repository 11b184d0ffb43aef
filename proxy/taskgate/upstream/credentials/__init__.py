"""Credentials that the gateway shows to a server, for itself and for the caller.

`speaking` adds headers to requests, `tokens` caches bearer tokens, and `grants` requests them from
a token endpoint. `http` puts the transport of `speaking` around that of a session. The host's own
credentials are not forwarded.
"""
