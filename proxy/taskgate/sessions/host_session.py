"""One session of one host, alive in this process: its own session at the server, its streams, its questions.

What must not live here: how a session is opened, found and ended (`sessions`), and what is told on its streams.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Self

from taskgate.admission.callers import principal_of
from taskgate.admission.mounts import Mount
from taskgate.admission.rules import RuntimeConfig
from taskgate.auth.context import AuthContext
from taskgate.clock import Clock, Entropy
from taskgate.cluster.bus import ClusterBus
from taskgate.cluster.remote_sessions import RemoteStreams, SessionSettings
from taskgate.domain.record import OwnerKey, RequestId
from taskgate.domain.versions import Peer, Revision
from taskgate.protocol.dialects import LegacyDownstreamDialect
from taskgate.protocol.discovery import ServerDescription
from taskgate.protocol.messages import Notification
from taskgate.sessions.questions import Carrying, SessionQuestions
from taskgate.streams.event_log import EventBudget, EventLog, MemoryEventLog
from taskgate.streams.event_stream import EventStream
from taskgate.streams.handover import SharedResumableStreams
from taskgate.streams.resumable import MARK_BYTES, ResumableStreams
from taskgate.system.cancel_scope import CancelScope
from taskgate.telemetry.request_context import client_of
from taskgate.upstream.base import UpstreamSession
from taskgate.upstream.call_listener import ServerQuestion, UnsavedCallListener
from taskgate.upstream.principal import Principal

MAX_STREAMS: Final = 8
"""GET streams of one session; one more ends the oldest."""


class SessionServices(NamedTuple):
    """What all sessions share: how hosts are spoken to, how long they may take to answer, and the time.

    `bus` and `shared_resumable` are None where no other process serves the same hosts.
    """

    dialect: LegacyDownstreamDialect
    live: RuntimeConfig
    clock: Clock
    entropy: Entropy
    events: EventBudget
    bus: ClusterBus | None = None
    shared_resumable: SharedResumableStreams | None = None


class HostSession(UnsavedCallListener):
    """One session of one host, alive in this process.

    Inside `with host_session` it is in use: it does not end for being idle, and idleness counts from the block's end.
    `caller` is who was last let in to it: its owner, with the newest token of theirs.
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
        self.client = client_of(peer.info)
        self.mount = mount
        self.caller = caller
        self.upstream: UpstreamSession = mount.upstream.session(self, self._speaks, peer)
        self.calls: dict[CancelScope, RequestId] = {}
        self.streams: dict[EventStream, AuthContext] = {}
        self.resumable = _resumable(self, services)
        self.parted: tuple[EventStream, AuthContext] | None = None
        """The GET stream that was lost last and can be taken up again, and who heard it."""
        self.elsewhere = RemoteStreams(id, services.bus, self.streams)
        """The GET streams of the session that other processes have."""
        self.wants = SessionSettings(id, services.bus)
        self.questions = SessionQuestions(
            dialect=services.dialect,
            bounds=services.live.current.questions,
            mark="" if services.bus is None else services.bus.holder,
            moved=self.elsewhere.on_local_change,
        )
        self.seen = self.checked = services.clock.elapsed()
        self.tasks = 0
        self.ended = False
        self._part: Callable[[UpstreamSession], None] | None = None
        self._users = 0
        self._dialect = services.dialect
        self._clock = services.clock

    def __enter__(self) -> Self:
        self._users += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._users -= 1
        self.seen = self._clock.elapsed()

    @property
    def host_session(self) -> str:
        """Its id; see CallSite."""
        return self.id

    @property
    def has_tasks(self) -> bool:
        """Whether the session was opened with tasks: by its revision, and by what its mount offers."""
        return self.mount.offers_tasks and self.peer.revision.has_tasks

    @property
    def busy(self) -> bool:
        """Whether anything of it is going on: a request, an open stream, an unfinished task."""
        return bool(self._users or self.tasks)

    def hold(self) -> None:
        """A task of the session begins to run over its server's end; see CallSite."""
        self.tasks += 1

    def release(self) -> None:
        """That task is over; see CallSite."""
        self.tasks -= 1
        self.seen = self._clock.elapsed()
        if self._part is not None and not self.tasks:
            self._part(self.upstream)

    def end(self, part: Callable[[UpstreamSession], None]) -> None:
        """Nobody finds it any more: its streams end, and `part` gets its server's end as soon as no task runs there."""
        if self.ended:
            return
        self.ended = True
        self.questions.close()
        for feed in tuple(self.streams):
            feed.close()
        if self.resumable is not None:
            self.resumable.close()
        if self.tasks:
            self._part = part
        else:
            part(self.upstream)

    def publish(self, message: str, may_hear: Callable[[AuthContext], bool] = lambda _: True) -> bool:
        """Send a message on the newest of its GET streams that takes it; never on two (H-LEG-8).

        Only on one that was opened by who `may_hear` it: a session is one caller's, but with any of their tokens. Where
        there is none, it waits for the host to take the last one up again.
        """
        live = ((feed, caller) for feed, caller in reversed(self.streams.items()) if not feed.is_closed)
        if any(may_hear(caller) and feed.send(message) for feed, caller in live):
            return True
        if self.parted is None or self.streams:
            return False
        feed, caller = self.parted
        return may_hear(caller) and feed.send(message)

    def announce(self, message: str) -> bool:
        """Publish a message here or, where there is no GET stream here, where there is one."""
        return self.publish(message) or self.elsewhere.publish(message)

    def heard_of_stream(self, holder: str, *, is_open: bool) -> None:
        """Another process has a GET stream of the session, or none any more."""
        gone = self.elsewhere.on_remote_change(holder, is_open=is_open)
        if is_open and not self.streams:
            # Where its host is now, nobody takes up again what was lost here.
            self.parted = None
        if gone is not None:
            self.questions.lost(gone)
        if is_open:
            self.questions.carry()

    def carry(self, message: str) -> Carrying | None:
        """Send a question on the newest GET stream that takes it, here if there is one; see Carrier."""
        here = next((feed for feed in reversed(self.streams) if feed.send_now(message)), None)
        return self.elsewhere.ask(message) if here is None else here

    def on_notification(self, notification: Notification) -> None:
        """What the server says of no call is for the session's GET stream, if there is one; see CallListener."""
        self.announce(self._dialect.notification(notification, None))

    def met(self, server: ServerDescription) -> None:
        """See SessionCallListener: in this era a host is told once who its server is."""

    def clog(self) -> None:
        """See CallListener: what belongs to no call is dropped rather than waited for."""

    @property
    def passes_rounds(self) -> bool:
        """See CallListener."""
        return False

    @property
    def can_be_asked(self) -> bool:
        """See CallListener: it has a GET stream."""
        return bool(self.streams) or self.elsewhere.newest is not None

    def asked(self, question: ServerQuestion) -> None:
        """What the server asks for no call waits for a GET stream; see CallListener."""
        self.questions.ask(question, self)

    def refused(self, required: Mapping[str, Any]) -> None:
        """See CallListener: in the legacy era the server alone is told."""

    def _speaks(self) -> Principal:
        return principal_of(self.caller)


def _resumable(host_session: HostSession, services: SessionServices) -> ResumableStreams | None:
    """Where the streams of a session can be taken up again; older hosts choke on what begins such a stream."""
    if host_session.peer.revision is not Revision.R2025_11_25:
        return None
    caller = host_session.owner.context
    log: EventLog
    if services.shared_resumable is None:
        log = MemoryEventLog(services.clock, budget=services.events, caller=caller)
    else:
        log = services.shared_resumable.open_log(host_session.id, services.events, caller)
    return ResumableStreams(mark=services.entropy.token(MARK_BYTES).hex(), log=log, clock=services.clock)
