"""The streams on which hosts get a task's notifications: `TaskStreams`.

A notification goes out on one stream or none (H-LEG-8). That is the stream of a `tasks/result`,
else a GET stream of the session that created the task (AMB-20), here or at another replica. The
stream's caller must be allowed to read the task. `TaskListener` sends progress and log messages with
`send`, `StatusNotifier` sends status notifications with `send_to_session`. `ResultWaiter` registers
the streams of `tasks/result` with `result`.

With replicas, a host may wait for a task's result (`tasks/result`) at a replica that does not run
the task. A *wait* is one such wait of a host, and has a name. A *note* is one notification of the
task. The waiting replica announces the wait over the cluster bus. The running replica appends notes
to a shared log of the wait, which the waiting one reads:

    waiting:  AwaitsNotes(task, session, wait, is_new)   bus, repeated every SAID_AGAIN seconds
    running:  append to the log `<wait>/notes`           shared log of event streams
    waiting:  read the log, send each note on the stream

When the task no longer runs there, the running replica appends the marker RELEASED: no more notes
from this replica. The waiting one announces itself again if the task then runs elsewhere. It ends
the log itself when the task has ended.

The host may resume its stream at another replica; the wait then moves there with its name and log.
The number of the last note moves with it (`StreamOrigin.last_note`), so that no note is sent twice.
Without a remote wait nothing is written.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, NamedTuple

from taskgate.admission.access import AccessControl
from taskgate.admission.concurrency import OpenStreams
from taskgate.auth.context import AuthContext
from taskgate.clock import Clock
from taskgate.domain.record import TaskId, TaskRecord
from taskgate.errors import StoreUnavailable
from taskgate.protocol.vocabulary import TASKS_GET, TASKS_RESULT
from taskgate.sessions.host_session import HostSession
from taskgate.sessions.registry import HostSessions
from taskgate.stores.shared import StreamSegment
from taskgate.streams.event_log import RETENTION
from taskgate.streams.event_stream import EventStream, ResumableEventStream
from taskgate.streams.handover import SharedResumableStreams
from taskgate.streams.log_entries import RELEASED, StreamOrigin
from taskgate.streams.resumable import ResumableStreams
from taskgate.system.background import cancel_and_wait

SAID_AGAIN: Final = 20.0
"""Seconds between two announcements of a wait."""
LOOK: Final = timedelta(seconds=5)
"""The longest time until a waiting replica reads the log again, if no wake-up arrives."""
RETRY: Final = 0.5
"""Seconds until the log is read again after the store failed."""
LAST_NOTES: Final = 1.0
"""Seconds to wait for notes that were sent before the task ended."""
MOST: Final = 10_000
"""The limit of tasks with remote waits. Beyond it the waits of the oldest task are dropped; each is
added again with its next announcement."""


@dataclass(slots=True)
class TaskOrigin:
    """The origin of a task: what is needed to find the hosts that may get its notifications."""

    task: TaskId
    mount: str
    tool: str
    host_session: str | None


def origin_of(record: TaskRecord) -> TaskOrigin:
    """Return the origin of a record's task."""
    return TaskOrigin(record.id, record.owner.mount, record.call.tool, record.call.host_session)


def question_streams(record: TaskRecord, host_session: HostSession) -> Collection[EventStream]:
    """Return the open GET streams of a session that get the questions of a task: if the session created it."""
    return host_session.streams if record.call.host_session == host_session.id else ()


