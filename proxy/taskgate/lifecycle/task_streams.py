"""The streams on which hosts get a task's notifications: `TaskStreams`.

A notification goes out on one stream or none (H-LEG-8). That is the stream of a `tasks/result`,
else a GET stream of the session that created the task (AMB-20), here or at another replica. The
stream's caller must be allowed to read the task. `TaskListener` sends progress and log messages with
`tell`, `StatusNotifier` sends status notifications with `tell_session`. `ResultWaiter` registers the
streams of `tasks/result` with `result`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from taskgate.admission.access import AccessControl
from taskgate.admission.concurrency import OpenStreams
from taskgate.auth.context import AuthContext
from taskgate.domain.record import TaskId, TaskRecord
from taskgate.lifecycle.remote_notifications import RemoteNotifications
from taskgate.protocol.vocabulary import TASKS_GET, TASKS_RESULT
from taskgate.sessions.host_session import HostSession
from taskgate.sessions.registry import HostSessions
from taskgate.streams.event_stream import EventStream


class TaskOrigin(NamedTuple):
    """The origin of a task: what is needed to find the hosts that may get its notifications."""

    task: TaskId
    mount: str
    tool: str
    host_session: str | None


def origin_of(record: TaskRecord) -> TaskOrigin:
    """Return the origin of a record's task."""
    return TaskOrigin(record.id, record.owner.mount, record.call.tool, record.call.host_session)


class TaskStreams:
    """The streams of this process on which tasks can be reported.

    `afar` has the waits at other replicas; None if there are no other replicas. `open` limits the
    open waits of each caller. `_results` are the streams that wait for a task's result here.
    """

    def __init__(
        self,
        *,
        sessions: HostSessions,
        access: AccessControl,
        open: OpenStreams,
        afar: RemoteNotifications | None = None,
    ) -> None:
        self._sessions = sessions
        self._access = access
        self.open = open
        self.afar = afar
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

    def tell(self, origin: TaskOrigin, message: str) -> bool:
        """Send a notification of a task once; return whether a stream took it."""
        waiting = [*reversed(self._results.get(origin.task, ()))]
        if any(not feed.is_closed and feed.send(message) for feed in waiting):
            return True
        if self.afar is not None and self.afar.tell(origin.task, message):
            return True
        if self.tell_session(origin, message) or self._tell_elsewhere(origin, message):
            return True
        # A stream without a connection stores it until its host returns: the last choice.
        return any(feed.send(message) for feed in waiting)

    def _tell_elsewhere(self, origin: TaskOrigin, message: str) -> bool:
        """Send it on a GET stream that another replica has of the session that created the task."""
        host_session = self.session(origin)
        if host_session is None or not self._may(host_session.caller, origin, TASKS_GET):
            return False
        return host_session.remote_streams.publish(message)

    def tell_session(self, origin: TaskOrigin, message: str) -> bool:
        """Send a notification on a GET stream of the session that created the task; return whether
        it went.
        """
        host_session = self.session(origin)
        return host_session is not None and host_session.publish(message, lambda who: self._may(who, origin, TASKS_GET))

    def asking(self, origin: TaskOrigin) -> tuple[EventStream, HostSession] | None:
        """Return a stream for the task's questions, and its session; None if there is none.

        It is the newest open GET stream of the session that created the task, whose caller may
        fetch the result.
        """
        host_session = self.session(origin)
        if host_session is None:
            return None
        streams = reversed(host_session.streams.items())
        found = (feed for feed, who in streams if not feed.is_closed and self._may(who, origin, TASKS_RESULT))
        feed = next(found, None)
        return None if feed is None else (feed, host_session)

    def session(self, origin: TaskOrigin) -> HostSession | None:
        """Return the session that created the task, if it is in memory here.

        It has the same owner as the task.
        """
        return self._sessions.get(origin.host_session)

    def _may(self, caller: AuthContext, origin: TaskOrigin, method: str) -> bool:
        return self._access.is_allowed(caller, origin.mount, method, origin.tool)
