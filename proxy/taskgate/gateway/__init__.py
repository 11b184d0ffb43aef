"""What the gateway does. Asynchronous, but no socket, no SQL and no JSON shapes: those stand behind ports."""
