"""Credentials that the gateway shows to a server, for itself and for the caller.

`speaking` makes the headers of requests, `tokens` caches bearer tokens, and `grants` requests them
from a token endpoint. `SessionTransport` asks for them for each request of a session. The host's own
credentials are not forwarded.
"""
