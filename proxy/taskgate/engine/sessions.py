"""Sessions of hosts: opened, found again, ended, each with its own session at the server.

A session is bound to who opened it and to its mount; found with anything else it does not exist. What a restart must
not lose is in the store: the session goes on, and its server is met anew when it is next needed. Tasks outlive their
session, so the server's end stays open until the last of them is done (decisions 14).
"""

import asyncio
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final, NamedTuple, Self

from taskgate.auth.context import AuthContext
from taskgate.clock import Clock, Entropy
from taskgate.dialects.base import DownstreamDialect, OpenSession, Server
from taskgate.engine.admission.rules import Live
from taskgate.engine.guard.callers import speaker
from taskgate.engine.messages import Feed
from taskgate.engine.mounts import Mount
from taskgate.engine.questions import Questions
from taskgate.engine.streams.event_log import MemoryEventLog
from taskgate.engine.streams.trails import MARK_BYTES, Trails
from taskgate.errors import SessionNotFound, TooManyTasks
from taskgate.interruption import Interruptible
from taskgate.mcp.jsonrpc import Notification, RequestId
from taskgate.mcp.versions import Peer, Revision
from taskgate.stores.base import SessionRecord, SessionStore
from taskgate.tasks.record import OwnerKey
from taskgate.telemetry.audit import Audit, CapRefused
from taskgate.telemetry.visit import client_of
from taskgate.upstream.base import ServerQuestion, Speaker, UpstreamSession

ID_BYTES: Final = 24
MAX_STREAMS: Final = 8
"""GET streams of one session; one more ends the oldest."""


class Ways(NamedTuple):
    """What all sessions share: how hosts are spoken to, how long they may take to answer, and the time."""

    dialect: DownstreamDialect
    live: Live
    clock: Clock
    entropy: Entropy


class HostSession:
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
        ways: Ways,
    ) -> None:
        self.id = id
        self.owner = owner
        self.peer = peer
        self.client = client_of(peer.info)
        self.mount = mount
        self.caller = caller
        self.upstream: UpstreamSession = mount.upstream.session(self, self._speaks, peer)
        self.calls: dict[Interruptible, RequestId] = {}
        self.streams: dict[Feed, AuthContext] = {}
        self.trails = _trails(peer, ways)
        self.parted: tuple[Feed, AuthContext] | None = None
        """The GET stream that was lost last and can be taken up again, and who heard it."""
        self.questions = Questions(dialect=ways.dialect, bounds=ways.live.now.questions)
        self.seen = ways.clock.elapsed()
        self.tasks = 0
        self.ended = False
        self._part: Callable[[UpstreamSession], None] | None = None
        self._users = 0
        self._dialect = ways.dialect
        self._clock = ways.clock

    def __enter__(self) -> Self:
        self._users += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._users -= 1
        self.seen = self._clock.elapsed()

    @property
    def host_session(self) -> str:
        """Its id; see Place."""
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
        """A task of the session begins to run over its server's end; see Place."""
        self.tasks += 1

    def release(self) -> None:
        """That task is over; see Place."""
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
        if self.trails is not None:
            self.trails.close()
        if self.tasks:
            self._part = part
        else:
            part(self.upstream)

    def publish(self, message: str, may_hear: Callable[[AuthContext], bool] = lambda _: True) -> bool:
        """Send a message on the newest of its GET streams that takes it; never on two (H-LEG-8).

        Only on one that was opened by who `may_hear` it: a session is one caller's, but with any of their tokens. Where
        there is none, it waits for the host to take the last one up again.
        """
        live = ((feed, caller) for feed, caller in reversed(self.streams.items()) if not feed.closed)
        if any(may_hear(caller) and feed.put(message) for feed, caller in live):
            return True
        if self.parted is None or self.streams:
            return False
        feed, caller = self.parted
        return may_hear(caller) and feed.put(message)

    def carry(self, message: str) -> Feed | None:
        """Send a question on the newest GET stream that takes it; see Carrier."""
        return next((feed for feed in reversed(self.streams) if feed.put_now(message)), None)

    def notice(self, notification: Notification) -> None:
        """What the server says of no call is for the session's GET stream, if there is one; see Hearer."""
        self.publish(self._dialect.notice(notification, None))

    def clog(self) -> None:
        """See Hearer: what belongs to no call is dropped rather than waited for."""

    @property
    def passes_rounds(self) -> bool:
        """See Hearer."""
        return False

    def asked(self, question: ServerQuestion) -> None:
        """What the server asks for no call waits for a GET stream; see Hearer."""
        self.questions.ask(question, self)

    def refused(self, required: Mapping[str, Any]) -> None:
        """See Hearer: in the initialize era the server alone is told."""

    def _speaks(self) -> Speaker:
        return speaker(self.caller)


