"""A stream log that replicas share, so that hosts can resume streams at any replica.

`SharedEventLog` is the log of one session. Its events stay in memory, for hosts that reconnect here.
They are also written to the shared store, as entries (`log_entries`). One `EventLogWriter` per
process writes them, soon after and in order (write-behind). `RemoteConnection` stands for a
connection that another replica has to the host.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from datetime import timedelta
from logging import getLogger
from typing import ClassVar, Final

from taskgate.clock import Clock
from taskgate.errors import StoreUnavailable
from taskgate.stores.shared import StreamLog
from taskgate.streams.event_log import RETENTION, EventBudget, MemoryEventLog
from taskgate.streams.log_entries import DIRECT, FINAL, RELEASED, STOP, StreamOrigin, encode_origin, event_entry
from taskgate.streams.sse_connection import SseConnection
from taskgate.system.background import Background
from taskgate.telemetry.request_context import no_request

QUIET: Final = 120.0
"""Seconds without an entry after which an open stream is touched, so that it does not expire."""

LINGER: Final = 0.05
"""Seconds in which entries gather to be written together."""
RETRY: Final = 0.5
"""Seconds until the next attempt after the store failed."""
WAITING_BYTES: Final = 16 * 1024 * 1024
"""Bytes that may wait for the store, of all streams."""
AT_ONCE: Final = 8
"""Streams that are written at the same time."""
LEASE: Final = 2 * RETENTION
"""How long an open stream stays in the store without a write or a touch."""

StreamKey = tuple[str, str]
"""The session and the name of a stream."""

log = getLogger("taskgate.streams")


class SharedEventLog(MemoryEventLog):
    """The EventLog of one session, whose entries other replicas read by the session's id.

    `_newest` has, for each open stream, its last number and when it was used, the oldest first.
    `_forwarded` are the streams that another replica sends to their host at the moment.
    """

    def __init__(
        self, clock: Clock, *, budget: EventBudget, caller: str, session: str, writer: "EventLogWriter"
    ) -> None:
        super().__init__(clock, budget=budget, caller=caller)
        self._session = session
        self._writer = writer
        self._newest: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._forwarded: set[str] = set()
        self.note_number: int | None = None
        """The number of a task's note while it is being sent, else None; `append` stores it."""

    def open(self, stream: str, origin: StreamOrigin) -> None:
        """Create a stream in the shared store, with its origin, before its first event."""
        self._mark_used(stream, 0)
        self._writer.open(self._session, stream, encode_origin(origin))

    def append(self, stream: str, number: int, event: bytes) -> None:
        super().append(stream, number, event)
        self._mark_used(stream, number)
        entry = event_entry(event, self.note_number)
        self._writer.append(self._session, stream, number, entry, at_once=stream in self._forwarded)

    def end(self, stream: str, number: int, event: bytes | None) -> None:
        super().end(stream, number, event)
        self._write_end(stream, number if event is not None else number + 1, FINAL + (event or b""))

    def delete(self, stream: str) -> None:
        # The entries stay in the shared store. A replica that reads RELEASED may continue the stream.
        super().delete(stream)
        if stream in self._newest:
            self._write_end(stream, self._newest[stream][0] + 1, RELEASED)

    def append_direct(self, stream: str, number: int, entry: bytes) -> None:
        """Write an entry for one forwarder; it is not stored for replay."""
        self._mark_used(stream, number)
        self._writer.append(self._session, stream, number, entry, at_once=True)

    def set_forwarded(self, stream: str, *, is_forwarded: bool) -> None:
        """Set whether another replica forwards the stream; its entries are then written at once."""
        if is_forwarded and stream in self._newest:
            self._forwarded.add(stream)
            self._writer.write_now(self._session, stream)
        else:
            self._forwarded.discard(stream)

    def purge(self) -> None:
        # It also touches open streams, which the store would otherwise expire.
        super().purge()
        quiet = self._clock.elapsed() - QUIET
        while self._newest:
            stream, (number, since) = next(iter(self._newest.items()))
            if since >= quiet:
                return
            self._mark_used(stream, number)
            self._writer.touch(self._session, stream)

    def _mark_used(self, stream: str, number: int) -> None:
        self._newest[stream] = number, self._clock.elapsed()
        self._newest.move_to_end(stream)

    def _write_end(self, stream: str, number: int, entry: bytes) -> None:
        self._newest.pop(stream, None)
        self._forwarded.discard(stream)
        self._writer.end(self._session, stream, number, entry)


class RemoteConnection(SseConnection):
    """The connection to the host that another replica has under the name `forwarder`.

    The forwarder reads the stored events in the shared log by itself. Everything else, such as
    pieces without an event id, is written into the log with `write`, addressed to it. `seen_at` is
    the time of its last heartbeat.
    """

    __slots__ = ("_name", "_write", "forwarder", "seen_at")

    is_remote: ClassVar[bool] = True

    def __init__(self, forwarder: str, write: Callable[[bytes], None], *, seen_at: float) -> None:
        super().__init__()
        self.forwarder = forwarder
        self.seen_at = seen_at
        self._name = forwarder.encode()
        self._write = write

    def announce(self) -> None:
        """Confirm in the log that the forwarder has the stream, and no other connection has it."""
        self._write(b"%b%b " % (DIRECT, self._name))

    def send(self, piece: bytes) -> bool:
        self._write(b"%b%b %b" % (DIRECT, self._name, piece))
        return True

    def abort(self) -> None:
        self._write(STOP + self._name)
        super().abort()

    def close(self, last: bytes = b"") -> None:
        # Nothing is written: the last event is in the log, and the forwarder finds it there.
        super().close()


