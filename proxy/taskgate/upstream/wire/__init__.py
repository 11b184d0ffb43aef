"""Bytes to and from one server: HTTP/1.1, its connections and TLS. Knows no session, no token and no message."""
