"""Several runners over one store in memory, whose every step is let through, or held, by a schedule.

A replica is one of them: a runner, what it holds, and the rounds that take over. Each look at the store and each change
of it waits twice, before it is made and before its replica hears of it, so a replica can be stopped at any point in
between, as SIGSTOP does, or for ever. Nothing here takes time: pauses end when the schedule says so.
"""

import asyncio
from datetime import timedelta
from random import Random
from types import SimpleNamespace
from typing import Any, Final

from helpers.manual_clock import ManualClock
from helpers.records import new_record
from helpers.shared_memory import ForgetfulStore, LeasesInMemory
from taskgate.admission.callers import principal_of
from taskgate.admission.concurrency import Bulkhead, BulkheadSettings, queue_status
from taskgate.admission.rules import QuestionBounds
from taskgate.auth.context import ANONYMOUS
from taskgate.clock import SharedClock
from taskgate.domain.events import CancelRequested
from taskgate.domain.machine import advance
from taskgate.domain.record import Lease, TaskId, TaskRecord, TaskStatus
from taskgate.errors import StoreUnavailable
from taskgate.gateway.sweeper import Sweeper
from taskgate.lifecycle.leases import LeaseRules, Leasing
from taskgate.lifecycle.retrievals import Retrievals
from taskgate.lifecycle.runner import Runner
from taskgate.lifecycle.task_listener import TaskListeners
from taskgate.lifecycle.transitions import Transitions
from taskgate.protocol.legacy.downstream import LegacyDownstream
from unit.admission.live_rules import live
from unit.lifecycle.gated import HERE, Gated, Gates, Replica, Server, sleep
from unit.lifecycle.recorded_events import RecordedEvents

RULES: Final = LeaseRules(timedelta(seconds=15), timedelta(seconds=5))


