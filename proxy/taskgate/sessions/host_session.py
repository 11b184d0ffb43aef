"""One session of one legacy host: its server session, its event streams, the questions to the host.

`registry` opens, loads, finds and ends sessions. A `HostSession` is such a session in the memory of
this process. It begins when the session is opened or loaded, and ends with `end`, also if it is
only unloaded from memory. Other replicas may have the same session in memory, each with its own
server session. Handlers of requests send through its `upstream`. Its GET streams, questions and
messages for the host are found here too.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple, Self

from taskgate.admission.callers import principal_of
from taskgate.admission.mounts import Mount
from taskgate.admission.rules import RuntimeConfig
from taskgate.auth.context import AuthContext
from taskgate.clock import Clock, Entropy
from taskgate.cluster.bus import ClusterBus
from taskgate.cluster.remote_sessions import RemoteStreams, SessionSettings
from taskgate.domain.record import OwnerKey, RequestId
from taskgate.domain.versions import Peer, Revision, client_of
from taskgate.protocol.discovery import ServerDescription
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.protocol.messages import Notification
from taskgate.sessions.questions import QuestionStream, SessionQuestions
from taskgate.sessions.session_pool import SessionPool
from taskgate.streams.event_log import EventBudget, EventLog, MemoryEventLog
from taskgate.streams.event_stream import EventStream
from taskgate.streams.handover import SharedResumableStreams
from taskgate.streams.resumable import MARK_BYTES, ResumableStreams
from taskgate.system.cancel_scope import CancelScope
from taskgate.upstream.base import UpstreamSession
from taskgate.upstream.calls import Principal, ServerQuestion, UnsavedCallListener

MAX_STREAMS: Final = 8
"""GET streams of one session; one more ends the oldest."""


class SessionServices(NamedTuple):
    """The services that all sessions share.

    `bus` and `shared_resumable` connect replicas; they are None in a gateway of one process.
    """

    dialect: LegacyDownstream
    live: RuntimeConfig
    clock: Clock
    entropy: Entropy
    events: EventBudget
    bus: ClusterBus | None = None
    shared_resumable: SharedResumableStreams | None = None


class HostSession(UnsavedCallListener):
    """One session of one host in this process, and a `CallSite` for its tasks.

    Within `with host_session` it is in use and cannot expire; its idle time counts from the end of
    the block. `acquire` and `release` count a task that runs on its server session. As the listener
    of server messages that belong to no call, it sends notifications to the host, and asks its
    questions.

    `caller` is the last authenticated caller: the owner, with the newest token. `calls` are the
    running requests with their ids; a host's cancellation cancels the scope. `streams` are the GET
    streams with their callers, oldest first. `running_tasks` counts tasks on the server session.
    `last_used` and `last_checked` (by the registry, in the store) are seconds of the monotonic
    clock. `is_ended` is true after `end`, for an unloaded session too.
    """

    def __init__(
        self,
        id: str,
        owner: OwnerKey,
        peer: Peer,
        mount: Mount,
        caller: AuthContext,
        services: SessionServices,
    ) -> None:
        self.id = id
        self.owner = owner
        self.peer = peer
        self.subject = caller.subject
        """The person that it counts for; the same for every later caller, as the owner is."""
        self.client = client_of(peer.info)
        self.mount = mount
        self.has_tasks = mount.offers_tasks and peer.revision.has_tasks
        """Whether tasks were negotiated: by the session's revision and the mount."""
        self.knows_tasks = self.has_tasks and "tasks" in peer.capabilities
        """Whether the host has shown that it knows tasks: it declares some of its own, or has asked for one.

        Nothing in a handshake says that a host asks for tasks.
        """
        self.set_caller(caller)
        self.upstream = self._upstream_session()
        self.calls: dict[CancelScope, RequestId] = {}
        self.streams: dict[EventStream, AuthContext] = {}
        self.resumable = _resumable(self, services)
        self.lost_stream: tuple[EventStream, AuthContext] | None = None
        """The GET stream that disconnected last and can be resumed, with its caller."""
        self.remote_streams = RemoteStreams(id, services.bus, self.streams)
        """The GET streams of the session at other replicas."""
        self.settings = SessionSettings(id, services.bus)
        self.questions = SessionQuestions(
            dialect=services.dialect,
            bounds=services.live.current.questions,
            replica="" if services.bus is None else services.bus.holder,
            on_change=self.remote_streams.on_local_change,
        )
        self.last_used = self.last_checked = services.clock.elapsed()
        self.opened_at: datetime | None = None
        """When it was opened; None for one that was loaded from the store."""
        self.running_tasks = 0
        self.is_known_elsewhere = False
        """Whether another replica has had it in memory, and may have it still."""
        self.is_ended = False
        self._close_upstream: Callable[[UpstreamSession], None] | None = None
        self._users = 0
        self.dialect = services.dialect
        self._clock = services.clock

    def __enter__(self) -> Self:
        self._users += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._users -= 1
        self.last_used = self._clock.elapsed()

    def set_caller(self, caller: AuthContext) -> None:
        """Set the caller of the newest request, and its principal."""
        self.caller, self.principal = caller, principal_of(caller)

    @property
    def host_session(self) -> str:
        """Its id, for `CallSite`."""
        return self.id

    @property
    def is_busy(self) -> bool:
        """Whether a request, an open stream or an unfinished task uses it."""
        return bool(self._users or self.running_tasks)

    @property
    def is_connected(self) -> bool:
        """Whether its host has a request or an open stream, here or at another replica."""
        return bool(self._users) or self.remote_streams.newest is not None

    def acquire(self) -> None:
        self.running_tasks += 1

    def release(self) -> None:
        self.running_tasks -= 1
        self.last_used = self._clock.elapsed()
        if self._close_upstream is not None and not self.running_tasks:
            self._close_upstream(self.upstream)

    def end(self, close_upstream: Callable[[UpstreamSession], None]) -> None:
        """End the session and its streams, once; tasks go on.

        `close_upstream` is called with the server session when no task runs on it any more.
        """
        if self.is_ended:
            return
        self.is_ended = True
        self.questions.close()
        for stream in tuple(self.streams):
            stream.close()
        if self.resumable is not None:
            self.resumable.close()
        if self.running_tasks:
            self._close_upstream = close_upstream
        else:
            close_upstream(self.upstream)

    # --- messages for the host ----------------------------------------------------------------------------------------

    def publish(self, message: str, may_hear: Callable[[AuthContext], bool] = lambda _: True) -> bool:
        """Send a message on one GET stream, the newest one here that takes it (H-LEG-8).

        A stream is skipped unless `may_hear` accepts its caller: a session belongs to one caller,
        but its streams may have different tokens of that caller. Without a stream the message waits
        for the host to resume the last one. Returns whether it was sent or waits.
        """
        has_live = False
        for stream, caller in reversed(self.streams.items()):
            if stream.is_closed:
                continue
            if may_hear(caller) and stream.send(message):
                return True
            has_live = True
        if has_live or self.lost_stream is None:
            return False
        stream, caller = self.lost_stream
        return may_hear(caller) and stream.send(message)

    def publish_anywhere(self, message: str) -> bool:
        """Publish a message on a stream of this replica, else on one of another replica."""
        return self.publish(message) or self.remote_streams.publish(message)

    def on_remote_stream(self, holder: str, *, is_open: bool) -> None:
        """Handle that another replica has a GET stream of the session, or has none any more."""
        gone = self.remote_streams.on_remote_change(holder, is_open=is_open)
        if is_open and not self.streams:
            # The host is connected there, so it will not resume the stream that was lost here.
            self.lost_stream = None
        if gone is not None:
            self.questions.on_stream_lost(gone)
        if is_open:
            self.questions.resend()

    def send_question(self, message: str) -> QuestionStream | None:
        """Send a question on the newest GET stream here that takes it, else on one elsewhere.

        Returns that stream; None if there is none. The question is sent without an event id,
        because it moves to another stream when this one is lost.
        """
        local = next((stream for stream in reversed(self.streams) if stream.send_now(message)), None)
        return self.remote_streams.ask(message) if local is None else local

    # --- as the listener of messages that belong to no call -----------------------------------------------------------

    def on_notification(self, notification: Notification) -> None:
        self.publish_anywhere(self.dialect.notification(notification, None))

    def met(self, server: ServerDescription) -> None:
        # A legacy host learns once, with `initialize`, who its server is.
        pass

    def clog(self) -> None:
        # Messages that belong to no call are dropped rather than waited for.
        pass

    @property
    def passes_rounds(self) -> bool:
        return False

    @property
    def can_be_asked(self) -> bool:
        return bool(self.streams) or self.remote_streams.newest is not None

    def asked(self, question: ServerQuestion) -> None:
        self.questions.ask(question, self)

    def refused(self, required: Mapping[str, Any]) -> None:
        # In the legacy era only the server learns that its question was refused.
        pass

    def _principal(self) -> Principal:
        return self.principal

    def _upstream_session(self) -> UpstreamSession:
        return self.mount.upstream.session(self, self._principal, self.peer)


