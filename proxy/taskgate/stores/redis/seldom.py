"""Complaints for which there may be cause at every moment, told now and then.

What must not live here: what is complained of.
"""

import asyncio
import logging
from typing import Final

QUIET: Final = 60.0
"""Seconds for which the same complaint is not logged again."""

log = logging.getLogger("taskgate.stores")


class Complaint:
    """One text for the operator. Belongs to one event loop."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._told: float | None = None

    def make(self, error: Exception | None = None) -> None:
        """There is cause again; with the error, where nobody has foreseen it."""
        now = asyncio.get_running_loop().time()
        if self._told is None or now - self._told >= QUIET:
            self._told = now
            log.warning(self._text, exc_info=error)
