"""One event stream of a host: what is said on it, its connection, and what is kept so that it can be taken up again."""
