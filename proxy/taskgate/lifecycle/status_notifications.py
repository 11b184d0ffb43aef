"""The status notifications of tasks and their questions, on GET streams: `StatusNotifier`.

Both go only to the session that created the task: without authentication nothing else ties a task
to a host. A session of a revision without tasks gets no status notifications. Hosts must not depend
on notifications, so none is repeated. A question waits until it is answered.

`GetStreams` (`gateway/get_streams`) has the streams. It calls `attend` when one opens and `leave` when it ends,
and `catch_up` for the questions that waited for a stream. While an owner has an open stream here,
the notifier watches the store's change feed of that owner. `result_wait` has the streams
of `tasks/result`.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from taskgate.admission.polls import PollLimiter
from taskgate.clock import Clock
from taskgate.domain.listing import Position, TaskFilter, TaskOrder, TaskState
from taskgate.domain.record import OwnerKey, TaskId, TaskRecord, TaskStatus, with_grown_ttl
from taskgate.errors import StoreUnavailable
from taskgate.lifecycle.input_delivery import InputDelivery
from taskgate.lifecycle.task_streams import TaskStreams, origin_of
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.sessions.host_session import HostSession
from taskgate.stores.base import OwnerWatch, TaskStore
from taskgate.system.background import Background
from taskgate.telemetry.request_context import no_request

PATIENCE: Final = timedelta(seconds=30)
"""The longest wait for changes, after which the store is asked again."""

RETRY: Final = 1.0
"""Seconds until a store that failed is asked again."""

TRIES: Final = 600
"""The limit of attempts to read what waited for a stream: a record may stay unreadable."""

AT_ONCE: Final = 100
"""The page size for tasks with questions."""

ACQUAINTANCE: Final = timedelta(seconds=1)
"""The age before which a task's questions are not sent, unless its host has shown that it knows the
task. They may go out on another stream than the task's handle."""


