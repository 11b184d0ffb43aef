"""How long to wait before a stream that ended is asked for again, in either era. Knows no stream.

Chance is not asked for: what tells streams apart is as good, and gives the same stream the same pauses.
"""

from hashlib import blake2b
from typing import Final

PAUSE_FIRST: Final = 0.1
PAUSE_MOST: Final = 30.0
"""Seconds, at most, between a stream that ended and the next one; doubles while they do not last."""

FOR_NOW: Final = frozenset({408, 429, *range(500, 1000)}) - {501}
"""Refusals of the moment; any other means that there is no such stream."""


def share(stream: str, turn: int) -> float:
    """How much of a pause to take, from half to all of it.

    Differs between streams and turns, so that streams which broke together do not come back together.
    """
    digest = blake2b(f"{turn} {stream}".encode(errors="backslashreplace"), digest_size=4).digest()
    return 0.5 + int.from_bytes(digest) / 2**33
