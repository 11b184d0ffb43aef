"""GET streams of hosts, and the news of tasks on them.

A status notification goes to the session that created the task and to no other: without authentication that is the
only tie between a task and a host (decisions h). Hosts must not depend on it, so nothing is replayed.
"""

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Final

from taskgate.auth.context import AuthContext
from taskgate.clock import Clock
from taskgate.dialects.base import DownstreamDialect
from taskgate.engine.access import Access
from taskgate.engine.messages import Exchange, Feed, Reply
from taskgate.engine.sessions import MAX_STREAMS, HostSession, HostSessions
from taskgate.errors import StoreUnavailable, UpstreamFailed
from taskgate.mcp.vocabulary import TASKS_GET
from taskgate.stores.base import OwnerWatch, TaskStore
from taskgate.tasks.record import OwnerKey, TaskId, TaskStatus

PATIENCE: Final = timedelta(seconds=30)
"""How long one wait for news lasts before the store is asked again."""

LONGEST_TIMER: Final = 86_400.0
"""Seconds; no stream needs to outlive that, and no event loop counts much further."""


class Listening:
    """The open GET streams of this process."""

    def __init__(
        self, *, store: TaskStore, sessions: HostSessions, access: Access, dialect: DownstreamDialect, clock: Clock
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._access = access
        self._dialect = dialect
        self._clock = clock
        self._watchers: dict[OwnerKey, asyncio.Task[None]] = {}
        self._counts: dict[OwnerKey, int] = {}

    async def serve(self, exchange: Exchange, host_session: HostSession, caller: AuthContext) -> Reply:
        """Hold one GET stream until the host leaves, the session ends, or the token that it was asked for with."""
        owners = caller.owners(host_session.mount.name)
        feed = exchange.stream()
        host_session.streams[feed] = caller
        still_open = [each for each in host_session.streams if not each.closed]
        if len(still_open) > MAX_STREAMS:
            still_open[0].close()
        for owner in owners:
            self._attend(owner)
        expiry = self._end_of(caller, feed)
        meeting = asyncio.get_running_loop().create_task(self._meet(host_session))
        try:
            await feed.ended()
        finally:
            meeting.cancel()
            if expiry is not None:
                expiry.cancel()
            del host_session.streams[feed]
            for owner in owners:
                self._leave(owner)
        return Reply()

    async def close(self) -> None:
        """Stop watching; the streams end with their sessions."""
        watchers = tuple(self._watchers.values())
        for watcher in watchers:
            watcher.cancel()
        await asyncio.gather(*watchers, return_exceptions=True)

    def _end_of(self, caller: AuthContext, feed: Feed) -> asyncio.TimerHandle | None:
        if caller.good_until is None:
            return None
        left = (caller.good_until - self._clock.now()).total_seconds()
        return asyncio.get_running_loop().call_later(min(left, LONGEST_TIMER), feed.close)

    async def _meet(self, host_session: HostSession) -> None:
        """After a restart the server has to be met again before it can say anything."""
        with suppress(UpstreamFailed):
            await host_session.upstream.open()

    def _attend(self, owner: OwnerKey) -> None:
        self._counts[owner] = self._counts.get(owner, 0) + 1
        if owner not in self._watchers:
            self._watchers[owner] = asyncio.get_running_loop().create_task(self._watch(owner))

    def _leave(self, owner: OwnerKey) -> None:
        self._counts[owner] -= 1
        if not self._counts[owner]:
            del self._counts[owner]
            self._watchers.pop(owner).cancel()

    async def _watch(self, owner: OwnerKey) -> None:
        since: int | None = None
        while True:
            try:
                news = await self._store.changed(OwnerWatch(owner=owner, since=since), timeout=PATIENCE)
                since = news.place
                for change in news.changes:
                    await self._tell(owner, change.id)
            except StoreUnavailable:
                # Nothing to tell while there is no store; the notification is a courtesy.
                await asyncio.sleep(1)

    async def _tell(self, owner: OwnerKey, task: TaskId) -> None:
        record = await self._store.load(owner, task, now=self._clock.now())
        if record is None or (record.status is TaskStatus.WORKING and record.status_message is None):
            return
        # The session that made the task, which was its owner's then, and a session never changes hands.
        host_session = self._sessions.peek(record.call.host_session)
        if host_session is not None:
            mount, tool = owner.mount, record.call.tool
            host_session.publish(
                self._dialect.task_changed(record),
                lambda caller: self._access.permits(caller, mount, TASKS_GET, tool),
            )
