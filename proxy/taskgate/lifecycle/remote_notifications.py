"""Notes of tasks on their way from the process that runs a task to those where hosts wait for it.

Made once for a process, where there is a log that processes share. `TaskStreams` has it as `afar`, where `following`
finds it, too.

Who waits says so to whoever runs the task, and reads a log of that wait, which moves with the wait from stream to
stream and from process to process; each note's place in it goes along with the stream (`StreamOrigin.last_note`), so
that none is heard twice. Nothing is sent where nobody waits elsewhere. What must not live here: what a note says
(`hearing`), and which stream of this process has it (`task_streams`).
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
"""Seconds after which who waits says so again."""
LOOK: Final = timedelta(seconds=5)
RETRY: Final = 0.5
LAST_WORDS: Final = 1.0
"""Seconds that notes have to arrive which were said before the task ended."""
MOST: Final = 10_000
"""Tasks that are waited for elsewhere, as far as they are remembered."""


class AwaitsNotes(NamedTuple):
    """The sender has a stream that waits for a task, and hears its notes; said again while it does.

    `is_new` is whether there is no log of the wait yet.
    """

    task: str
    session: str
    wait: str
    is_new: bool


class _Ear(NamedTuple):
    """A wait elsewhere, and until when it counts without being said again."""

    session: str
    wait: str
    until: float


class RemoteNotifications:
    """What this process has to do with waits of others, and others with its own."""

    def __init__(self, shared: SharedResumableStreams, *, clock: Clock) -> None:
        self._shared = shared
        self._clock = clock
        self._running: set[TaskId] = set()
        # By task, the newest last.
        self._ears: dict[TaskId, dict[str, _Ear]] = {}
        self._newest = 0
        shared.bus.subscribe(AwaitsNotes, self._awaited)
        shared.on_released(self._left)

    # --- where the task runs

    def speak(self, task: TaskId) -> None:
        """A task runs here from now on."""
        self._running.add(task)

    def tell(self, task: TaskId, message: str) -> bool:
        """Say something of a task where it is waited for; whether anybody waits for it elsewhere."""
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
        """Nothing more is said of a task here."""
        self._running.discard(task)
        for ear in self._ears.pop(task, {}).values():
            self._say(ear, RELEASED)

    def _left(self, session: str, about: StreamOrigin) -> None:
        """A wait goes on elsewhere: who has it is not known yet, but reads what is said from now on."""
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
        # By the time, so that whoever runs the task after this process goes on with larger ones.
        self._newest = max(self._newest + 1, int(self._clock.now().timestamp() * 1_000_000))
        self._shared.writer.append(ear.session, _notes_of(ear.wait), self._newest, note, at_once=True)

    # --- where it is waited for

    def listen(
        self, resumable: ResumableStreams, feed: ResumableEventStream, session: str, heard: "Heard | None"
    ) -> "RemoteWait":
        """Hear the notes of a task on a stream; to be closed. `heard` is of a wait that began elsewhere."""
        return RemoteWait(self._shared, self._awaited, _Stream(resumable, feed, session), heard)


class Heard(NamedTuple):
    """What was heard of a wait on the streams before: its name, the place of the last note, and how many more."""

    wait: str
    place: int = 0
    ahead: int = 0


class _Stream(NamedTuple):
    """A stream that waits for a task, and whose it is."""

    resumable: ResumableStreams
    feed: ResumableEventStream
    session: str


class RemoteWait:
    """One wait for a task that runs elsewhere, or may come to; `awaited` is what is said where it runs here."""

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
        """Hear of the task from whoever runs it, by its record; whether its notes come through here, and no other way.

        Once they do, they always do, for they are to come in their order.
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
        """The task has ended: wait for what was said before, if it is soon."""
        if self._reading is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS):
                await self._is_silent.wait()
        self._shared.writer.end(self._session, _notes_of(self._wait), self._place + 1, RELEASED)

    async def close(self) -> None:
        """Hear no more."""
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
        """Read, and say every now and then that this is done."""
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
