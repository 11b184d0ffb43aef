"""Lines to servers of HTTP+SSE (2024-11-05): one event stream to the gateway, and POSTs beside it."""