class StatusNotifier:
    """The watcher of tasks whose owners have open GET streams.

    For each such owner, `_watchers` has the asyncio task that watches, and `_listening` the session
    of each open stream. `held` are tasks whose questions are held back for a moment
    (ACQUAINTANCE), with the timers that send them.
    """

    def __init__(
        self,
        *,
        store: TaskStore,
        streams: TaskStreams,
        offers: InputDelivery,
        polls: PollLimiter,
        dialect: LegacyDownstream,
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
        self.held: dict[TaskId, tuple[TaskRecord, asyncio.TimerHandle]] = {}
        self._background = Background()

    def attend(self, owner: OwnerKey, host_session: HostSession) -> None:
        """Start to send news of the owner's tasks to a session, for one stream that has opened.

        `leave` must follow once when that stream has ended.
        """
        self._listening.setdefault(owner, []).append(host_session)
        if owner not in self._watchers:
            # It continues for later sessions, so it is not part of this request.
            with no_request():
                self._watchers[owner] = asyncio.get_running_loop().create_task(self._watch(owner))

    def leave(self, owner: OwnerKey, host_session: HostSession) -> None:
        """End what `attend` began; the watch of an owner ends with its last stream."""
        sessions = self._listening[owner]
        sessions.remove(host_session)
        if not sessions:
            del self._listening[owner]
            self._watchers.pop(owner).cancel()

    async def catch_up(self, owners: Sequence[OwnerKey], host_session: HostSession) -> None:
        """Send the questions that waited for a stream of the session.

        Called when a stream opens, and after a gap in the change feed. Retries while the store
        fails.
        """
        for owner in owners:
            for _ in range(TRIES):
                if await self._caught_up(owner, host_session):
                    break
                await asyncio.sleep(RETRY)

    async def _caught_up(self, owner: OwnerKey, host_session: HostSession) -> bool:
        """Return whether all waiting tasks of the owner could be read."""
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
        """Handle that the host asks about a task of `held`: it knows the task, so send what was held
        back.
        """
        self._release(task)

    async def close(self) -> None:
        """Stop watching; questions that were held back are not sent."""
        watchers = tuple(self._watchers.values())
        for _, timer in self.held.values():
            timer.cancel()
        for watcher in watchers:
            watcher.cancel()
        await asyncio.gather(*watchers, return_exceptions=True)
        await self._background.close()

    async def _watch(self, owner: OwnerKey) -> None:
        """Send news of the owner's tasks until cancelled."""
        since: int | None = None
        unread: dict[TaskId, None] = {}
        sent: dict[TaskId, datetime] = {}
        while True:
            try:
                patience = timedelta(seconds=RETRY) if unread else PATIENCE
                news = await self._store.changed(OwnerWatch(owner=owner, since=since), timeout=patience)
            except StoreUnavailable:
                await asyncio.sleep(RETRY)
                continue
            since = news.place
            if not news.complete:
                # Some changes are no longer in the feed: send all questions that still wait.
                for host_session in tuple(self._listening[owner]):
                    self._background.run(partial(self.catch_up, (owner,), host_session))
            unread.update((change.id, None) for change in news.changes)
            # Those that could not be read are tried again.
            unread = {task: None for task in unread if not await self._send(owner, task, sent)}

    async def _send(self, owner: OwnerKey, task: TaskId, sent: dict[TaskId, datetime]) -> bool:
        """Send the status notification of a changed task, and its questions; return False if its
        record could not be read.

        `sent` has, by running task, the time of the last visible change that was handled.
        """
        try:
            record = await self._store.load(owner, task, now=self._clock.now())
            self._offers.settle(task, record)
            if record is None:
                sent.pop(task, None)
                return True
            # The host learns of a new task from the answer to its call, which needs no notification.
            is_new = record.status is TaskStatus.WORKING and record.status_message is None and task not in sent
            # A claim of a question is no change for a host: only visible changes move the time of
            # the update.
            if not is_new and sent.get(task) != record.updated_at:
                self._tell_status(record)
            sent[task] = record.updated_at
            if record.status.is_terminal:
                del sent[task]
            await self._ask(record)
        except StoreUnavailable:
            return False
        return True

    def _tell_status(self, record: TaskRecord) -> None:
        origin = origin_of(record)
        host_session = self._streams.session(origin)
        # A late call is a task too where the revision of its session has none, and no such notification.
        if host_session is not None and host_session.has_tasks:
            shown = with_grown_ttl(record, self._clock.now())
            self._streams.send_to_session(origin, self._dialect.task_status(shown, self._polls.advise(record)))

    async def _ask(self, record: TaskRecord) -> None:
        """Send the unclaimed questions on a GET stream of the session that created the task."""
        if record.status is not TaskStatus.INPUT_REQUIRED or record.id in self.held:
            return
        target = self._streams.question_stream(origin_of(record))
        if target is None:
            return
        early = (record.created_at + ACQUAINTANCE - self._clock.now()).total_seconds()
        if early > 0:
            # Hosts refuse a question that arrives before the handle of its task: they do not know
            # the task.
            self._hold(record, early)
        else:
            await self._offers.offer(record, target[0], target[1].peer)

    def _hold(self, record: TaskRecord, seconds: float) -> None:
        timer = asyncio.get_running_loop().call_later(seconds, self._release, record.id)
        self.held[record.id] = record, timer

    def _release(self, task: TaskId) -> None:
        """Send the questions that were held back, whatever the task's age."""
        record, timer = self.held.pop(task)
        timer.cancel()
        self._background.run(partial(self._ask_now, record))

    async def _ask_now(self, held: TaskRecord) -> None:
        """Send the questions of a task now; hold them back for another moment if the store fails."""
        target = self._streams.question_stream(origin_of(held))
        if target is None:
            return
        try:
            record = await self._store.load(held.owner, held.id, now=self._clock.now())
            if record is not None:
                await self._offers.offer(record, target[0], target[1].peer)
        except StoreUnavailable:
            if held.id not in self.held:
                self._hold(held, RETRY)