class HostSessions:
    """All sessions of this process. Those of the store that nobody used since it started are not counted."""

    def __init__(self, *, store: SessionStore, ways: Ways, entropy: Entropy, idle: timedelta, audit: Audit) -> None:
        self._store = store
        self._ways = ways
        self._clock = ways.clock
        self._entropy = entropy
        self._idle = idle
        self._audit = audit
        self._live: dict[str, HostSession] = {}
        # Of each context, with those that are being opened.
        self._counts: Counter[str] = Counter()
        self._closing: set[asyncio.Task[None]] = set()

    async def open(self, mount: Mount, caller: AuthContext, intent: OpenSession) -> tuple[HostSession, Server]:
        """A new session, durable, and what its server said. Raises TooManyTasks, UpstreamFailed or StoreUnavailable."""
        self._expect_room(caller, mount)
        id_, owner = urlsafe_b64encode(self._entropy.token(ID_BYTES)).decode(), caller.owner(mount.name)
        host_session = HostSession(id_, owner, intent.peer, mount, caller, self._ways)
        self._counts[owner.context] += 1
        try:
            server = await host_session.upstream.open()
            expires_at = self._clock.now() + self._idle
            await self._store.put(SessionRecord(id=id_, owner=owner, peer=intent.peer, expires_at=expires_at))
        except BaseException:
            self._uncount(owner)
            self.discard(host_session.upstream)
            raise
        self._live[id_] = host_session
        return host_session, server

    async def find(self, mount: Mount, caller: AuthContext, id: str) -> HostSession:
        """A session of any of the caller's keys by its id. Raises SessionNotFound: ended, never there, or foreign."""
        owners = caller.owners(mount.name)
        host_session = self._live.get(id)
        if host_session is not None and host_session.owner in owners:
            host_session.caller = caller
            return host_session
        # A foreign one that is alive here is looked for like one that never was, and takes as long (I-ISO-3).
        for owner in owners:
            record = await self._store.find(owner, id, now=self._clock.now())
            if record is not None:
                return self._revived(mount, record, caller)
        raise SessionNotFound("Session not found")

    def _revived(self, mount: Mount, record: SessionRecord, caller: AuthContext) -> HostSession:
        # Another request may have brought it back while this one was reading.
        host_session = self._live.get(record.id)
        if host_session is None:
            host_session = HostSession(record.id, record.owner, record.peer, mount, caller, self._ways)
            self._live[record.id] = host_session
            self._counts[record.owner.context] += 1
        host_session.caller = caller
        return host_session

    def peek(self, id: str | None) -> HostSession | None:
        """A session that is alive here, without touching it."""
        return None if id is None else self._live.get(id)

    async def end(self, host_session: HostSession) -> None:
        """End a session: its id is unknown from now on, its streams end, its tasks go on."""
        await self._store.drop(host_session.owner, host_session.id)
        self._retire(host_session)

    async def sweep(self) -> None:
        """End what has been idle for too long, and keep the store's expiry ahead of what has not."""
        limit = self._idle.total_seconds()
        for host_session in tuple(self._live.values()):
            if host_session.trails is not None:
                host_session.trails.sweep()
            # Asked one by one: while one is being ended, the next may come to life.
            if not host_session.busy and self._clock.elapsed() - host_session.seen >= limit:
                await self.end(host_session)
        if self._live:
            await self._store.touch(frozenset(self._live), until=self._clock.now() + self._idle)
        await self._store.purge_sessions(now=self._clock.now())

    async def close(self) -> None:
        """End every stream and every session at its server; the hosts' sessions stay in the store."""
        for host_session in tuple(self._live.values()):
            self._retire(host_session)
        while self._closing:
            await asyncio.wait(tuple(self._closing))

    def _retire(self, host_session: HostSession) -> None:
        if self._live.pop(host_session.id, None) is not None:
            self._uncount(host_session.owner)
        host_session.end(self.discard)

    def _expect_room(self, caller: AuthContext, mount: Mount) -> None:
        limit = self._ways.live.now.sessions
        if sum(self._counts[owner.context] for owner in caller.owners(mount.name)) >= limit:
            self._audit.record(CapRefused("sessions", "context"))
            raise TooManyTasks(limit, "sessions")

    def _uncount(self, owner: OwnerKey) -> None:
        self._counts[owner.context] -= 1
        if not self._counts[owner.context]:
            del self._counts[owner.context]

    def discard(self, upstream_session: UpstreamSession) -> None:
        """Close a session at a server in the background; `close` waits for it."""
        closing = asyncio.get_running_loop().create_task(upstream_session.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


def _trails(peer: Peer, ways: Ways) -> Trails | None:
    """Where the streams of a session can be taken up again; older hosts choke on what begins such a stream."""
    if peer.revision is not Revision.R2025_11_25:
        return None
    return Trails(mark=ways.entropy.token(MARK_BYTES).hex(), log=MemoryEventLog(ways.clock), clock=ways.clock)
