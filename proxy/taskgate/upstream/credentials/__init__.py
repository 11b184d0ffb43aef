"""What the gateway shows of itself to a server, and of whom it speaks for. Moves no bytes of a call itself."""
