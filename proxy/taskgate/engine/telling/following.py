"""How a host waits for its task: for the outcome on a `tasks/result`, which carries the task's questions meanwhile.

And how it answers them. What must not live here: where questions come from (`inputs`), how they are claimed (`offers`).
"""

from datetime import timedelta
from typing import Final

from taskgate.auth.context import AuthContext
from taskgate.clock import Clock
from taskgate.dialects.base import AnswerInput, DownstreamDialect
from taskgate.engine.changes import Changes
from taskgate.engine.guard.access import Access
from taskgate.engine.guard.lookups import Lookups
from taskgate.engine.messages import Exchange, Feed
from taskgate.engine.sessions import HostSession
from taskgate.engine.telling.offers import Offers
from taskgate.engine.telling.task_streams import TaskStreams, origin_of
from taskgate.errors import AuthReason, TaskNotFound, Unauthenticated
from taskgate.interruption import Interruptible
from taskgate.mcp.versions import Peer
from taskgate.mcp.vocabulary import TASKS_RESULT
from taskgate.stores.base import TaskStore, TaskWatch
from taskgate.tasks.events import InputAnswered, InputKept, TaskEvent
from taskgate.tasks.record import TaskId, TaskRecord

PATIENCE: Final = timedelta(seconds=30)
"""How long one wait for news lasts before the record is read again."""


class Following:
    """Waits for tasks, and takes the answers that they wait for."""

    def __init__(
        self,
        *,
        store: TaskStore,
        changes: Changes,
        lookups: Lookups,
        access: Access,
        streams: TaskStreams,
        offers: Offers,
        dialect: DownstreamDialect,
        clock: Clock,
    ) -> None:
        self._store = store
        self._changes = changes
        self._lookups = lookups
        self._access = access
        self._streams = streams
        self._offers = offers
        self._dialect = dialect
        self._clock = clock
        self._waits: dict[Feed, TaskRecord] = {}

    async def outcome(
        self, exchange: Exchange, caller: AuthContext, host_session: HostSession, task: TaskId, method: str
    ) -> TaskRecord:
        """The whole record of a task, once it is terminal; until then the host waits on an event stream if it can.

        That stream carries the questions of the task, too, unless a GET stream of the session that made it does.

        Raises TaskNotFound, also when the task expires meanwhile, Interrupted when the host leaves for good, and
        Unauthenticated when its token ends first: nothing is given out after that (T9).
        """
        record = await self._lookups.find(exchange, caller, host_session.mount.name, task, method)
        if not record.status.is_terminal:
            waiting = Interruptible()
            with waiting:
                exchange.when_gone(waiting.interrupt)
                if exchange.inbound.accepts_stream:
                    record = await self._follow(record, caller, exchange.stream(), host_session.peer)
                while not record.status.is_terminal:
                    await self._news(record, caller)
                    record = await self._lookups.again(record)
        whole = await self._store.load(record.owner, task, now=self._clock.now(), bodies=True)
        if whole is None:
            raise TaskNotFound
        self._changes.retrievals.note(whole)
        return whole

    async def go_on(self, feed: Feed, peer: Peer) -> None:
        """A stream that a host has taken up again carries the questions of the task that is waited for on it."""
        waiting = self._waits.get(feed)
        if waiting is not None:
            record = await self._lookups.again(waiting)
            await self._offer(record, feed, peer)

    async def answer(self, caller: AuthContext, mount: str, given: AnswerInput) -> None:
        """Take the answer to a question of a task of the caller's; the first counts, whatever session it comes from.

        One to a question that is answered, withdrawn, foreign or unknown does nothing, and nobody can tell which.
        Raises StoreUnavailable.
        """
        for owner in caller.owners(mount):
            record = await self._store.load(owner, given.task, now=self._clock.now())
            if record is not None and self._access.permits(caller, mount, TASKS_RESULT, record.call.tool):
                if not record.was_asked(given.key):
                    self._changes.unasked(owner)
                with self._offers.answering(given.task, given.key):
                    await self._changes.make(owner, given.task, lambda now: self._answered(now, given))

    def _answered(self, record: TaskRecord, given: AnswerInput) -> TaskEvent:
        """What an answer is to the task: the last word, or the handle of a task of the host's own."""
        asked = next((each.params for each in record.inputs if each.key == given.key), "")
        if given.kept_as is not None and self._dialect.wants_task(asked):
            return InputKept(key=given.key, response=given.answer, kept_as=given.kept_as)
        return InputAnswered(key=given.key, response=given.answer)

    async def _follow(self, record: TaskRecord, caller: AuthContext, feed: Feed, peer: Peer) -> TaskRecord:
        """The record once it is terminal; its questions are asked on the stream meanwhile (T-18, T-19)."""
        feed.when_lost(lambda: self._offers.give_back(feed))
        self._waits[feed] = record
        try:
            with self._streams.result(record.id, feed):
                while not record.status.is_terminal:
                    await self._offer(record, feed, peer)
                    await self._news(record, caller)
                    record = await self._lookups.again(record)
                    self._offers.settle(record.id, record)
            return record
        finally:
            del self._waits[feed]
            self._offers.give_back(feed)

    async def _offer(self, record: TaskRecord, feed: Feed, peer: Peer) -> None:
        """Ask what nobody is asked yet: on a GET stream if there is one, else on this one (decisions 15)."""
        if not record.inputs:
            return
        place = self._streams.asking(origin_of(record))
        if place is not None:
            await self._offers.offer(record, place[0], place[1].peer)
        elif not feed.closed:
            # One without a connection would claim a question, give it back, and hear of that as news, for ever.
            await self._offers.offer(record, feed, peer)

    async def _news(self, record: TaskRecord, caller: AuthContext) -> None:
        now = self._clock.now()
        left = min(PATIENCE, record.expires_at - now)
        if caller.good_until is not None:
            left = min(left, caller.good_until - now)
        watch = TaskWatch(id=record.id, revision=record.revision)
        await self._store.changed(watch, timeout=max(left, timedelta()))
        if caller.good_until is not None and self._clock.now() >= caller.good_until:
            raise Unauthenticated(AuthReason.EXPIRED)
