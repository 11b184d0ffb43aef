"""Where a host hears of a running task: on the stream of its `tasks/result`, else on its session's GET stream (AMB-20).

What must not live here: what is told. What holds: a message goes out on one stream or on none (H-LEG-8), and on no
stream of anybody who may not read the task.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from taskgate.admission.access import Access
from taskgate.admission.streams import OpenStreams
from taskgate.auth.context import AuthContext
from taskgate.domain.record import TaskId, TaskRecord
from taskgate.lifecycle.remote_notifications import RemoteNotifications
from taskgate.protocol.vocabulary import TASKS_GET, TASKS_RESULT
from taskgate.sessions.registry import HostSession, HostSessions
from taskgate.streams.event_stream import EventStream


class TaskOrigin(NamedTuple):
    """Where a task comes from: all that is needed to find who may hear of it."""

    task: TaskId
    mount: str
    tool: str
    host_session: str | None


def origin_of(record: TaskRecord) -> TaskOrigin:
    """Where the task of a record comes from."""
    return TaskOrigin(record.id, record.owner.mount, record.call.tool, record.call.host_session)


class TaskStreams:
    """The streams of this process on which tasks can be told of; `afar` are those of others, None without any.

    `open` counts who waits for one, with or without a stream.
    """

    def __init__(
        self, *, sessions: HostSessions, access: Access, open: OpenStreams, afar: RemoteNotifications | None = None
    ) -> None:
        self._sessions = sessions
        self._access = access
        self.open = open
        self.afar = afar
        self._results: dict[TaskId, list[EventStream]] = {}

    @contextmanager
    def result(self, task: TaskId, feed: EventStream) -> Iterator[None]:
        """The stream of a `tasks/result`, for as long as it is waited on."""
        feeds = self._results.setdefault(task, [])
        feeds.append(feed)
        try:
            yield
        finally:
            feeds.remove(feed)
            if not feeds:
                self._results.pop(task, None)

    def speak(self, task: TaskId) -> None:
        """A task runs here from now on, and may be told of; to be paired with `fall_silent`."""
        if self.afar is not None:
            self.afar.speak(task)

    def fall_silent(self, task: TaskId) -> None:
        """It does no more."""
        if self.afar is not None:
            self.afar.fall_silent(task)

    def tell(self, origin: TaskOrigin, message: str) -> bool:
        """Say something of a task once; whether anybody hears it."""
        waiting = [*reversed(self._results.get(origin.task, ()))]
        if any(not feed.is_closed and feed.send(message) for feed in waiting):
            return True
        if self.afar is not None and self.afar.tell(origin.task, message):
            return True
        if self.tell_session(origin, message) or self._tell_elsewhere(origin, message):
            return True
        # One that lost its connection keeps what is said until its host is back: better than nobody, and no better.
        return any(feed.send(message) for feed in waiting)

    def _tell_elsewhere(self, origin: TaskOrigin, message: str) -> bool:
        """The same on a GET stream that another process has of the session that made the task."""
        host_session = self.session(origin)
        if host_session is None or not self._may(host_session.caller, origin, TASKS_GET):
            return False
        return host_session.elsewhere.publish(message)

    def tell_session(self, origin: TaskOrigin, message: str) -> bool:
        """Say something of a task on a GET stream of the session that made it; whether anybody hears it."""
        host_session = self.session(origin)
        return host_session is not None and host_session.publish(message, lambda who: self._may(who, origin, TASKS_GET))

    def asking(self, origin: TaskOrigin) -> tuple[EventStream, HostSession] | None:
        """The newest open GET stream of the session that made the task, if one may answer what is asked there."""
        host_session = self.session(origin)
        if host_session is None:
            return None
        streams = reversed(host_session.streams.items())
        found = (feed for feed, who in streams if not feed.is_closed and self._may(who, origin, TASKS_RESULT))
        feed = next(found, None)
        return None if feed is None else (feed, host_session)

    def session(self, origin: TaskOrigin) -> HostSession | None:
        """The session that made the task, while it is alive here; it was its owner's, and never changes hands."""
        return self._sessions.peek(origin.host_session)

    def _may(self, caller: AuthContext, origin: TaskOrigin, method: str) -> bool:
        return self._access.permits(caller, origin.mount, method, origin.tool)
