"""Random histories against a plain dictionary: in any order of events the store says the same."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from itertools import product
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from contract.backends import Backend
from helpers.examples import examples
from helpers.manual_clock import ManualClock
from helpers.records import new_call, new_input, new_record
from helpers.shared_store import SharedServer, expect_every_key_to_expire
from taskgate.domain import events
from taskgate.domain.limits import Cap, CapScope
from taskgate.domain.listing import STATES, OrderBy, TaskFilter, TaskOrder, listed_task
from taskgate.domain.machine import advance
from taskgate.domain.record import (
    CallerNames,
    FaultReason,
    Lease,
    OwnerKey,
    SealedCheckpoint,
    Succeeded,
    TaskId,
    TaskRecord,
    TaskStatus,
)
from taskgate.errors import IllegalTransition, TooManyBytes, TooManyTasks
from taskgate.stores.base import Store
from taskgate.stores.codec import as_head

OWNERS: Final = (OwnerKey("a", "x"), OwnerKey("a", "y"), OwnerKey("b", "x"))
ORDERS: Final = (TaskOrder(), TaskOrder(by=OrderBy.CREATED, descending=False))
LIMITS: Final = dict(zip(CapScope, (3, 4, 4, 2, 3, 5), strict=True))
KEPT: Final = {CapScope.CONTEXT: 40, CapScope.SUBJECT: 50, CapScope.GLOBAL: 60}
SUBJECTS: Final = (None, "p", "q")
SOON: Final = timedelta(seconds=30)
texts = st.text(max_size=8) | st.just("\ud800")
EVENTS: Final = st.one_of(
    st.just(events.Dispatched()),
    st.builds(events.Progressed, message=texts),
    st.builds(events.InputClaimed, key=st.just("input-1"), stream=st.none() | st.just("stream")),
    st.builds(events.InputAnswered, key=st.sampled_from(["input-1", "input-2"]), response=texts),
    st.builds(events.AnswerForwarded, key=st.sampled_from(["input-1", "input-2"])),
    st.builds(events.CheckpointSaved, checkpoint=st.builds(SealedCheckpoint, sealed=texts)),
    st.just(events.RoundDispatched()),
    st.builds(events.CallSucceeded, result=texts, tool_error=st.booleans()),
    st.builds(
        events.CallFaulted, error=texts, reason=st.sampled_from(FaultReason), message=texts, unsent=st.booleans()
    ),
    st.just(events.CancelRequested()),
    st.just(events.ResultRetrieved()),
    st.just("ask"),
)


class Histories(RuleBasedStateMachine):
    """One store and what it should hold. `backend` is set by the classes at the end."""

    backend: ClassVar[Backend]

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.runner = asyncio.Runner()
        self.clock = ManualClock()
        self.model: dict[TaskId, TaskRecord] = {}
        self.subjects: dict[TaskId, str | None] = {}
        self.shared = None if self.backend.server is None else self.backend.server.options()
        self.store: Store = self.opened()

    def opened(self) -> Store:
        return self.runner.run(self.backend.open(Path(self.folder.name), self.shared))

    def teardown(self) -> None:
        self.runner.run(self.store.close())
        self.runner.close()
        self.folder.cleanup()
        if self.backend.server is not None and self.shared is not None:
            expect_every_key_to_expire(self.backend.server, self.shared)

    def visible(self) -> list[TaskRecord]:
        return [record for record in self.model.values() if record.expires_at > self.clock.now()]

    def unfinished(self) -> list[TaskRecord]:
        return [record for record in self.visible() if not record.status.is_terminal]

    # --- what may happen -----------------------------------------------------------------------------------------

    @rule(
        made=st.fixed_dictionaries(
            {
                "owner": st.sampled_from(OWNERS),
                "tenant": st.sampled_from([None, "t", "u"]),
                "ttl": st.integers(1, 90).map(lambda seconds: timedelta(seconds=seconds)),
                "call": st.builds(new_call, tool=st.sampled_from(["f", "g"]), params=st.none() | texts),
                "reruns": st.integers(0, 1),
                "idempotency_digest": st.sampled_from([None, None, "k", "l"]),
                "trace": st.none() | texts,
                "caller": st.none() | st.builds(CallerNames, texts, texts, st.none() | texts, st.none() | texts),
            }
        ),
        subject=st.sampled_from(SUBJECTS),
        scopes=st.sets(st.sampled_from(CapScope)),
        kept=st.sets(st.sampled_from(sorted(KEPT))),
        held=st.booleans(),
    )
    def create(
        self, made: dict[str, Any], subject: str | None, scopes: set[CapScope], kept: set[CapScope], held: bool
    ) -> None:
        now = self.clock.now()
        lease = Lease(holder="p", until=now + SOON) if held else None
        record = new_record(created_at=now, lease=lease, **made)
        self.subjects[record.id] = subject
        caps = tuple(Cap(scope=scope, limit=LIMITS[scope]) for scope in CapScope if scope in scopes)
        caps += tuple(Cap(scope=scope, limit=KEPT[scope], bytes=True) for scope in CapScope if scope in kept)
        stands, full = self.named(record), [cap for cap in caps if self.is_full(record, cap)]
        if stands is None and full:
            refusal = self.refused(record, subject, caps)
            assert isinstance(refusal, TooManyBytes) == full[0].bytes
            assert (refusal.limit, refusal.scope) == (full[0].limit, full[0].scope.value)
            return
        assert self.runner.run(self.store.insert(record, caps=caps, subject=subject)) == (stands or record.id)
        if stands is None:
            self.model[record.id] = record

    def named(self, record: TaskRecord) -> TaskId | None:
        """The record that stands for that one, by its name."""
        if record.idempotency_digest is None:
            return None
        name = (record.owner, record.idempotency_digest)
        return next((other.id for other in self.visible() if (other.owner, other.idempotency_digest) == name), None)

    def used(self, record: TaskRecord, cap: Cap) -> int:
        """How much is taken of what the cap bounds."""
        mine = self.scopes_of(record)[cap.scope]
        if mine is None:
            return 0
        if cap.bytes:
            return sum(size(other) for other in self.model.values() if self.scopes_of(other)[cap.scope] == mine)
        return sum(self.scopes_of(other)[cap.scope] == mine for other in self.unfinished())

    def is_full(self, record: TaskRecord, cap: Cap) -> bool:
        return self.scopes_of(record)[cap.scope] is not None and self.used(record, cap) >= cap.limit

    def scopes_of(self, record: TaskRecord) -> dict[CapScope, Any]:
        """What the record counts for, by scope."""
        (context, mount), tool, subject = record.owner, record.call.tool, self.subjects[record.id]
        return dict(zip(CapScope, (context, subject, record.tenant, (mount, tool), mount, "everybody"), strict=True))

    @precondition(lambda self: self.model)
    @rule(data=st.data(), event=EVENTS, stale=st.sampled_from([0, 0, 0, 1]), head=st.booleans())
    def move(self, data: st.DataObject, event: Any, stale: int, head: bool) -> None:
        """Something happens to a task that may have expired, seen by somebody who may be late."""
        record = data.draw(st.sampled_from(sorted(self.model.values(), key=lambda record: record.id)))
        if event == "ask":
            event = events.InputRequested(request=new_input(record.next_input_key))
        try:
            moved = advance(record, event, self.clock.now())
        except IllegalTransition:
            return
        # The outcome of what has ended is there already.
        whole = replace(moved, call=as_head(moved).call) if head else moved
        shown = as_head(moved) if record.status.is_terminal else whole
        won = self.runner.run(self.store.swap(shown, expected=record.revision - stale))
        assert won == (stale == 0)
        if won:
            self.model[record.id] = moved

    @rule(seconds=st.integers(1, 40))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(timedelta(seconds=seconds))

    @rule(limit=st.integers(1, 3))
    def purge(self, limit: int) -> None:
        now = self.clock.now()
        purged = self.runner.run(self.store.purge(now=now, limit=limit))
        expired = sorted(record.expires_at for record in self.model.values() if record.expires_at <= now)
        assert [head.expires_at for head in purged] == expired[:limit]
        for head in purged:
            assert head == as_head(self.model.pop(head.id))

    @rule(limit=st.integers(1, 3), holder=st.sampled_from("pq"))
    def take_over(self, limit: int, holder: str) -> None:
        now, lease = self.clock.now(), Lease(holder=holder, until=self.clock.now() + SOON)
        taken = self.runner.run(self.store.lapsed(holder=holder, until=lease.until, now=now, limit=limit))
        due = [record for record in self.unfinished() if record.lease is None or record.lease.until <= now]
        assert [record.created_at for record in taken] == sorted(record.created_at for record in due)[:limit]
        assert {record.id for record in taken} <= {record.id for record in due}
        for record in taken:
            kept = self.model[record.id] = replace(self.model[record.id], lease=lease)
            assert record == (kept if not kept.dispatched or kept.reruns else as_head(kept))

    @rule(holder=st.sampled_from("pq"))
    def renew(self, holder: str) -> None:
        until = self.clock.now() + SOON
        self.runner.run(self.store.renew(holder, frozenset({*self.model, "gone"}), until))
        for record in list(self.model.values()):
            if record.lease is not None and record.lease.holder == holder:
                self.model[record.id] = replace(record, lease=Lease(holder=holder, until=until))

    # --- what always holds ---------------------------------------------------------------------------------------

    @invariant()
    def every_record_is_as_it_should_be(self) -> None:
        now, seen = self.clock.now(), {record.id for record in self.visible()}
        for record in self.model.values():
            found = self.runner.run(self.store.load(record.owner, record.id, now=now, bodies=True))
            assert found == (record if record.id in seen else None)

    @invariant()
    def every_list_is_as_it_should_be(self) -> None:
        for owner, order, state in product(OWNERS, ORDERS, (None, *STATES)):
            where = TaskFilter(states=None if state is None else frozenset({state}))
            found = self.runner.run(
                self.store.page(owner, where=where, order=order, after=None, limit=99, now=self.clock.now())
            )
            mine = [listed_task(record) for record in self.visible() if record.owner == owner]
            mine = [task for task in mine if state in (None, (task.status, task.tool_error))]
            assert list(found.tasks) == sorted(mine, key=lambda task: task.position(order.by), reverse=order.descending)

    @invariant()
    def as_much_room_is_left_as_there_should_be(self) -> None:
        """Asked of caps that are just full, and of ones that have room for one more, before one that has none."""
        none_left = Cap(scope=CapScope.GLOBAL, limit=0)
        of_bytes = (Cap(scope=scope, limit=0, bytes=True) for scope in (CapScope.CONTEXT, CapScope.SUBJECT))
        asked = (*of_bytes, *(Cap(scope=scope, limit=0) for scope in CapScope))
        expected: list[tuple[tuple[TaskRecord, tuple[Cap, ...]], tuple[int, str]]] = []
        sharers = ((None, None), ("t", "p"))
        for (owner, (tenant, subject)), cap in product(product(OWNERS, sharers), asked):
            record = new_record(owner=owner, tenant=tenant, call=new_call(tool="f"), created_at=self.clock.now())
            self.subjects[record.id] = subject
            used, takes_part = self.used(record, cap), self.scopes_of(record)[cap.scope] is not None
            at_it, below = ((record, (replace(cap, limit=limit), none_left)) for limit in (used, used + 1))
            expected += [(at_it, (used, cap.scope.value) if takes_part else (0, "global")), (below, (0, "global"))]
        refusals = self.runner.run(self.all_refused([asked for asked, _ in expected]))
        assert refusals == [refusal for _, refusal in expected]

    async def all_refused(self, asked: list[tuple[TaskRecord, tuple[Cap, ...]]]) -> list[tuple[int, str]]:
        refusals = []
        for record, caps in asked:
            with pytest.raises((TooManyTasks, TooManyBytes)) as refusal:
                await self.store.insert(record, caps=caps, subject=self.subjects[record.id])
            assert isinstance(refusal.value, TooManyTasks | TooManyBytes)
            refusals.append((refusal.value.limit, refusal.value.scope))
        return refusals

    def refused(self, record: TaskRecord, subject: str | None, caps: tuple[Cap, ...]) -> TooManyTasks | TooManyBytes:
        with pytest.raises((TooManyTasks, TooManyBytes)) as refusal:
            self.runner.run(self.store.insert(record, caps=caps, subject=subject))
        assert isinstance(refusal.value, TooManyTasks | TooManyBytes)
        return refusal.value

    @invariant()
    def every_name_stands_for_what_it_should(self) -> None:
        now = self.clock.now()
        for owner, key in product(OWNERS, "kl"):
            found = self.runner.run(self.store.repeated(owner, key, now=now))
            assert found == self.named(new_record(owner=owner, idempotency_digest=key))

    @invariant()
    def every_count_is_as_it_should_be(self) -> None:
        counts = dict.fromkeys(TaskStatus, 0)
        for record in self.model.values():
            counts[record.status] += 1
        assert self.runner.run(self.store.census()).tasks == counts


def size(record: TaskRecord) -> int:
    ended = record.outcome
    outcome = None if ended is None else ended.result if isinstance(ended, Succeeded) else ended.error
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in (record.call.params, outcome) if text is not None)


class InMemory(Histories):
    backend = Backend("memory")


class InSqlite(Histories):
    backend = Backend("sqlite")

    @rule()
    def the_process_starts_again(self) -> None:
        """Nothing is lost, and every lease has lapsed."""
        self.runner.run(self.store.close())
        self.store = self.opened()
        self.every_lease_has_lapsed()

    @rule()
    def the_process_dies(self) -> None:
        """What was acknowledged is there for the next one, which finds the files as they lie on the disk."""
        old, self.folder = self.folder, TemporaryDirectory()
        copytree(old.name, self.folder.name, dirs_exist_ok=True)
        self.runner.run(self.store.close())
        old.cleanup()
        self.store = self.opened()
        self.every_lease_has_lapsed()

    def every_lease_has_lapsed(self) -> None:
        for record in self.model.values():
            if not record.status.is_terminal:
                self.model[record.id] = replace(record, lease=None)


FEW = settings(
    max_examples=examples(30),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestInMemory = InMemory.TestCase
TestInMemory.settings = FEW
TestInSqlite = InSqlite.TestCase
TestInSqlite.settings = FEW


# --- stores that outlive the process ----------------------------------------------------------------------------------


class Shared(Histories):
    @rule()
    def the_process_starts_again(self) -> None:
        self.runner.run(self.store.close())
        self.store = self.opened()


class InValkey(Shared):
    pass


class InRedis(Shared):
    pass


@pytest.fixture(scope="module")
def valkey_histories(valkey_server: SharedServer) -> None:
    InValkey.backend = Backend("valkey", valkey_server)


@pytest.fixture(scope="module")
def redis_histories(redis_server: SharedServer) -> None:
    InRedis.backend = Backend("redis", redis_server)


@pytest.mark.usefixtures("valkey_histories")
class TestInValkey(InValkey.TestCase):  # type: ignore[misc]
    settings = FEW


@pytest.mark.usefixtures("redis_histories")
class TestInRedis(InRedis.TestCase):  # type: ignore[misc]
    settings = FEW
