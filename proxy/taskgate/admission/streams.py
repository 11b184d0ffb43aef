"""How many streams a caller has open, with which hosts of either era listen, and how many waits for results of tasks.

What must not live here: what is told on them (`listen`, `gateway/modern/subscriptions`, `following`).
"""

from collections import Counter
from typing import Final

from taskgate.admission.rules import RuntimeConfig
from taskgate.auth.context import AuthContext
from taskgate.errors import TooManyTasks
from taskgate.telemetry.events import CapRefused, EventSink


class OpenStreams:
    """Counts them. A caller who has none is not remembered."""

    def __init__(self, *, live: RuntimeConfig, event_sink: EventSink) -> None:
        self._live = live
        self._event_sink = event_sink
        self._streams: Counter[str] = Counter()
        self._waits: Counter[str] = Counter()
        self._of_extensions: Counter[str] = Counter()

    def one(self, caller: AuthContext) -> "Counted":
        """One more stream for the length of a block, however it ends. Raises TooManyTasks, of streams."""
        limit = self._live.now.streams
        if self._streams[caller.key] >= limit:
            raise self._refused("streams", "context", limit)
        return Counted(self._streams, caller.key)

    def of_extension(self, caller: AuthContext, mount: str) -> "Counted":
        """One more stream of an extension at that mount for the length of a block (X-EXT-32). Raises as `one`.

        There may be as many as of the others, which are counted apart.
        """
        key, limit = f"{mount} {caller.key}", self._live.now.streams
        if self._of_extensions[key] >= limit:
            raise self._refused("streams", "context", limit)
        return Counted(self._of_extensions, key)

    def wait(self, caller: AuthContext) -> "Counted":
        """One more wait for a result for the length of a block, however it ends. Raises TooManyTasks, of waits."""
        limit, all_limit = self._live.now.waits, self._live.now.all_waits
        if self._waits[caller.key] >= limit:
            raise self._refused("waits", "context", limit)
        if all_limit is not None and self.waits >= all_limit:
            raise self._refused("waits", "global", all_limit)
        return Counted(self._waits, caller.key, _ALL)

    def of(self, caller: AuthContext) -> int:
        """How many streams the caller has."""
        return self._streams[caller.key]

    @property
    def waits(self) -> int:
        """How many requests wait for results."""
        return self._waits[_ALL]

    @property
    def callers(self) -> int:
        """How many callers are remembered."""
        return len((self._streams.keys() | self._waits.keys()) - {_ALL})

    def _refused(self, what: str, scope: str, limit: int) -> TooManyTasks:
        self._event_sink.emit(CapRefused(what, scope))
        return TooManyTasks(limit, _WORDS[what], scope=scope)


class Counted:
    """A block that counts as one more under each key, from its beginning to its end."""

    __slots__ = ("_counts", "_keys")

    def __init__(self, counts: Counter[str], *keys: str) -> None:
        self._counts = counts
        self._keys = keys

    def __enter__(self) -> None:
        for key in self._keys:
            self._counts[key] += 1

    def __exit__(self, *raised: object) -> None:
        for key in self._keys:
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key]


_ALL: Final = ""
"""The key of all callers together: no caller's is empty."""
_WORDS: Final = {"streams": "streams", "waits": "waits for task results"}
