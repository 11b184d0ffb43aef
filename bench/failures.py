"""What ends a benchmark early."""


class BenchFailed(Exception):
    """A program did not start, or answered wrongly; its text says which and how."""
