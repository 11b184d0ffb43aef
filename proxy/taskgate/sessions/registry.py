"""The registry of host sessions: `HostSessions` opens, finds and ends them.

Each has a session at the server. A session is bound to its owner and its mount; a request of
another owner or mount gets "Session not found". It is stored, so it survives a restart: the next
request *loads* it, with a new server session that is initialized again. A session in memory is
*unloaded* when it is idle and others need the room, or the process ends; it stays in the store. It
*ends* when the host ends it or it was idle for too long: then it is removed from the store. So is the
caller's idlest one when the caller opens another one at the limit (`caller_sessions`).

Replicas share the store, and tell each other of ends by the cluster bus. Tasks outlive their
session, so the server session stays open until the last of them has ended.
"""

import asyncio
from base64 import urlsafe_b64encode
from collections import OrderedDict
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import islice
from logging import getLogger
from typing import Final

from taskgate.admission.mounts import Mount
from taskgate.auth.context import AuthContext
from taskgate.clock import Entropy
from taskgate.cluster.messages import SessionEnded, SessionRevived
from taskgate.domain.versions import Peer, Revision
from taskgate.errors import SessionNotFound, StoreUnavailable, TooManyTasks, UpstreamFailed
from taskgate.protocol.discovery import ServerDescription
from taskgate.protocol.host_requests import OpenSession
from taskgate.protocol.messages import Params
from taskgate.sessions.caller_sessions import CallerSessions
from taskgate.sessions.host_session import HostSession, RequestScopedSession, SessionServices
from taskgate.sessions.session_pool import SessionPool
from taskgate.stores.base import SessionRecord, SessionStore
from taskgate.system.background import Background
from taskgate.telemetry.events import CapRefused, EventSink, SessionEvicted
from taskgate.upstream.base import UpstreamSession
from taskgate.upstream.calls import UpstreamCall

ID_BYTES: Final = 24

TOUCH_SLACK: Final = timedelta(seconds=90)
"""How much longer than its idle time a session of several replicas stays in the store.

Replicas extend the stored expiry only in a sweep, so the store learns of a use later.
"""

CHECK_AFTER: Final = 30.0
"""Seconds after which the store is asked again whether another replica has ended a session.

A message on the bus says so at once; this is for messages that were lost.
"""

ENDED_REMEMBERED: Final = 1024
"""Ended sessions whose ids are remembered: a request may have just read one from the store."""

MAX_LOADED: Final = 10_000
"""Sessions in memory, of all callers. Beyond that, idle ones are unloaded until their next use."""

UNLOAD_CANDIDATES: Final = 8
"""Sessions that are checked for being idle each time that there is one too many in memory."""

log = getLogger("taskgate.sessions")


