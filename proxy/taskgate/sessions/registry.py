"""Sessions of hosts: opened, found again, ended, each with its own session at the server.

A session is bound to who opened it and to its mount; found with anything else it does not exist. What a restart must
not lose is in the store: the session goes on, and its server is met anew when it is next needed. Tasks outlive their
session, so the server's end stays open until the last of them is done.
"""

import asyncio
from base64 import urlsafe_b64encode
from collections import Counter, OrderedDict
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import islice
from typing import Final

from taskgate.admission.mounts import Mount
from taskgate.auth.context import AuthContext
from taskgate.clock import Entropy
from taskgate.cluster.messages import SessionEnded, SessionRevived
from taskgate.domain.record import OwnerKey
from taskgate.errors import SessionNotFound, StoreUnavailable, TooManyTasks, UpstreamFailed
from taskgate.protocol.discovery import ServerDescription
from taskgate.protocol.host_requests import OpenSession
from taskgate.protocol.messages import Params
from taskgate.sessions.host_session import MAX_STREAMS, HostSession, SessionServices
from taskgate.stores.base import SessionRecord, SessionStore
from taskgate.system.background import Background
from taskgate.telemetry.events import CapRefused, EventSink
from taskgate.upstream.base import UpstreamSession

__all__ = ["MAX_STREAMS", "HostSession", "HostSessions", "SessionServices"]
"""With what a session is, so that their readers need one import."""

ID_BYTES: Final = 24

TIDIED_WITHIN: Final = timedelta(seconds=90)
"""How much longer a store keeps an idle session that others use, too: whoever does says so only now and then."""

CHECKED_AFTER: Final = 30.0
"""Seconds after which a session that others may have ended is looked for in the store again."""

ENDINGS: Final = 1024
"""How many ended sessions are remembered: one may have been read from the store right before."""

MOST_LIVE: Final = 10_000
"""Sessions in memory, of all callers; of more, idle ones are in the store alone until they are asked for."""
PUT_AWAY: Final = 8
"""How many are looked at for those, each time that there is one too many."""