class TaskStreams:
    """The streams of this process on which tasks can be reported.

    `remote` has the waits at other replicas; None if there are no other replicas. `open` limits the
    open waits of each caller. `_results` are the streams that wait for a task's result here.
    """

    def __init__(
        self,
        *,
        sessions: HostSessions,
        access: AccessControl,
        open: OpenStreams,
        remote: "RemoteNotifications | None" = None,
    ) -> None:
        self._sessions = sessions
        self._access = access
        self.open = open
        self.remote = remote
        self._results: dict[TaskId, list[EventStream]] = {}

    @contextmanager
    def result(self, task: TaskId, feed: EventStream) -> Iterator[None]:
        """Register the stream of a `tasks/result` for the time of the block."""
        feeds = self._results.setdefault(task, [])
        feeds.append(feed)
        try:
            yield
        finally:
            feeds.remove(feed)
            if not feeds:
                self._results.pop(task, None)

    def send(self, origin: TaskOrigin, message: str) -> bool:
        """Send a notification of a task once; return whether a stream took it."""
        waiting = [*reversed(self._results.get(origin.task, ()))]
        if any(not feed.is_closed and feed.send(message) for feed in waiting):
            return True
        if self.remote is not None and self.remote.send(origin.task, message):
            return True
        if self.send_to_session(origin, message) or self._send_to_other_replica(origin, message):
            return True
        # A stream without a connection stores it until its host returns: the last choice.
        return any(feed.send(message) for feed in waiting)

    def _send_to_other_replica(self, origin: TaskOrigin, message: str) -> bool:
        """Send it on a GET stream that another replica has of the session that created the task."""
        host_session = self.session(origin)
        if host_session is None or not self._is_allowed(host_session.caller, origin, TASKS_GET):
            return False
        return host_session.remote_streams.publish(message)

    def send_to_session(self, origin: TaskOrigin, message: str) -> bool:
        """Send a notification on a GET stream of the session that created the task; return whether
        it went.
        """
        host_session = self.session(origin)
        return host_session is not None and host_session.publish(
            message, lambda who: self._is_allowed(who, origin, TASKS_GET)
        )

    def question_stream(self, origin: TaskOrigin) -> tuple[EventStream, HostSession] | None:
        """Return a stream for the task's questions, and its session; None if there is none.

        It is the newest open GET stream of the session that created the task, whose caller may
        fetch the result.
        """
        host_session = self.session(origin)
        if host_session is None:
            return None
        streams = reversed(host_session.streams.items())
        found = (feed for feed, who in streams if not feed.is_closed and self._is_allowed(who, origin, TASKS_RESULT))
        feed = next(found, None)
        return None if feed is None else (feed, host_session)

    def session(self, origin: TaskOrigin) -> HostSession | None:
        """Return the session that created the task, if it is in memory here.

        It has the same owner as the task.
        """
        return self._sessions.get(origin.host_session)

    def _is_allowed(self, caller: AuthContext, origin: TaskOrigin, method: str) -> bool:
        return self._access.is_allowed(caller, origin.mount, method, origin.tool)


# --- waits at other replicas ------------------------------------------------------------------------------------------


class AwaitsNotes(NamedTuple):
    """A bus message to the replica that runs a task: a host waits for the task at the sender.

    It is repeated during the wait. `session` is that of the waiting host. `is_new` is whether the
    sender found no log of the wait yet, so that the receiver must create it.
    """

    task: str
    session: str
    wait: str
    is_new: bool


class _AnnouncedWait(NamedTuple):
    """A wait that was announced; it is dropped at `until`, unless it is announced again before."""

    session: str
    wait: str
    until: float


class RemoteNotifications:
    """Both sides of remote waits in this process.

    `_running` are the tasks that run here, `_waits` the announced waits for them. `_newest` is the
    number of the last entry that was appended to any log.
    """

    def __init__(self, shared: SharedResumableStreams, *, clock: Clock) -> None:
        self._shared = shared
        self._clock = clock
        self._running: set[TaskId] = set()
        # By task, then by wait; the newest is last.
        self._waits: dict[TaskId, dict[str, _AnnouncedWait]] = {}
        self._newest = 0
        shared.bus.subscribe(AwaitsNotes, self._on_announced)
        shared.on_released(self._on_moved_away)

    # --- the replica that runs the task -------------------------------------------------------------------------------

    def begin(self, task: TaskId) -> None:
        """Add a task that starts to run here; `end` must follow at its end."""
        self._running.add(task)

    def send(self, task: TaskId, message: str) -> bool:
        """Send a notification to the newest remote wait of a task; return whether there is one.

        Only one wait gets it, because a notification goes out on one stream (H-LEG-8).
        """
        waits = self._waits.get(task)
        if not waits:
            return False
        wait = next(reversed(waits.values()))
        if wait.until < self._clock.elapsed():
            del waits[wait.wait]
            return self.send(task, message)
        self._append(wait, message.encode(errors="replace"))
        return True

    def end(self, task: TaskId) -> None:
        """Remove a task that no longer runs here, and tell its waits that no more notes follow."""
        self._running.discard(task)
        for wait in self._waits.pop(task, {}).values():
            self._append(wait, RELEASED)

    def _on_moved_away(self, session: str, about: StreamOrigin) -> None:
        """Handle that the host of a local wait resumes its stream at another replica.

        The wait counts as remote at once, before the other replica announces it: notes made in
        between are in the log that it will read.
        """
        if about.task in self._running and about.wait is not None:
            self._on_announced(AwaitsNotes(about.task, session, about.wait, True), "")

    def _on_announced(self, announcement: AwaitsNotes, _: str) -> None:
        """Handle the announcement of a wait: from the bus, or from a wait in this process."""
        until = self._clock.elapsed() + RETENTION.total_seconds()
        wait = _AnnouncedWait(announcement.session, announcement.wait, until)
        if announcement.is_new and announcement.wait not in self._waits.get(announcement.task, ()):
            self._shared.writer.open(announcement.session, _notes_of(announcement.wait), b"")
        if announcement.task not in self._running:
            # The task has ended here, or left: no notes come from this replica.
            self._append(wait, RELEASED)
            return
        self._waits.setdefault(announcement.task, {})[announcement.wait] = wait
        if len(self._waits) > MOST:
            del self._waits[next(iter(self._waits))]

    def _append(self, wait: _AnnouncedWait, note: bytes) -> None:
        """Append a note, or RELEASED, to the log of a wait."""
        # Numbered by time, so that the next process that runs the task continues with larger
        # numbers.
        self._newest = max(self._newest + 1, int(self._clock.now().timestamp() * 1_000_000))
        self._shared.writer.append(wait.session, _notes_of(wait.wait), self._newest, note, at_once=True)

    # --- the replica at which a host waits ----------------------------------------------------------------------------

    def listen(
        self, resumable: ResumableStreams, feed: ResumableEventStream, session: str, position: "WaitPosition | None"
    ) -> "RemoteWait":
        """Create the wait of a host at this replica, on the stream `feed`; it must be closed.

        `position` is given if the wait began at another replica.
        """
        return RemoteWait(self._shared, self._on_announced, resumable, feed, session, position)


