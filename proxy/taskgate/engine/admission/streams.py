"""How many streams a caller has open: those that wait for what comes, with which hosts of either era listen.

What must not live here: what is told on them (`listen`, `stateless/subscriptions`).
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from taskgate.auth.context import AuthContext
from taskgate.engine.admission.rules import Live
from taskgate.errors import TooManyTasks
from taskgate.telemetry.audit import Audit, CapRefused


class OpenStreams:
    """Counts them. Who has none is not remembered."""

    def __init__(self, *, live: Live, audit: Audit) -> None:
        self._live = live
        self._audit = audit
        self._open: Counter[str] = Counter()

    @contextmanager
    def one(self, caller: AuthContext) -> Iterator[None]:
        """One more for the length of the block, however it ends. Raises TooManyTasks, of streams, before it begins."""
        limit, key = self._live.now.streams, caller.key
        if self._open[key] >= limit:
            self._audit.record(CapRefused("streams", "context"))
            raise TooManyTasks(limit, "streams")
        self._open[key] += 1
        try:
            yield
        finally:
            self._open[key] -= 1
            if not self._open[key]:
                del self._open[key]

    def of(self, caller: AuthContext) -> int:
        """How many the caller has."""
        return self._open.get(caller.key, 0)