class HostSessions:
    """The sessions that this process has in memory, over the store that has all of them.

    `idle` is the time after which an unused session ends. The limit on sessions of a caller counts
    only those in memory: after a restart, a stored session counts from its first request. At the
    limit, a new session takes the place of the caller's own that is idle for longest.
    """

    def __init__(
        self,
        *,
        store: SessionStore,
        services: SessionServices,
        entropy: Entropy,
        idle: timedelta,
        event_sink: EventSink,
        pool: SessionPool | None = None,
    ) -> None:
        """`pool` has the server sessions of requests without a session id; without it there are none."""
        self._pool = pool
        self._store = store
        self._services = services
        self._clock = services.clock
        self._entropy = entropy
        self._idle = idle
        self._event_sink = event_sink
        # By id, least recently used first. A plain dict would search for its first entry.
        self._loaded: OrderedDict[str, HostSession] = OrderedDict()
        # By the owner's context, and by the person of all its clients; only those with sessions.
        self._callers: dict[str, CallerSessions] = {}
        self._persons: dict[str, CallerSessions] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._background = Background()
        self._bus = services.bus
        self._ended: dict[str, None] = {}
        self._touched_at = services.clock.elapsed()

    async def open(
        self, mount: Mount, caller: AuthContext, intent: OpenSession
    ) -> tuple[HostSession, ServerDescription]:
        """Open and store a session; returns it with its server's description.

        Raises TooManyTasks if the caller is at its limit and all its sessions are in use,
        UpstreamFailed or StoreUnavailable. If it cannot be opened, the place that it took stays free.
        """
        evicted = self._evict_at_limit(caller, mount)
        id_, owner = urlsafe_b64encode(self._entropy.token(ID_BYTES)).decode(), caller.owner(mount.name)
        host_session = HostSession(id_, owner, intent.peer, mount, caller, self._services)
        self._count(host_session)
        try:
            if evicted is not None:
                await self._store.drop(evicted.owner, evicted.id)
            server = await host_session.upstream.welcome()
            await self._store.put(SessionRecord(id=id_, owner=owner, peer=intent.peer, expires_at=self._expiry()))
        except BaseException:
            self._uncount(host_session)
            self.close_upstream(host_session.upstream)
            raise
        host_session.opened_at = self._clock.now()
        self._add(host_session)
        return host_session, server

    def for_request(self, mount: Mount, caller: AuthContext, revision: Revision) -> HostSession | None:
        """Return what a request without a session id has in place of a session; None if it needs one."""
        if self._pool is None:
            return None
        peer = Peer(revision=revision, capabilities={}, info={})
        return RequestScopedSession(mount, caller, peer, self._services, self._pool)

    def _evict_at_limit(self, caller: AuthContext, mount: Mount) -> HostSession | None:
        """End the session of the caller that is idle for longest, if the caller is at its limit.

        The same for its person, with all clients.

        Returns it if the store still has it. Raises TooManyTasks if all are in use.
        """
        limits = self._services.live.current.sessions
        contexts = (self._callers.get(owner.context) for owner in caller.owners(mount.name))
        own, limit, scope = [each for each in contexts if each is not None], limits.context, "context"
        if sum(each.count for each in own) < limit:
            person = self._persons.get(caller.subject)
            if person is None or person.count < limits.subject:
                return None
            own, limit, scope = [person], limits.subject, "subject"
        idle = [found for each in own if (found := each.idlest()) is not None]
        if not idle:
            self._event_sink.emit(CapRefused("sessions", scope))
            raise TooManyTasks(
                limit, "sessions in use", scope=scope, used=limit, advice="end one, or wait until one is idle"
            )
        host_session = min(idle, key=lambda each: each.last_used)
        self._event_sink.emit(SessionEvicted())
        idle_for = round(self._clock.elapsed() - host_session.last_used, 3)
        fields = {"upstream": host_session.owner.mount, "idle_seconds": idle_for, "limit": limit, "scope": scope}
        log.debug("a session is ended: its caller is at its limit and opens another", extra=fields)
        if host_session.is_known_elsewhere:
            # Another replica may use it, where it counts too. The store ends it when it is idle.
            self._unload(host_session)
            return None
        # First in memory: no request may begin on it while the store removes it.
        if self._bus is not None:
            self._bus.send(SessionEnded(host_session.id))
        self.on_ended(host_session.id)
        return host_session

    def recall(self, mount: Mount, caller: AuthContext, id: str) -> HostSession | None:
        """Return the caller's session on this mount if it is in memory, and surely goes on; else None,
        and `find` tells.
        """
        host_session = self._loaded.get(id)
        if host_session is None:
            return None
        owner = host_session.owner
        # The last caller was found to be its owner. Any other one is compared.
        is_last_caller = host_session.caller is caller
        if owner.mount != mount.name or not (is_last_caller or owner.context in (caller.key, caller.previous_key)):
            return None
        if self._bus is not None and self._clock.elapsed() - host_session.last_checked >= CHECK_AFTER:
            return None
        if not is_last_caller:
            host_session.set_caller(caller)
        self._loaded.move_to_end(id)
        return host_session

    async def find(self, mount: Mount, caller: AuthContext, id: str) -> HostSession:
        """Return the caller's session on this mount, loaded from the store if necessary.

        Raises SessionNotFound if it ended, belongs to another owner or mount, or never existed, and
        StoreUnavailable.
        """
        recalled = self.recall(mount, caller, id)
        if recalled is None and self._bus is not None:
            host_session, owners = self._loaded.get(id), caller.owners(mount.name)
            if host_session is not None and host_session.owner in owners and await self._is_alive(host_session):
                recalled = self.recall(mount, caller, id)
        if recalled is not None:
            return recalled
        # A foreign session in memory is looked up in the store too, so that the answer takes as
        # long as for an unknown one (I-ISO-3).
        for owner in caller.owners(mount.name):
            record = await self._store.find(owner, id, now=self._clock.now())
            if record is not None:
                return self._load(mount, record, caller)
        raise SessionNotFound("Session not found")

    def _load(self, mount: Mount, record: SessionRecord, caller: AuthContext) -> HostSession:
        """Return the session of a record that was read from the store.

        It gets a new server session, unless it is in memory by now. Raises SessionNotFound if it
        has ended since.
        """
        # During the read another request may have loaded it, or another replica may have ended it.
        if record.id in self._ended:
            raise SessionNotFound("Session not found")
        host_session = self._loaded.get(record.id)
        if host_session is None:
            host_session = HostSession(record.id, record.owner, record.peer, mount, caller, self._services)
            self._count(host_session)
            self._add(host_session)
            if self._bus is not None:
                host_session.is_known_elsewhere = True
                self._bus.send(SessionRevived(record.id))
        host_session.set_caller(caller)
        return host_session

    async def _is_alive(self, host_session: HostSession) -> bool:
        """Whether no other replica ended this session; the store is asked every CHECK_AFTER.

        As an effect, a session that the store no longer has is removed from memory.
        """
        now = self._clock.elapsed()
        if now - host_session.last_checked < CHECK_AFTER:
            return True
        host_session.last_checked = now
        try:
            record = await self._store.find(host_session.owner, host_session.id, now=self._clock.now())
        except StoreUnavailable:
            # A session in memory can be used without the store.
            return True
        if record is None:
            self.on_ended(host_session.id)
        return record is not None

    def get(self, id: str | None) -> HostSession | None:
        """Return a session in memory, or None. It does not count as used by that."""
        return None if id is None else self._loaded.get(id)

    def loaded(self) -> tuple[HostSession, ...]:
        """The sessions in memory, the least recently used first. They do not count as used by that."""
        return tuple(self._loaded.values())

    def send_in_background(self, host_session: HostSession, method: str, params: Params) -> None:
        """Send the server a request for the whole session; its answer and failures are ignored."""
        self._background.run(lambda: _send(host_session, method, params))

    # --- ends ---------------------------------------------------------------------------------------------------------

    def is_connected(self, id: str) -> bool:
        """Whether the host of a session is connected, as far as this process knows."""
        host_session = self._loaded.get(id)
        return host_session is not None and host_session.is_connected

    async def end(self, host_session: HostSession) -> None:
        """End a session: its id is not found any more, its streams end, its tasks go on."""
        await self._store.drop(host_session.owner, host_session.id)
        if self._bus is not None:
            self._bus.send(SessionEnded(host_session.id))
            self.on_ended(host_session.id)
        self._remove(host_session)

    def on_ended(self, id: str) -> None:
        """Handle that some replica has ended a session: it is not found here any more."""
        self._ended[id] = None
        if len(self._ended) > ENDED_REMEMBERED:
            del self._ended[next(iter(self._ended))]
        host_session = self._loaded.get(id)
        if host_session is not None:
            self._remove(host_session)

    def _remove(self, host_session: HostSession) -> None:
        if self._loaded.pop(host_session.id, None) is not None:
            for own, key in self._groups(host_session):
                own[key].remove(host_session.id)
            self._uncount(host_session)
        host_session.end(self.close_upstream)

    def _add(self, host_session: HostSession) -> None:
        """Add a session to those in memory; it counts already."""
        self._loaded[host_session.id] = host_session
        for own, key in self._groups(host_session):
            own[key].add(host_session)
        self._make_room()

    def _count(self, host_session: HostSession) -> None:
        for own, key in self._groups(host_session):
            own.setdefault(key, CallerSessions()).count += 1

    def _uncount(self, host_session: HostSession) -> None:
        for own, key in self._groups(host_session):
            own[key].count -= 1
            if not own[key].count:
                del own[key]

    def _groups(self, host_session: HostSession) -> tuple[tuple[dict[str, CallerSessions], str], ...]:
        """The groups that a session counts in, and its key in each."""
        return (self._callers, host_session.owner.context), (self._persons, host_session.subject)

    def close_upstream(self, upstream_session: UpstreamSession) -> None:
        """Close a server session in the background; `close` waits until it is closed."""
        closing = asyncio.get_running_loop().create_task(upstream_session.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """End every stream and every server session; the sessions stay in the store."""
        await self._background.close()
        for host_session in tuple(self._loaded.values()):
            self._unload(host_session)
        while self._closing:
            await asyncio.wait(tuple(self._closing))

    # --- idle sessions ------------------------------------------------------------------------------------------------

    async def sweep(self) -> None:
        """End sessions that were idle for too long, and extend the stored expiry of the others.

        With replicas an idle session is only unloaded, because another replica may use it. Called
        at regular intervals. Raises StoreUnavailable; the next sweep makes up for it.
        """
        limit = self._idle.total_seconds()
        for host_session in tuple(self._loaded.values()):
            if host_session.resumable is not None:
                host_session.resumable.sweep()
            # Checked one by one, because the next may become busy while one ends.
            if not host_session.is_busy and self._clock.elapsed() - host_session.last_used >= limit:
                await self._end_idle(host_session)
        now, used = self._clock.elapsed(), self._used()
        if used:
            await self._store.touch(used, until=self._expiry())
        self._touched_at = now
        await self._store.purge_sessions(now=self._clock.now())

    async def _end_idle(self, host_session: HostSession) -> None:
        """End a session that was idle for too long in this process."""
        # With several replicas another one may use it, so it is only unloaded: the store ends it.
        if self._bus is None:
            await self.end(host_session)
        else:
            self._unload(host_session)

    def _used(self) -> frozenset[str]:
        """Return the ids of sessions in memory whose stored expiry must be extended."""
        if self._bus is None:
            return frozenset(self._loaded)
        # Those used since the last touch; one that was used just at that time counts once more.
        return frozenset(
            id_ for id_, each in self._loaded.items() if each.is_busy or each.last_used >= self._touched_at
        )

    def _expiry(self) -> datetime:
        """Return when the store removes a session that is used now and then no more."""
        slack = timedelta() if self._bus is None else TOUCH_SLACK
        return self._clock.now() + self._idle + slack

    def _make_room(self) -> None:
        """Unload an idle session if there are too many; no session if all candidates are busy."""
        for id_ in tuple(islice(self._loaded, UNLOAD_CANDIDATES if len(self._loaded) > MAX_LOADED else 0)):
            host_session = self._loaded[id_]
            if host_session.is_busy:
                self._loaded.move_to_end(id_)
            else:
                self._unload(host_session)
                break

    def _unload(self, host_session: HostSession) -> None:
        """Remove a session from memory; it stays in the store.

        Its settings go to the replica that has its newest GET stream, if there is one.
        """
        newest = host_session.remote_streams.newest
        if newest is not None:
            host_session.settings.hand_over(newest.holder)
        self._remove(host_session)


async def _send(host_session: HostSession, method: str, params: Params) -> None:
    with suppress(UpstreamFailed):
        await host_session.upstream.call(UpstreamCall(method, params), host_session)
