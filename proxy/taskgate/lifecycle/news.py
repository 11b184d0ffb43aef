"""The news of tasks on GET streams, and the questions that tasks wait with.

Both go to the session that created the task and to no other: without authentication that is the only tie between a task
and a host (decisions h). Hosts must not depend on news, so none is repeated; a question waits until it is answered.
What must not live here: the streams themselves (`listen`), and those of `tasks/result` (`following`).
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from taskgate.admission.polls import Polls
from taskgate.clock import Clock
from taskgate.domain.listing import Position, TaskFilter, TaskOrder, TaskState
from taskgate.domain.record import OwnerKey, TaskId, TaskRecord, TaskStatus
from taskgate.errors import StoreUnavailable
from taskgate.lifecycle.offers import InputDelivery
from taskgate.lifecycle.task_streams import TaskStreams, origin_of
from taskgate.protocol.base import DownstreamDialect
from taskgate.sessions.registry import HostSession
from taskgate.stores.base import OwnerWatch, TaskStore
from taskgate.system.background import Background
from taskgate.telemetry.request_context import no_request

PATIENCE: Final = timedelta(seconds=30)
"""How long one wait for news lasts before the store is asked again."""

RETRY: Final = 1.0
"""Seconds until a store that did not answer is asked again."""

TRIES: Final = 600
"""How often, at most, a store is asked for what waited for a stream: a record that nobody can read is not for ever."""

AT_ONCE: Final = 100
"""Tasks that are looked for at once, of those that wait with questions."""

ACQUAINTANCE: Final = timedelta(seconds=1)
"""How old a task is before it asks on a stream beside the one that its handle went out on, unless its host knows it."""


class StatusNotifier:
    """Watches the tasks of owners who listen."""

    def __init__(
        self,
        *,
        store: TaskStore,
        streams: TaskStreams,
        offers: InputDelivery,
        polls: Polls,
        dialect: DownstreamDialect,
        clock: Clock,
    ) -> None:
        self._store = store
        self._streams = streams
        self._offers = offers
        self._polls = polls
        self._dialect = dialect
        self._clock = clock
        self._watchers: dict[OwnerKey, asyncio.Task[None]] = {}
        self._listening: dict[OwnerKey, list[HostSession]] = {}
        self._held: dict[TaskId, tuple[TaskRecord, asyncio.TimerHandle]] = {}
        self._background = Background()

    def attend(self, owner: OwnerKey, host_session: HostSession) -> None:
        """The session listens for the owner's tasks; to be paired with `leave`."""
        self._listening.setdefault(owner, []).append(host_session)
        if owner not in self._watchers:
            # It goes on for whoever listens after the one who is first.
            with no_request():
                self._watchers[owner] = asyncio.get_running_loop().create_task(self._watch(owner))

    def leave(self, owner: OwnerKey, host_session: HostSession) -> None:
        """It listens no more."""
        sessions = self._listening[owner]
        sessions.remove(host_session)
        if not sessions:
            del self._listening[owner]
            self._watchers.pop(owner).cancel()

    async def catch_up(self, owners: Sequence[OwnerKey], host_session: HostSession) -> None:
        """Ask what waited for a stream of the session, however long the store takes to tell."""
        for owner in owners:
            for _ in range(TRIES):
                if await self._caught_up(owner, host_session):
                    break
                await asyncio.sleep(RETRY)

    async def _caught_up(self, owner: OwnerKey, host_session: HostSession) -> bool:
        """Whether all of the owner's tasks that wait could be looked at."""
        asking = TaskFilter(states=frozenset({TaskState(TaskStatus.INPUT_REQUIRED)}))
        after: Position | None = None
        is_whole = True
        while True:
            try:
                found = await self._store.page(
                    owner, where=asking, order=TaskOrder(), after=after, limit=AT_ONCE, now=self._clock.now()
                )
            except StoreUnavailable:
                return False
            for task in found.tasks:
                is_whole &= await self._asked_of(owner, task.id, host_session)
            after = found.next
            if after is None:
                return is_whole

    async def _asked_of(self, owner: OwnerKey, task: TaskId, host_session: HostSession) -> bool:
        try:
            record = await self._store.load(owner, task, now=self._clock.now())
            if record is not None and record.call.host_session == host_session.id:
                await self._ask(record)
        except StoreUnavailable:
            return False
        return True

    def met(self, task: TaskId) -> None:
        """The host asks about a task, so it has the handle: what was held back may be asked now."""
        if task in self._held:
            self._release(task)

    async def close(self) -> None:
        """Stop watching; what was held back is asked by nobody."""
        watchers = tuple(self._watchers.values())
        for _, timer in self._held.values():
            timer.cancel()
        for watcher in watchers:
            watcher.cancel()
        await asyncio.gather(*watchers, return_exceptions=True)
        await self._background.close()

    async def _watch(self, owner: OwnerKey) -> None:
        since: int | None = None
        unread: dict[TaskId, None] = {}
        told: dict[TaskId, datetime] = {}
        while True:
            try:
                patience = timedelta(seconds=RETRY) if unread else PATIENCE
                news = await self._store.changed(OwnerWatch(owner=owner, since=since), timeout=patience)
            except StoreUnavailable:
                await asyncio.sleep(RETRY)
                continue
            since = news.place
            if not news.complete:
                # Whatever it was that is not remembered: what still waits is asked.
                for host_session in tuple(self._listening[owner]):
                    self._background.run(partial(self.catch_up, (owner,), host_session))
            unread.update((change.id, None) for change in news.changes)
            unread = {task: None for task in unread if not await self._told_of(owner, task, told)}

    async def _told_of(self, owner: OwnerKey, task: TaskId, told: dict[TaskId, datetime]) -> bool:
        """Tell of a task; False where it could not be read: one that never can keeps no other from being told of."""
        try:
            await self._tell(owner, task, told)
        except StoreUnavailable:
            return False
        return True

    async def _tell(self, owner: OwnerKey, task: TaskId, told: dict[TaskId, datetime]) -> None:
        """Tell of a change; `told` has, for the tasks that go on, when the change was that was told last."""
        record = await self._store.load(owner, task, now=self._clock.now())
        self._offers.settle(task, record)
        if record is None:
            told.pop(task, None)
            return
        is_new = record.status is TaskStatus.WORKING and record.status_message is None and task not in told
        # Who carries a question is no news: only what a host can see moves the time of the update.
        if not is_new and told.get(task) != record.updated_at:
            self._streams.tell_session(origin_of(record), self._dialect.task_changed(self._polls.advised(record)))
        told[task] = record.updated_at
        if record.status.is_terminal:
            del told[task]
        await self._ask(record)

    async def _ask(self, record: TaskRecord) -> None:
        """Ask on a GET stream of the session that made the task what nobody asks yet (decisions 15)."""
        if record.status is not TaskStatus.INPUT_REQUIRED or record.id in self._held:
            return
        place = self._streams.asking(origin_of(record))
        if place is None:
            return
        early = (record.created_at + ACQUAINTANCE - self._clock.now()).total_seconds()
        if early > 0:
            # Hosts refuse a question that overtakes the handle of its task: they cannot place it.
            self._hold(record, early)
        else:
            await self._offers.offer(record, place[0], place[1].peer)

    def _hold(self, record: TaskRecord, seconds: float) -> None:
        timer = asyncio.get_running_loop().call_later(seconds, self._release, record.id)
        self._held[record.id] = record, timer

    def _release(self, task: TaskId) -> None:
        """Ask what was held back, whatever the task's age."""
        record, timer = self._held.pop(task)
        timer.cancel()
        self._background.run(partial(self._ask_now, record))

    async def _ask_now(self, held: TaskRecord) -> None:
        place = self._streams.asking(origin_of(held))
        if place is None:
            return
        try:
            record = await self._store.load(held.owner, held.id, now=self._clock.now())
            if record is not None:
                await self._offers.offer(record, place[0], place[1].peer)
        except StoreUnavailable:
            if held.id not in self._held:
                self._hold(held, RETRY)
