"""Log lines for which there may be cause at every moment, written now and then: `ThrottledLog`."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

QUIET: Final = 60.0
"""Seconds for which the same text is not logged again."""


class ThrottledLog:
    """One text for the operator, logged as a warning at most once in `quiet` seconds. Belongs to one event loop."""

    def __init__(self, log: logging.Logger, text: str, *, quiet: float = QUIET) -> None:
        self._log = log
        self._text = text
        self._quiet = quiet
        self._latest: float | None = None
        self._unlogged = 0

    def emit(self, extra: Mapping[str, Any] | None = None, error: Exception | None = None) -> None:
        """There is cause. `unlogged` counts how often there was since the line before; `error` is one not foreseen."""
        now = asyncio.get_running_loop().time()
        if self._latest is not None and now - self._latest < self._quiet:
            self._unlogged += 1
            return
        fields = dict(extra or {})
        if self._unlogged:
            fields["unlogged"] = self._unlogged
        self._latest, self._unlogged = now, 0
        self._log.warning(self._text, extra=fields, exc_info=error)
