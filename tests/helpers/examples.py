"""On how many examples what is expensive is tried: a part of what the profile of the run says."""

from typing import Final

from hypothesis import settings

_USUAL: Final = 100


def examples(usual: int) -> int:
    """How many: `usual`, where others are tried on a hundred; at least five."""
    return max(5, usual * (settings.default or settings()).max_examples // _USUAL)
