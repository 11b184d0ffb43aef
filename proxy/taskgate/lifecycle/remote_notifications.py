"""The notifications of a task for hosts that wait at another replica: `RemoteNotifications`, and
`RemoteWait` on the waiting side.

A host may wait for a task's result at a replica that does not run the task. The waiting replica
announces this over the cluster bus. The running replica appends notifications to a shared log,
which the waiting one reads:

    waiting:  AwaitsNotes(task, session, wait, is_new)   bus, repeated every SAID_AGAIN seconds
    running:  append to the log `<wait>/notes`           shared log of event streams
    waiting:  read the log, send each note on the stream

The log belongs to the wait, which may move to other streams and replicas. The position of the last
note moves with it (`StreamOrigin.last_note`), so that no note is sent twice. Without a remote wait
nothing is written. `TaskStreams` has the object as `afar`; None without other replicas. `hearing`
makes the notifications.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Final, NamedTuple

from taskgate.clock import Clock
from taskgate.domain.record import TaskId, TaskRecord
from taskgate.errors import StoreUnavailable
from taskgate.stores.shared import StreamSegment
from taskgate.streams.event_log import RETENTION
from taskgate.streams.event_stream import ResumableEventStream
from taskgate.streams.handover import SharedResumableStreams
from taskgate.streams.log_entries import RELEASED, StreamOrigin
from taskgate.streams.resumable import ResumableStreams

SAID_AGAIN: Final = 20.0
"""Seconds between two announcements of a wait."""
LOOK: Final = timedelta(seconds=5)
RETRY: Final = 0.5
LAST_WORDS: Final = 1.0
"""Seconds to wait for notes that were sent before the task ended."""
MOST: Final = 10_000
"""The limit of tasks with remote waits."""


class AwaitsNotes(NamedTuple):
    """A bus message: the sender waits for a task, and reads its notes. It is repeated during the
    wait.

    `is_new` is whether the log of the wait does not exist yet.
    """

    task: str
    session: str
    wait: str
    is_new: bool


class _Ear(NamedTuple):
    """A wait at another replica, and until when it counts without another announcement."""

    session: str
    wait: str
    until: float


class RemoteNotifications:
    """The remote waits for tasks of this process, and the local waits for tasks of others."""

    def __init__(self, shared: SharedResumableStreams, *, clock: Clock) -> None:
        self._shared = shared
        self._clock = clock
        self._running: set[TaskId] = set()
        # By task, then by wait; the newest is last.
        self._ears: dict[TaskId, dict[str, _Ear]] = {}
        self._newest = 0
        shared.bus.subscribe(AwaitsNotes, self._awaited)
        shared.on_released(self._left)

    # --- the replica that runs the task -------------------------------------------------------------------------------

    def speak(self, task: TaskId) -> None:
        """Add a task that runs here."""
        self._running.add(task)

    def tell(self, task: TaskId, message: str) -> bool:
        """Send a notification to the newest remote wait of a task; return whether there is one."""
        ears = self._ears.get(task)
        if not ears:
            return False
        ear = next(reversed(ears.values()))
        if ear.until < self._clock.elapsed():
            del ears[ear.wait]
            return self.tell(task, message)
        self._say(ear, message.encode(errors="replace"))
        return True

    def fall_silent(self, task: TaskId) -> None:
        """Remove a task, and end the notes of its waits."""
        self._running.discard(task)
        for ear in self._ears.pop(task, {}).values():
            self._say(ear, RELEASED)

    def _left(self, session: str, about: StreamOrigin) -> None:
        """Handle that a wait moves to an unknown replica. It will read what is written from now on."""
        if about.task in self._running and about.wait is not None:
            self._awaited(AwaitsNotes(about.task, session, about.wait, True), "")

    def _awaited(self, word: AwaitsNotes, _: str) -> None:
        ear = _Ear(word.session, word.wait, self._clock.elapsed() + RETENTION.total_seconds())
        if word.is_new and word.wait not in self._ears.get(word.task, ()):
            self._shared.writer.open(word.session, _notes_of(word.wait), b"")
        if word.task not in self._running:
            self._say(ear, RELEASED)
            return
        self._ears.setdefault(word.task, {})[word.wait] = ear
        if len(self._ears) > MOST:
            del self._ears[next(iter(self._ears))]

    def _say(self, ear: _Ear, note: bytes) -> None:
        # Numbered by time, so that the next process that runs the task continues with larger
        # numbers.
        self._newest = max(self._newest + 1, int(self._clock.now().timestamp() * 1_000_000))
        self._shared.writer.append(ear.session, _notes_of(ear.wait), self._newest, note, at_once=True)

    # --- the replica at which a host waits ----------------------------------------------------------------------------

    def listen(
        self, resumable: ResumableStreams, feed: ResumableEventStream, session: str, heard: "Heard | None"
    ) -> "RemoteWait":
        """Create a local wait on a stream; it must be closed. `heard` is given if it began
        elsewhere.
        """
        return RemoteWait(self._shared, self._awaited, _Stream(resumable, feed, session), heard)


class Heard(NamedTuple):
    """The state of a wait that moved: its name, the position of the last note, and how many more
    notes the host has received.
    """

    wait: str
    place: int = 0
    ahead: int = 0


class _Stream(NamedTuple):
    """A stream that waits for a task, and its session."""

    resumable: ResumableStreams
    feed: ResumableEventStream
    session: str


class RemoteWait:
    """One wait for a task that runs elsewhere, or may come to. `awaited` announces it in this
    process.
    """

    def __init__(
        self,
        shared: SharedResumableStreams,
        awaited: Callable[[AwaitsNotes, str], None],
        stream: _Stream,
        heard: Heard | None,
    ) -> None:
        self._shared = shared
        self._awaited = awaited
        self._resumable, self._feed, self._session = stream
        self._has_moved = heard is not None
        self._wait, self._place, self._ahead = heard or Heard(stream.feed.name)
        self._holder: str | None = None
        self._task: TaskId | None = None
        self._is_new = False
        self._is_silent = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None

    def follow(self, record: TaskRecord) -> bool:
        """Announce the wait to the process that runs the task, if that has changed.

        Returns whether notes arrive through here. Once they do, they always do, to stay in order.
        """
        holder = None if record.lease is None else record.lease.holder
        if record.status.is_terminal or holder is None:
            return self._reading is not None
        if self._reading is None and not self._has_moved and holder == self._shared.bus.holder:
            return False
        if self._reading is None:
            self._task, self._holder = record.id, holder
            self._reading = asyncio.get_running_loop().create_task(self._read())
        elif holder != self._holder:
            self._holder = holder
            self._is_silent.clear()
            self._say()
        return True

    async def last_words(self) -> None:
        """Wait briefly for the last notes, because the task has ended."""
        if self._reading is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS):
                await self._is_silent.wait()
        self._shared.writer.end(self._session, _notes_of(self._wait), self._place + 1, RELEASED)

    async def close(self) -> None:
        """Stop reading."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])

    def _say(self) -> None:
        assert self._task is not None
        word = AwaitsNotes(self._task, self._session, self._wait, self._is_new)
        if self._holder == self._shared.bus.holder:
            self._awaited(word, self._holder)
        else:
            self._shared.bus.send(word, to=self._holder)

    async def _read(self) -> None:
        """Read the log, and repeat the announcement periodically."""
        stream, loop, said_at = _notes_of(self._wait), asyncio.get_running_loop(), 0.0
        while True:
            try:
                passage = await self._shared.log.read(self._session, stream, after=self._place)
                self._is_new = passage is None
                if passage is not None:
                    self._hear(passage)
                if not said_at or loop.time() - said_at > SAID_AGAIN:
                    said_at = loop.time()
                    self._say()
                await self._shared.log.wait_for_events(self._session, stream, timeout=LOOK)
            except StoreUnavailable:
                await asyncio.sleep(RETRY)

    def _hear(self, passage: StreamSegment) -> None:
        for self._place, note in passage.events:
            if note == RELEASED:
                self._is_silent.set()
            elif self._ahead:
                self._ahead -= 1
            else:
                self._resumable.send_note(self._feed, note.decode(), self._place)


def _notes_of(wait: str) -> str:
    return f"{wait}/notes"
