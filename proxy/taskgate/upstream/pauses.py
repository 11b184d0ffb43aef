"""Pauses before a retry: bounds for streams that ended, and `share`, the jitter.

The jitter is a hash of what tells streams apart, not a random number. So the same stream always has
the same pauses. Used for streams of both eras, connections, polls and health checks.
"""

from hashlib import blake2b
from typing import Final

PAUSE_FIRST: Final = 0.1
PAUSE_MOST: Final = 30.0
"""Longest pause in seconds between a stream that ended and the next; it doubles while streams are
short."""

FOR_NOW: Final = frozenset({408, 429, *range(500, 1000)}) - {501}
"""HTTP statuses that refuse a stream for now; any other means that there is no such stream."""


def share(stream: str, turn: int) -> float:
    """Return the share of a pause to take, from one half to one.

    Differs between streams and turns, so that streams which broke together do not reconnect
    together.
    """
    digest = blake2b(f"{turn} {stream}".encode(errors="backslashreplace"), digest_size=4).digest()
    return 0.5 + int.from_bytes(digest) / 2**33
