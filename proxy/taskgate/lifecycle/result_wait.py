"""The waits of hosts for the end of a task: `ResultWaiter`, for `tasks/result` and polls of new tasks.

`TaskRequests` calls `outcome` for `tasks/result`, which waits until the task has ended. A host that
accepts an event stream gets one, which also delivers the task's questions and notifications. A result may
be too large for an event of the host. If the host cannot be asked anything, it waits for a document.
`TaskRequests` calls `poll` for a `tasks/get`, which waits briefly.

A host that lost the stream may resume it with a GET request. Then `GetRequests` calls:

- in the same process: `go_on` and `hold`, while the wait of `outcome` still runs;
- in another replica: `take_up`, which continues the wait there, and `hold`.

`inputs` stores questions in the record, `input_delivery` claims them for a stream.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractContextManager, ExitStack
from datetime import datetime, timedelta
from functools import partial
from logging import getLogger
from typing import Final, NamedTuple

from taskgate.admission.lookups import Lookups
from taskgate.auth.context import AuthContext
from taskgate.clock import Clock
from taskgate.domain.record import TaskId, TaskRecord, TaskStatus
from taskgate.domain.versions import Peer
from taskgate.errors import AuthReason, Draining, GatewayError, TaskNotFound, Unauthenticated
from taskgate.lifecycle.input_delivery import InputDelivery
from taskgate.lifecycle.retrievals import Retrievals
from taskgate.lifecycle.task_streams import RemoteWait, TaskStreams, WaitPosition, origin_of, question_streams
from taskgate.protocol.faults import fault
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.protocol.vocabulary import TASKS_RESULT
from taskgate.sessions.host_session import HostSession
from taskgate.stores.base import TaskStore, TaskWatch
from taskgate.streams.event_stream import EventStream, ResumableEventStream
from taskgate.streams.exchange import Exchange
from taskgate.streams.log_entries import StreamOrigin
from taskgate.system.cancel_scope import CancelScope, ScopeCancelled

PATIENCE: Final = timedelta(seconds=30)
"""The longest wait for changes, after which the record is read again."""


log = getLogger("taskgate.following")


class Moved(NamedTuple):
    """A wait that began in another process, and continues in this one.

    `feed` is the stream that continues the old one, `about` the purpose of the old one. `ahead` is
    the number of notifications that the host has received after `about.last_note`.
    """

    feed: ResumableEventStream
    about: StreamOrigin
    ahead: int = 0


DocumentWait = Callable[
    [Exchange, Peer, LegacyDownstream, Collection[EventStream]], AbstractContextManager[object] | None
]
"""Returns the block in which a host waits for a document; None for one that gets an event stream."""


class ResultWaiter:
    """The waits for results in this process, and the streams of them.

    `_waits` are the streams of waits, each with the record as it was at the start. `_waiting` are
    the scopes that end a wait early, and `_watches` are those of `watch`, each with whether it is of a call.
    `_left` is the retry delay that `leave` was given; None before. `_moves_calls`, `_moves_waits`: `move_watches`
    was called for them.
    """

    def __init__(
        self,
        *,
        store: TaskStore,
        retrievals: Retrievals,
        lookups: Lookups,
        streams: TaskStreams,
        offers: InputDelivery,
        dialect: LegacyDownstream,
        clock: Clock,
        document_wait: DocumentWait,
    ) -> None:
        self._document_wait = document_wait
        self._store = store
        self._retrievals = retrievals
        self._lookups = lookups
        self._streams = streams
        self._offers = offers
        self._dialect = dialect
        self._clock = clock
        self._waits: dict[EventStream, TaskRecord] = {}
        self._waiting: dict[CancelScope, TaskId] = {}
        self._watches: dict[CancelScope, bool] = {}
        self._left: timedelta | None = None
        self._moves_calls = self._moves_waits = False

    async def outcome(
        self, exchange: Exchange, caller: AuthContext, host_session: HostSession, task: TaskId, method: str
    ) -> TaskRecord:
        """Wait until a task has ended, and return its whole record.

        If the host accepts an event stream, it gets one. It delivers the task's questions, unless a
        GET stream of the session that created the task does. A host that takes only small events and
        cannot be asked waits for a document.

        Raises TooManyTasks for too many open waits, and TaskNotFound, also if the task expires
        meanwhile. Raises ScopeCancelled when the host disconnects for good, and Draining when the
        gateway shuts down before the task ends. Raises Unauthenticated when the token expires:
        nothing is sent after that (T9). A resumable stream only closes then, and the host may
        resume it with a new token.
        """
        record = await self._lookups.find(exchange, caller, host_session.mount.name, task, method)
        if not record.status.is_terminal:
            record = await self._awaited(record, exchange, caller, host_session)
        return await self._whole(record, caller)

    async def watch(
        self,
        caller: AuthContext,
        record: TaskRecord,
        within: timedelta,
        report: Callable[[TaskRecord], Awaitable[bool]],
        *,
        is_call: bool,
    ) -> TaskRecord:
        """Wait until a task that was found has ended, at most for `within`; return its newest record.

        One that has ended is whole, and not yet marked as fetched. `report` gets the record, and each newer
        one, while the task runs; the wait ends too if it returns False. The caller has the scope that ends
        the wait with its host. `is_call`: the request is the call itself, and no later wait for it.
        Raises what `outcome` raises but Draining: at a shutdown the wait ends early.
        """
        if record.status.is_terminal:
            return record if record.outcome is not None else await self._load(record, caller)
        record = await self._watch(caller, record, within, report, is_call=is_call)
        return await self._load(record, caller) if record.status.is_terminal else record

    async def poll(
        self, exchange: Exchange, caller: AuthContext, record: TaskRecord, within: timedelta
    ) -> tuple[TaskRecord, float]:
        """Wait until a running task has ended or asks its host something, at most for `within`.

        Returns its newest head, and for how many seconds it waited. A caller with too many waits does
        not wait. At a shutdown the wait ends early. Raises ScopeCancelled when the host disconnects,
        Unauthenticated when its token expires, and TaskNotFound.
        """
        begun = self._clock.elapsed()
        if self._streams.open.has_room_for_wait(caller):
            connection = CancelScope()
            try:
                with connection:
                    exchange.on_disconnect(connection.cancel)
                    async with asyncio.timeout(within.total_seconds()):
                        record = await self._watch(caller, record, PATIENCE, _is_running, is_call=False)
            except TimeoutError:
                record = await self._lookups.reload(record)
        return record, self._clock.elapsed() - begun

    async def _watch(
        self,
        caller: AuthContext,
        record: TaskRecord,
        within: timedelta,
        report: Callable[[TaskRecord], Awaitable[bool]],
        *,
        is_call: bool,
    ) -> TaskRecord:
        """Wait for a running task as `watch` does; return the head of its newest record."""
        until, waiting = self._clock.elapsed() + within.total_seconds(), CancelScope()
        self._waiting[waiting] = record.id
        self._watches[waiting] = is_call
        try:
            with self._streams.open.acquire_wait(caller), waiting:
                while await report(record):
                    left = 0.0 if self._moves(is_call) else until - self._clock.elapsed()
                    if left <= 0:
                        break
                    await self._wait_for_change(record, caller.expires_at, timedelta(seconds=left))
                    record = await self._lookups.reload(record)
                    if record.status.is_terminal:
                        break
        except ScopeCancelled:
            # Of this block: the gateway ends.
            pass
        finally:
            del self._waiting[waiting]
            del self._watches[waiting]
        return record

    def move_watches(self, *, calls_alone: bool) -> None:
        """End each `watch` now, and each later one at once: their hosts wait anew, at another replica if there is one.

        Called when this process begins to shut down. `calls_alone`: only those of calls.
        """
        self._moves_calls, self._moves_waits = True, not calls_alone
        for watching, is_call in self._watches.items():
            if self._moves(is_call):
                watching.cancel()

    def _moves(self, is_call: bool) -> bool:
        return self._moves_calls if is_call else self._moves_waits

    def leave(self, tasks: frozenset[TaskId], patience: timedelta) -> None:
        """End the waits for `tasks` with Draining: their calls were left to the next process.

        Called at a shutdown. `patience` is the retry delay that hosts get.
        """
        self._left = patience
        for waiting, task in self._waiting.items():
            if task in tasks:
                waiting.cancel()

    async def _awaited(
        self, record: TaskRecord, exchange: Exchange, caller: AuthContext, host_session: HostSession
    ) -> TaskRecord:
        waiting = CancelScope()
        self._waiting[waiting] = record.id
        try:
            with self._streams.open.acquire_wait(caller), waiting:
                exchange.on_disconnect(waiting.cancel)
                others = question_streams(record, host_session)
                document = self._document_wait(exchange, host_session.peer, self._dialect, others)
                if document is None:
                    return await self._follow(record, caller, exchange.stream(), host_session)
                with document:
                    while not record.status.is_terminal:
                        await self._wait_for_change(record, caller.expires_at)
                        record = await self._lookups.reload(record)
        except ScopeCancelled:
            if self._left is None:
                raise
            raise Draining(self._left) from None
        finally:
            del self._waiting[waiting]
        return record

    async def take_up(self, exchange: Exchange, caller: AuthContext, host_session: HostSession, moved: Moved) -> None:
        """Continue a wait of another process on `moved.feed`, and end that stream with the answer.

        Runs in the background, and raises only CancelledError. `exchange` is the request that
        resumes the stream; the wait outlives it. If no host resumes the stream in time, the wait
        ends.
        """
        feed, about, waiting = moved.feed, moved.about, CancelScope()
        assert about.request is not None
        assert about.task is not None
        position = WaitPosition(about.wait or feed.name, about.last_note, moved.ahead)
        try:
            with host_session, waiting:
                feed.on_discard(waiting.cancel)
                record = await self._lookups.find(exchange, caller, host_session.mount.name, about.task, TASKS_RESULT)
                if not record.status.is_terminal:
                    with self._streams.open.acquire_wait(caller):
                        record = await self._follow(record, caller, feed, host_session, position)
                answer = self._dialect.task_outcome(about.request, await self._whole(record, caller))
        except ScopeCancelled:
            return
        except Exception as error:
            if not isinstance(error, GatewayError):
                log.error("Unexpected error while waiting for a task", exc_info=error)
            answer = fault(error).message(about.request)
        feed.finish(answer)

    async def _whole(self, record: TaskRecord, caller: AuthContext) -> TaskRecord:
        """Return an ended task with its result, and mark it as fetched. Raises TaskNotFound."""
        whole = await self._load(record, caller)
        self._retrievals.note(whole)
        return whole

    async def _load(self, record: TaskRecord, caller: AuthContext) -> TaskRecord:
        """Return an ended task with its result. Raises TaskNotFound."""
        whole = await self._lookups.results.load(record, caller)
        if whole is None:
            raise TaskNotFound
        return whole

    async def hold(self, feed: ResumableEventStream, caller: AuthContext) -> None:
        """Return when the stream's present connection has ended.

        If the stream belongs to a wait, the connection is closed when the caller's token expires.
        """
        if caller.expires_at is None or feed not in self._waits:
            await feed.wait_closed()
            return
        connection = feed.connection
        try:
            async with asyncio.timeout((caller.expires_at - self._clock.wall()).total_seconds()):
                await feed.wait_closed()
        except TimeoutError:
            # Another request may have resumed the stream meanwhile, with its own token.
            if feed.connection is connection:
                feed.close()

    async def go_on(self, feed: EventStream, peer: Peer) -> None:
        """Send the questions of a wait whose stream a host has resumed; ignores other streams."""
        waiting = self._waits.get(feed)
        if waiting is not None:
            record = await self._lookups.reload(waiting)
            await self.offer(record, feed, peer)

    async def _follow(
        self,
        record: TaskRecord,
        caller: AuthContext,
        feed: EventStream,
        host_session: HostSession,
        position: WaitPosition | None = None,
    ) -> TaskRecord:
        """Wait until the task has ended, and return its last record (T-18, T-19).

        Meanwhile its questions and notifications go out on the stream `feed`. `position` is given if
        the wait began in another process.
        """
        give_back = partial(self._offers.give_back, feed)
        feed.on_connection_lost(give_back)
        self._waits[feed] = record
        remote = self._remote_wait(feed, host_session, position)
        good_until, first = caller.expires_at, feed.connection
        try:
            with ExitStack() as direct:
                direct.enter_context(self._streams.result(record.id, feed))
                while not record.status.is_terminal:
                    if remote is not None and remote.follow(record):
                        # Notes come from the shared log from now on, so none must come directly.
                        direct.close()
                    await self.offer(record, feed, host_session.peer)
                    try:
                        await self._wait_for_change(record, good_until)
                    except Unauthenticated:
                        if not isinstance(feed, ResumableEventStream):
                            raise
                        # As if the connection were lost: the host reconnects with another token.
                        # The wait goes on, and `hold` watches the token of the next connection.
                        good_until = None
                        if feed.connection is first:
                            feed.close()
                    record = await self._lookups.reload(record)
                    self._offers.settle(record.id, record)
            if remote is not None:
                await remote.finish()
            return record
        finally:
            del self._waits[feed]
            # A callback of a stream that refers to the stream would stay until cycles are collected.
            feed.remove_callback(give_back)
            self._offers.give_back(feed)
            if remote is not None:
                await remote.close()

    def _remote_wait(
        self, feed: EventStream, host_session: HostSession, position: WaitPosition | None
    ) -> RemoteWait | None:
        """Return the receiver of notifications while the task runs at another replica.

        None without other replicas, or if the host cannot resume the stream.
        """
        resumable = host_session.resumable
        if self._streams.remote is None or resumable is None or not isinstance(feed, ResumableEventStream):
            return None
        return self._streams.remote.listen(resumable, feed, host_session.id, position)

    async def offer(self, record: TaskRecord, feed: EventStream, peer: Peer) -> None:
        """Send the unclaimed questions: on a GET stream of the session if there is one, else on
        this one.
        """
        if not record.inputs:
            return
        target = self._streams.question_stream(origin_of(record))
        if target is not None:
            await self._offers.offer(record, target[0], target[1].peer)
        elif not feed.is_closed:
            # A stream without a connection would claim a question and release it. It would take
            # that for a change of the record, without end.
            await self._offers.offer(record, feed, peer)

    async def _wait_for_change(
        self, record: TaskRecord, good_until: datetime | None, within: timedelta = PATIENCE
    ) -> None:
        """Wait until the record may have changed. Raises Unauthenticated when the token expires."""
        left = min(PATIENCE, within, record.expires_at - self._clock.now())
        if good_until is not None:
            left = min(left, good_until - self._clock.wall())
        watch = TaskWatch(id=record.id, revision=record.revision)
        await self._store.changed(watch, timeout=max(left, timedelta()))
        if good_until is not None and self._clock.wall() >= good_until:
            raise Unauthenticated(AuthReason.EXPIRED, detail="the token expired")


async def _is_running(record: TaskRecord) -> bool:
    """Return whether a poll waits on for the task: it asks its host nothing."""
    return record.status is TaskStatus.WORKING