class HostSessions:
    """All sessions of this process. Those of the store that nobody used since it started are not counted."""

    def __init__(
        self,
        *,
        store: SessionStore,
        services: SessionServices,
        entropy: Entropy,
        idle: timedelta,
        event_sink: EventSink,
    ) -> None:
        self._store = store
        self._services = services
        self._clock = services.clock
        self._entropy = entropy
        self._idle = idle
        self._event_sink = event_sink
        # The one that was not asked for the longest in front. A plain dict would have to search for its front.
        self._live: OrderedDict[str, HostSession] = OrderedDict()
        # Of each context, with those that are being opened.
        self._counts: Counter[str] = Counter()
        self._closing: set[asyncio.Task[None]] = set()
        self._asking = Background()
        self._bus = services.bus
        self._ended: dict[str, None] = {}
        self._tidied = services.clock.elapsed()

    async def open(
        self, mount: Mount, caller: AuthContext, intent: OpenSession
    ) -> tuple[HostSession, ServerDescription]:
        """A new session, durable, and what its server said. Raises TooManyTasks, UpstreamFailed or StoreUnavailable."""
        self._expect_room(caller, mount)
        id_, owner = urlsafe_b64encode(self._entropy.token(ID_BYTES)).decode(), caller.owner(mount.name)
        host_session = HostSession(id_, owner, intent.peer, mount, caller, self._services)
        self._counts[owner.context] += 1
        try:
            server = await host_session.upstream.welcome()
            await self._store.put(SessionRecord(id=id_, owner=owner, peer=intent.peer, expires_at=self._expiry()))
        except BaseException:
            self._uncount(owner)
            self.discard(host_session.upstream)
            raise
        self._live[id_] = host_session
        self._make_room()
        return host_session, server

    async def find(self, mount: Mount, caller: AuthContext, id: str) -> HostSession:
        """A session of any of the caller's keys by its id. Raises SessionNotFound: ended, never there, or foreign."""
        owners = caller.owners(mount.name)
        host_session = self._live.get(id)
        is_theirs = host_session is not None and host_session.owner in owners
        if host_session is not None and is_theirs and (self._bus is None or await self._goes_on(host_session)):
            host_session.caller = caller
            self._live.move_to_end(id)
            return host_session
        # A foreign one that is alive here is looked for like one that never was, and takes as long (I-ISO-3).
        for owner in owners:
            record = await self._store.find(owner, id, now=self._clock.now())
            if record is not None:
                return self._revived(mount, record, caller)
        raise SessionNotFound("Session not found")

    def _revived(self, mount: Mount, record: SessionRecord, caller: AuthContext) -> HostSession:
        # Another request may have brought it back while this one was reading, or another process have ended it.
        if record.id in self._ended:
            raise SessionNotFound("Session not found")
        host_session = self._live.get(record.id)
        if host_session is None:
            host_session = HostSession(record.id, record.owner, record.peer, mount, caller, self._services)
            self._live[record.id] = host_session
            self._counts[record.owner.context] += 1
            self._make_room()
            if self._bus is not None:
                self._bus.send(SessionRevived(record.id))
        host_session.caller = caller
        return host_session

    async def _goes_on(self, host_session: HostSession) -> bool:
        """Whether a session that is alive here has not ended elsewhere, as far as it is worth looking."""
        now = self._clock.elapsed()
        if now - host_session.checked < CHECKED_AFTER:
            return True
        host_session.checked = now
        try:
            record = await self._store.find(host_session.owner, host_session.id, now=self._clock.now())
        except StoreUnavailable:
            # What needs no store goes on without it.
            return True
        if record is None:
            self.forget(host_session.id)
        return record is not None

    def peek(self, id: str | None) -> HostSession | None:
        """A session that is alive here, without touching it."""
        return None if id is None else self._live.get(id)

    async def end(self, host_session: HostSession) -> None:
        """End a session: its id is unknown from now on, its streams end, its tasks go on."""
        await self._store.drop(host_session.owner, host_session.id)
        if self._bus is not None:
            self._bus.send(SessionEnded(host_session.id))
            self.forget(host_session.id)
        self._retire(host_session)

    def ask_for(self, host_session: HostSession, method: str, params: Params) -> None:
        """Ask the server for something that its host has in the whole session, in the background."""
        self._asking.run(lambda: _ask(host_session, method, params))

    def forget(self, id: str) -> None:
        """A session was ended, by whatever process: nobody finds it here any more."""
        self._ended[id] = None
        if len(self._ended) > ENDINGS:
            del self._ended[next(iter(self._ended))]
        host_session = self._live.get(id)
        if host_session is not None:
            self._retire(host_session)

    async def sweep(self) -> None:
        """End what has been idle for too long, and keep the store's expiry ahead of what has not."""
        limit = self._idle.total_seconds()
        for host_session in tuple(self._live.values()):
            if host_session.resumable is not None:
                host_session.resumable.sweep()
            # Asked one by one: while one is being ended, the next may come to life.
            if not host_session.busy and self._clock.elapsed() - host_session.seen >= limit:
                await self._let_go(host_session)
        now, used = self._clock.elapsed(), self._used()
        if used:
            await self._store.touch(used, until=self._expiry())
        self._tidied = now
        await self._store.purge_sessions(now=self._clock.now())

    async def _let_go(self, host_session: HostSession) -> None:
        """Nobody used it here for too long; where others may have, the store knows when it ends."""
        if self._bus is None:
            await self.end(host_session)
        else:
            self._part_from(host_session)

    def _part_from(self, host_session: HostSession) -> None:
        """The session goes on, but not here."""
        newest = host_session.elsewhere.newest
        if newest is not None:
            host_session.wants.hand_over(newest.holder)
        self._retire(host_session)

    def _make_room(self) -> None:
        """Put an idle session away, should there be too many: the store has it, for when it is asked for.

        Only a few are looked at, so where those are all busy, there are more for now.
        """
        for id_ in tuple(islice(self._live, PUT_AWAY if len(self._live) > MOST_LIVE else 0)):
            host_session = self._live[id_]
            if host_session.busy:
                self._live.move_to_end(id_)
            else:
                self._part_from(host_session)
                break

    def _used(self) -> frozenset[str]:
        """The sessions whose end is further away than the store knows."""
        if self._bus is None:
            return frozenset(self._live)
        # What was used right at the last round that the store took counts once more.
        return frozenset(id_ for id_, each in self._live.items() if each.busy or each.seen >= self._tidied)

    def _expiry(self) -> datetime:
        slack = timedelta() if self._bus is None else TIDIED_WITHIN
        return self._clock.now() + self._idle + slack

    async def close(self) -> None:
        """End every stream and every session at its server; the hosts' sessions stay in the store."""
        await self._asking.close()
        for host_session in tuple(self._live.values()):
            self._part_from(host_session)
        while self._closing:
            await asyncio.wait(tuple(self._closing))

    def _retire(self, host_session: HostSession) -> None:
        if self._live.pop(host_session.id, None) is not None:
            self._uncount(host_session.owner)
        host_session.end(self.discard)

    def _expect_room(self, caller: AuthContext, mount: Mount) -> None:
        limit = self._services.live.current.sessions
        if sum(self._counts[owner.context] for owner in caller.owners(mount.name)) >= limit:
            self._event_sink.emit(CapRefused("sessions", "context"))
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


async def _ask(host_session: HostSession, method: str, params: Params) -> None:
    with suppress(UpstreamFailed):
        await host_session.upstream.relay(method, params, listener=host_session)
