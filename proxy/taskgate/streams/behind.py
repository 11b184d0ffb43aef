"""Writes the entries of streams into the log that all processes share, soon after they were said, and in order.

Nobody waits for it but who ends: what is said stays as quick as it is without. What must not live here: what an entry
means (`entries`). What holds: each stream's entries are written in their order, whatever the store does meanwhile, and
what waits for a store that does not answer is bounded: a stream that loses some of it is not told wholly any more.
"""

import asyncio
from datetime import timedelta
from logging import getLogger
from typing import Final

from taskgate.errors import StoreUnavailable
from taskgate.stores.shared import StreamLog
from taskgate.streams.event_log import KEEP
from taskgate.system.background import Background
from taskgate.telemetry.request_context import nobody

LINGER: Final = 0.05
"""Seconds in which entries gather before they are written together."""
RETRY: Final = 0.5
"""Seconds until a store that did not answer is asked again."""
WAITING_BYTES: Final = 16 * 1024 * 1024
"""What may wait for a store, of all streams."""
AT_ONCE: Final = 8
"""Streams that are written at the same time."""
LEASE: Final = 2 * KEEP
"""How long a stream stays in the log without a sign of life; see `touch`."""

Key = tuple[str, str]

log = getLogger("taskgate.streams")


class _Waiting:
    """What is to be written of one stream; `about` where it has yet to begin."""

    __slots__ = ("about", "entries", "is_being_written", "keep", "over", "size", "timer", "touched")

    def __init__(self) -> None:
        self.about: bytes | None = None
        self.entries: list[tuple[int, bytes]] = []
        self.size = 0
        self.over = False
        self.touched = False
        self.keep = LEASE
        self.is_being_written = False
        self.timer: asyncio.TimerHandle | None = None

    @property
    def is_empty(self) -> bool:
        return self.about is None and not (self.entries or self.over or self.touched)


class WriteBehind:
    """The streams of this process on their way into the log. `holder` names the process."""

    def __init__(self, log: StreamLog, holder: str) -> None:
        self._log = log
        self._holder = holder
        self._waiting: dict[Key, _Waiting] = {}
        self._size = 0
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._background = Background()
        self._has_told = False

    def begin(self, session: str, stream: str, about: bytes) -> None:
        """A stream begins."""
        self._of((session, stream)).about = about
        self._soon((session, stream))

    def append(self, session: str, stream: str, number: int, entry: bytes, *, at_once: bool = False) -> None:
        """Keep an entry; `at_once` does not wait for more of them."""
        key = session, stream
        waiting = self._of(key)
        waiting.entries.append((number, entry))
        waiting.size += len(entry)
        self._size += len(entry)
        if self._size > WAITING_BYTES:
            self._drop(waiting)
        if at_once:
            self._now(key)
        else:
            self._soon(key)

    def end(self, session: str, stream: str, number: int, entry: bytes) -> None:
        """Keep the last entry."""
        self._of((session, stream)).over = True
        self.append(session, stream, number, entry, at_once=True)

    def touch(self, session: str, stream: str) -> None:
        """It goes on, though nothing was said of late."""
        self._of((session, stream)).touched = True
        self._soon((session, stream))

    def hurry(self, session: str, stream: str) -> None:
        """Write what waits of a stream now."""
        if (session, stream) in self._waiting:
            self._now((session, stream))

    async def flush(self, within: timedelta) -> bool:
        """Write all that waits; whether that was done in time."""
        for key in tuple(self._waiting):
            self._now(key)
        if self._background.running:
            await asyncio.wait(self._background.running, timeout=within.total_seconds())
        return not self._waiting

    async def close(self) -> None:
        """Write nothing any more."""
        for waiting in self._waiting.values():
            if waiting.timer is not None:
                waiting.timer.cancel()
        self._waiting.clear()
        await self._background.close()

    def _of(self, key: Key) -> _Waiting:
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = _Waiting()
        return waiting

    def _soon(self, key: Key) -> None:
        waiting = self._waiting[key]
        if waiting.timer is None and not waiting.is_being_written:
            waiting.timer = asyncio.get_running_loop().call_later(LINGER, self._now, key)

    def _now(self, key: Key) -> None:
        waiting = self._waiting.get(key)
        if waiting is None or waiting.is_being_written:
            return
        if waiting.timer is not None:
            waiting.timer.cancel()
        waiting.timer, waiting.is_being_written = None, True
        # It goes on for whoever says the next.
        with nobody():
            self._background.run(lambda: self._write(key, waiting))

    def _drop(self, waiting: _Waiting) -> None:
        """Give up what waits of one stream, but for its newest."""
        if not self._has_told:
            self._has_told = True
            log.warning("stream events are lost to other replicas: the store does not accept them")
        kept = waiting.entries[-1:]
        waiting.entries = kept
        size = sum(len(entry) for _, entry in kept)
        self._size -= waiting.size - size
        waiting.size = size

    async def _write(self, key: Key, waiting: _Waiting) -> None:
        while not waiting.is_empty:
            try:
                async with self._turns:
                    await self._write_some(key, waiting)
            except StoreUnavailable:
                await asyncio.sleep(RETRY)
        self._has_told = False
        del self._waiting[key]

    async def _write_some(self, key: Key, waiting: _Waiting) -> None:
        if waiting.about is not None:
            await self._log.begin(*key, holder=self._holder, about=waiting.about, keep=waiting.keep)
            waiting.about = None
        # What is not written stays in its place, before what comes meanwhile.
        entries, over = tuple(waiting.entries), waiting.over
        if entries or over or waiting.touched:
            await self._log.append(*key, entries, over=over, keep=KEEP if over else waiting.keep)
            waiting.over, waiting.touched = waiting.over and not over, False
            newest = entries[-1][0] if entries else 0
            waiting.entries = [each for each in waiting.entries if each[0] > newest]
            left = sum(len(entry) for _, entry in waiting.entries)
            self._size -= waiting.size - left
            waiting.size = left
