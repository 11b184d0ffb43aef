"""I/O towards hosts: the public listener."""
