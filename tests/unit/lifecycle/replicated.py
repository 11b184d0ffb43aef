"""One replica of several as far as its sessions go, over a store and a server that note what they are asked."""

from datetime import timedelta
from typing import Any

from helpers.manual_clock import ManualClock, SeededEntropy
from helpers.recording_upstream import RecordingUpstream
from taskgate.admission.mounts import Mount
from taskgate.auth.context import ANONYMOUS
from taskgate.domain.versions import Peer, Revision
from taskgate.errors import SessionNotFound
from taskgate.gateway.session_messages import SessionMessageHandler
from taskgate.protocol.host_requests import OpenSession
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.sessions.host_session import HostSession, SessionServices
from taskgate.sessions.registry import HostSessions
from taskgate.streams.event_log import EventBudget
from unit.admission.live_rules import live
from unit.cluster.recording_bus import A, RecordingBus

IDLE = timedelta(hours=1)
PEER = Peer(revision=Revision.R2025_06_18, capabilities={}, info={})


class Replica:
    """One of several over a store, with its sessions."""

    def __init__(self, store: Any, clock: ManualClock, holder: str = A, *, alone: bool = False) -> None:
        self.said = RecordingBus(holder)
        self.cancelled: list[tuple[str, Any]] = []
        self.question: Any = None
        upstream: Any = RecordingUpstream()
        bulkhead: Any = None
        self.mount = Mount(
            name="reports",
            path="/",
            upstream=upstream,
            bulkhead=bulkhead,
            offers_tasks=True,
            resource="https://m.example/",
        )
        dialect, bus = LegacyDownstream("1"), None if alone else self.said
        services = SessionServices(dialect, live(), clock, SeededEntropy(), EventBudget(), bus)  # type: ignore[arg-type]
        self.sessions = HostSessions(
            store=store, services=services, entropy=SeededEntropy(), idle=IDLE, event_sink=_NoAudit()
        )
        session_messages = SessionMessageHandler(sessions=self.sessions, calls=self, runner=self, dialect=dialect)  # type: ignore[arg-type]
        session_messages.subscribe(self.said)  # type: ignore[arg-type]

    async def opened(self) -> HostSession:
        """A new session."""
        return (await self.sessions.open(self.mount, ANONYMOUS, OpenSession(id=1, peer=PEER)))[0]

    async def found(self, id: str) -> HostSession:
        """The session of that id, as a request of its host finds it."""
        host_session = await self.sessions.find(self.mount, ANONYMOUS, id)
        with host_session:
            return host_session

    async def knows(self, id: str) -> bool:
        """Whether a request of its host finds it."""
        try:
            await self.found(id)
        except SessionNotFound:
            return False
        return True

    def cancel(self, host_session: HostSession, id: Any) -> None:
        """The calls' part in it."""
        self.cancelled.append((host_session.id, id))

    def find_question(self, owners: Any, task: str, key: str) -> Any:
        """See Runner."""
        return self.question


class _NoAudit:
    def emit(self, event: object) -> None:
        pass