class RequestScopedSession(HostSession):
    """The session of one request, for a request without a session id.

    It ends with the request, has no stream, and nothing finds it by its empty id. Its server session is
    one of `pool`, which the requests of its caller share.
    """

    def __init__(
        self, mount: Mount, caller: AuthContext, peer: Peer, services: SessionServices, pool: SessionPool
    ) -> None:
        self._pool = pool
        super().__init__("", caller.owner(mount.name), peer, mount, caller, services)

    def __enter__(self) -> Self:
        # An idle one may have been closed since.
        self.upstream = self._upstream_session()
        self._shared.__enter__()
        return super().__enter__()

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        self._shared.__exit__(*exc)

    def acquire(self) -> None:
        super().acquire()
        self._shared.acquire()

    def release(self) -> None:
        super().release()
        self._shared.release()

    def _upstream_session(self) -> UpstreamSession:
        self._shared = self._pool.take(self.mount, self.caller, self.peer)
        return self._shared.upstream


def _resumable(host_session: HostSession, services: SessionServices) -> ResumableStreams | None:
    """The resumable streams of a session; none for older hosts, which fail on the priming event."""
    if host_session.peer.revision is not Revision.R2025_11_25 or not host_session.id:
        return None
    caller = host_session.subject
    log: EventLog
    if services.shared_resumable is None:
        log = MemoryEventLog(services.clock, budget=services.events, caller=caller)
    else:
        log = services.shared_resumable.open_log(host_session.id, services.events, caller)
    return ResumableStreams(mark=services.entropy.token(MARK_BYTES).hex(), log=log, clock=services.clock)