# --- the writer -------------------------------------------------------------------------------------------------------


class _PendingWrites:
    """The pending writes of one stream.

    - `about`: the encoded origin, set until the store has created the stream.
    - `entries`: what is to be appended, with numbers; `size` is their bytes.
    - `over`: whether the stream ends with them; `touched`: whether its lease is to be renewed.
    - `timer`: starts the write; None if it is not scheduled, or runs (`is_being_written`).
    """

    __slots__ = ("about", "entries", "is_being_written", "over", "size", "timer", "touched")

    def __init__(self) -> None:
        self.about: bytes | None = None
        self.entries: list[tuple[int, bytes]] = []
        self.size = 0
        self.over = False
        self.touched = False
        self.is_being_written = False
        self.timer: asyncio.TimerHandle | None = None

    @property
    def is_empty(self) -> bool:
        return self.about is None and not (self.entries or self.over or self.touched)


class EventLogWriter:
    """The writer of the entries of all streams of a process to the shared log. `holder` names the process.

    Senders never wait for the store; only a shutdown does (`flush`). The entries of one stream are
    written in their order. What waits for a failing store is limited: a stream that loses entries
    can no longer be resumed as a whole.
    """

    def __init__(self, log: StreamLog, holder: str) -> None:
        self._log = log
        self._holder = holder
        self._pending: dict[StreamKey, _PendingWrites] = {}
        self._size = 0
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._background = Background()
        self._has_warned = False

    def open(self, session: str, stream: str, about: bytes) -> None:
        """Create a stream with the description `about`."""
        self._of((session, stream)).about = about
        self._schedule((session, stream))

    def append(self, session: str, stream: str, number: int, entry: bytes, *, at_once: bool = False) -> None:
        """Write an entry; with `at_once`, without a wait for more entries."""
        key = session, stream
        pending = self._of(key)
        pending.entries.append((number, entry))
        pending.size += len(entry)
        self._size += len(entry)
        if self._size > WAITING_BYTES:
            self._drop(pending)
        if at_once:
            self._start(key)
        else:
            self._schedule(key)

    def end(self, session: str, stream: str, number: int, entry: bytes) -> None:
        """Write the last entry of a stream, without a wait for more."""
        self._of((session, stream)).over = True
        self.append(session, stream, number, entry, at_once=True)

    def touch(self, session: str, stream: str) -> None:
        """Renew the lease of a quiet stream."""
        self._of((session, stream)).touched = True
        self._schedule((session, stream))

    def write_now(self, session: str, stream: str) -> None:
        """Write what waits of a stream now."""
        if (session, stream) in self._pending:
            self._start((session, stream))

    async def flush(self, within: timedelta) -> bool:
        """Write all that waits; returns whether that was done in time."""
        for key in tuple(self._pending):
            self._start(key)
        if self._background.running:
            await asyncio.wait(self._background.running, timeout=within.total_seconds())
        return not self._pending

    async def close(self) -> None:
        """Stop, without another write."""
        for pending in self._pending.values():
            if pending.timer is not None:
                pending.timer.cancel()
        self._pending.clear()
        await self._background.close()

    def _of(self, key: StreamKey) -> _PendingWrites:
        pending = self._pending.get(key)
        if pending is None:
            pending = self._pending[key] = _PendingWrites()
        return pending

    def _schedule(self, key: StreamKey) -> None:
        pending = self._pending[key]
        if pending.timer is None and not pending.is_being_written:
            pending.timer = asyncio.get_running_loop().call_later(LINGER, self._start, key)

    def _start(self, key: StreamKey) -> None:
        pending = self._pending.get(key)
        if pending is None or pending.is_being_written:
            return
        if pending.timer is not None:
            pending.timer.cancel()
        pending.timer, pending.is_being_written = None, True
        # The task also writes what other requests send, so it belongs to none of them.
        with no_request():
            self._background.run(lambda: self._write(key, pending))

    def _drop(self, pending: _PendingWrites) -> None:
        """Drop what waits of one stream, except the newest entry.

        The gap in the numbers tells readers that the stream is not whole.
        """
        if not self._has_warned:
            self._has_warned = True
            log.warning("stream events are lost to other replicas: the store does not accept them")
        left = pending.entries[-1:]
        pending.entries = left
        size = sum(len(entry) for _, entry in left)
        self._size -= pending.size - size
        pending.size = size

    async def _write(self, key: StreamKey, pending: _PendingWrites) -> None:
        while not pending.is_empty:
            try:
                async with self._turns:
                    await self._write_some(key, pending)
            except StoreUnavailable:
                await asyncio.sleep(RETRY)
        self._has_warned = False
        del self._pending[key]

    async def _write_some(self, key: StreamKey, pending: _PendingWrites) -> None:
        if pending.about is not None:
            await self._log.begin(*key, holder=self._holder, about=pending.about, keep=LEASE)
            pending.about = None
        # An entry leaves the list only after it was written; new ones come behind it meanwhile.
        entries, over = tuple(pending.entries), pending.over
        if entries or over or pending.touched:
            await self._log.append(*key, entries, over=over, keep=RETENTION if over else LEASE)
            pending.over, pending.touched = pending.over and not over, False
            newest = entries[-1][0] if entries else 0
            pending.entries = [each for each in pending.entries if each[0] > newest]
            left = sum(len(entry) for _, entry in pending.entries)
            self._size -= pending.size - left
            pending.size = left