class World:
    """The store, the server, the replicas and the clock."""

    def __init__(self, random: Random, names: str = "ABC") -> None:
        self.random = random
        self.clock = ManualClock()
        self.store = ForgetfulStore()
        self.leases = LeasesInMemory(self.store, self.clock)
        self.gates = Gates()
        self.server = Server(self)
        self.is_down = False
        self.replicas = [self._replica(name) for name in names]
        self.acknowledged: dict[TaskId, TaskRecord] = {}
        self.refused: dict[TaskId, TaskRecord] = {}
        self.ended: dict[TaskId, TaskRecord] = {}
        self.cancelled: set[TaskId] = set()
        self.owners: dict[TaskId, str] = {}
        self.held: set[tuple[str, TaskId, int]] = set()

    def _replica(self, name: str) -> Replica:
        store: Any = Gated(self, self.store)
        leases: Any = Gated(self, self.leases)
        nothing: Any = None
        clock, emitted = SharedClock(self.clock), RecordedEvents()
        leasing = Leasing(holder=name, leases=leases, apart=nothing, rules=RULES, clock=clock, event_sink=emitted)
        changes = Transitions(store=store, event_sink=emitted, clock=clock, hold=leasing)
        streams: Any = SimpleNamespace(remote=None)
        rules = live(questions=QuestionBounds(timedelta(hours=1), 8))
        sessions: Any = SimpleNamespace(close_upstream=lambda session: None)
        runner = Runner(
            holder=name,
            store=store,
            transitions=changes,
            retrievals=Retrievals(transitions=changes, event_sink=emitted, clock=clock),
            sessions=sessions,
            listeners=TaskListeners(transitions=changes, streams=streams, dialect=LegacyDownstream("1"), live=rules),
            event_sink=emitted,
            clock=clock,
            leasing=leasing,
        )
        bounds = BulkheadSettings(concurrency=2, queue=50, max_wait=timedelta(hours=1))
        mount: Any = SimpleNamespace(
            bulkhead=Bulkhead("reports", bounds, event_sink=emitted),
            upstream=SimpleNamespace(session=lambda *_: self.server),
        )
        sweeper = Sweeper(
            store=store,
            runner=runner,
            waiting=nothing,
            mounts={"reports": mount},
            event_sink=emitted,
            clock=clock,
            interval=timedelta(hours=1),
            leasing=leasing,
        )
        place = SimpleNamespace(
            acquire=lambda: None,
            release=lambda: None,
            upstream=self.server,
            mount=mount,
            caller=ANONYMOUS,
            principal=principal_of(ANONYMOUS),
        )
        return Replica(name, store, runner, leasing, sweeper, place, emitted)

    # --- what may happen --------------------------------------------------------------------------------------------

    def create(self, replica: Replica, **changes: Any) -> TaskRecord:
        """A host makes a task there; it counts once it was acknowledged. One that need not wait has its mark."""
        lease = Lease(holder=replica.name, until=self.clock.now() + RULES.length)
        ticket = replica.place.mount.bulkhead.acquire("a")
        record = new_record(
            params=f'{{"n":{self.random.getrandbits(64)}}}',
            lease=lease,
            created_at=self.clock.now(),
            ttl=timedelta(days=30),
            dispatched=ticket.is_granted,
            status_message=None if ticket.is_granted else queue_status(ticket.ahead),
            **changes,
        )

        async def make() -> None:
            try:
                await replica.store.insert(record, caps=())
            except StoreUnavailable:
                ticket.release()
                self.refused[record.id] = record
                replica.runner.disown(record.owner, record.id, dispatched=False)
                return
            self.acknowledged[record.id] = record
            replica.runner.start(record, replica.place, ANONYMOUS, ticket)

        replica.begin(make)
        return record

    def cancel(self, replica: Replica, task: TaskId) -> None:
        """A host cancels a task there, wherever it runs. It may know the task from a list."""
        record = self._head_of(task)

        async def ask() -> None:
            found = await replica.store.load(record.owner, task, now=self.clock.now())
            if found is not None and not found.status.is_terminal:
                after = advance(found, CancelRequested(), self.clock.now())
                if await replica.store.swap(after, expected=found.revision):
                    self.cancelled.add(task)

        replica.begin(ask)

    def beat(self, replica: Replica) -> None:
        """A sign of life."""
        replica.begin(replica.leasing.beat)

    def sweep(self, replica: Replica) -> None:
        """A round that takes over; there is one at a time."""
        if replica.sweeping:
            return
        replica.sweeping = True

        async def take_over() -> None:
            try:
                await replica.sweeper.take_over(replica.leasing)
            finally:
                replica.sweeping = False

        replica.begin(take_over)

    def answer(self, result: str = '{"content":[]}') -> None:
        """The server answers one of its calls."""
        waiting = [future for future in self.server.open if not future.done()]
        if waiting:
            self.random.choice(waiting).set_result(result)

    def save(self) -> None:
        """The store saves what it has."""
        self.store.save()

    def go_back(self) -> None:
        """It comes back with that."""
        self.store.go_back()
        self.ended = {id: head for id, head in self.ended.items() if self._is_ended(id)}

    # --- how it goes on ---------------------------------------------------------------------------------------------

    async def step(self) -> bool:
        """Let one of those that wait go on; whether there was any that may."""
        await _turns()
        ready = [future for who, future in self.gates.waiting if (who is None or not who.stopped) and not future.done()]
        if not ready:
            return False
        self.random.choice(ready).set_result(None)
        await _turns()
        self._look()
        return True

    async def rest(self) -> None:
        """Let everything go on that may, until nothing waits."""
        for _ in range(1000):
            if not await self.step():
                return
        # What it did not take is tried again and again.
        assert self.is_down, "it does not come to rest"

    async def tick(self) -> None:
        """A heartbeat goes by, in which every replica says that it lives, and is heard where the store is there."""
        self.clock.advance(RULES.heartbeat)
        for replica in self.alive:
            self.beat(replica)
            self.sweep(replica)
        await self.rest()

    async def settle(self) -> None:
        """Let everything go on until nothing is left to do: all that live beat, sweep and are answered."""
        self.is_down = False
        for replica in self.alive:
            replica.stopped = False
        for _ in range(400):
            await self.tick()
            for _ in range(3):
                self.answer()
            if not self._unfinished():
                break
        else:
            raise AssertionError(f"never ended: {self._unfinished()}")
        # And a little longer, so that what comes too late comes.
        for _ in range(10):
            self.answer()
            await self.rest()

    async def close(self) -> None:
        """Leave nothing behind."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for each in others:
            each.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await _turns()

    # --- what is so -------------------------------------------------------------------------------------------------

    @property
    def alive(self) -> list[Replica]:
        """Those that were not killed."""
        return [replica for replica in self.replicas if not replica.dead]

    def head(self, record: TaskRecord) -> TaskRecord:
        """A task as it is stored."""
        return self._head_of(record.id)

    def _head_of(self, task: TaskId) -> TaskRecord:
        return self.store.stored[task].head

    def note(self, found: Any) -> None:
        """Remember of what a replica reads at which revisions it had the lease."""
        for record in found if isinstance(found, tuple) else (found,):
            if isinstance(record, TaskRecord) and record.lease is not None:
                self.held.add((record.lease.holder, record.id, record.revision))

    def judge(self, record: TaskRecord, before: int) -> None:
        """A change that was made: as who runs a task, only by who wrote last, or read it when they had the lease."""
        replica = HERE.get()
        if replica is None or record.status is TaskStatus.CANCELLED:
            return
        wrote = self.owners.get(record.id, replica.name)
        assert wrote == replica.name or (replica.name, record.id, before) in self.held, (record, replica.name)
        self.owners[record.id] = replica.name

    def _look(self) -> None:
        """What must be so at any moment: an end stays as it is."""
        for id, kept in self.store.stored.items():
            if kept.head.status.is_terminal:
                before = self.ended.setdefault(id, kept.head)
                assert (before.status, before.revision) == (kept.head.status, kept.head.revision)
            else:
                assert id not in self.ended, "an end is no end any more"

    def _is_ended(self, task: TaskId) -> bool:
        kept = self.store.stored.get(task)
        return kept is not None and kept.head.status.is_terminal

    def _unfinished(self) -> list[TaskRecord]:
        heads = [self.head(record) for record in self.acknowledged.values()]
        return [head for head in heads if not head.status.is_terminal]


async def _turns() -> None:
    for _ in range(8):
        await sleep(0)