class WaitPosition(NamedTuple):
    """The state of a wait that moved here from another replica.

    `wait` is its name, `place` the number of the last note that is known to be sent. `ahead` is how
    many later notes the host has received too: the other replica sent them, but could not store
    their numbers.
    """

    wait: str
    place: int = 0
    ahead: int = 0


class RemoteWait:
    """One wait of a host at this replica, for a task that runs elsewhere or may later.

    It reads the log only from the moment that the task runs at another replica. `on_announced` is
    called in place of a bus message if the task runs in this process.

    - `_wait`, `_place`, `_ahead`: as in `WaitPosition`, at present.
    - `_has_moved`: whether the wait began at another replica.
    - `_holder`: the process that runs the task, to which the wait was announced.
    - `_is_new`: whether the log did not exist when it was last read.
    - `_is_silent`: set when the log says that no more notes come from that process.
    - `_reading`: the asyncio task that reads the log; None until it is needed.
    """

    def __init__(
        self,
        shared: SharedResumableStreams,
        on_announced: Callable[[AwaitsNotes, str], None],
        resumable: ResumableStreams,
        feed: ResumableEventStream,
        session: str,
        position: WaitPosition | None,
    ) -> None:
        self._shared = shared
        self._on_announced = on_announced
        self._resumable, self._feed, self._session = resumable, feed, session
        self._has_moved = position is not None
        self._wait, self._place, self._ahead = position or WaitPosition(feed.name)
        self._holder: str | None = None
        self._task: TaskId | None = None
        self._is_new = False
        self._is_silent = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None

    def follow(self, record: TaskRecord) -> bool:
        """Announce the wait to the process that runs the task, if that is another one than before.

        Called with each newer record. Returns whether the task's notes come from the log. Once they
        do, they come from there to the end, so that they stay in order. The caller must then send
        none itself.
        """
        holder = None if record.lease is None else record.lease.holder
        if record.status.is_terminal or holder is None:
            return self._reading is not None
        # A task of this process needs no log, unless the wait has one with unread notes already.
        if self._reading is None and not self._has_moved and holder == self._shared.bus.holder:
            return False
        if self._reading is None:
            self._task, self._holder = record.id, holder
            self._reading = asyncio.get_running_loop().create_task(self._read())
        elif holder != self._holder:
            self._holder = holder
            self._is_silent.clear()
            self._announce()
        return True

    async def finish(self) -> None:
        """Wait briefly for the last notes, because the task has ended, and end the log."""
        if self._reading is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_NOTES):
                await self._is_silent.wait()
        self._shared.writer.end(self._session, _notes_of(self._wait), self._place + 1, RELEASED)

    async def close(self) -> None:
        """Stop reading the log."""
        if self._reading is not None:
            await cancel_and_wait(self._reading)

    def _announce(self) -> None:
        assert self._task is not None
        announcement = AwaitsNotes(self._task, self._session, self._wait, self._is_new)
        if self._holder == self._shared.bus.holder:
            self._on_announced(announcement, self._holder)
        else:
            self._shared.bus.send(announcement, to=self._holder)

    async def _read(self) -> None:
        """Read the log, and repeat the announcement periodically."""
        stream, loop, announced_at = _notes_of(self._wait), asyncio.get_running_loop(), 0.0
        while True:
            try:
                segment = await self._shared.log.read(self._session, stream, after=self._place)
                self._is_new = segment is None
                if segment is not None:
                    self._send_notes(segment)
                if not announced_at or loop.time() - announced_at > SAID_AGAIN:
                    announced_at = loop.time()
                    self._announce()
                await self._shared.log.wait_for_events(self._session, stream, timeout=LOOK)
            except StoreUnavailable:
                await asyncio.sleep(RETRY)

    def _send_notes(self, segment: StreamSegment) -> None:
        """Send the new notes on the stream, except those that the host has."""
        for self._place, note in segment.events:
            if note == RELEASED:
                self._is_silent.set()
            elif self._ahead:
                self._ahead -= 1
            else:
                self._resumable.send_note(self._feed, note.decode(), self._place)


def _notes_of(wait: str) -> str:
    return f"{wait}/notes"
