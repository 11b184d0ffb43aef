"""Who takes a task over writes first; who lost it writes no more; and what waits for a store has bounds."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from helpers.failing_store import FailingStore
from helpers.manual_clock import EPOCH
from helpers.records import after, keep, new_input, new_lease, new_record
from helpers.waiting import bounded
from taskgate.domain.events import CallSucceeded, CheckpointSaved, Dispatched, InputClaimed, InputRequested, Progressed
from taskgate.domain.record import Faulted, FaultReason, OwnerKey, SealedCheckpoint, TaskRecord, TaskStatus
from taskgate.errors import StoreUnavailable
from taskgate.lifecycle.checkpoints import UNSEALED, CallCheckpoint, RoundCheckpoint
from taskgate.lifecycle.recovery import MAX_LOOKED_AT, Takeovers
from taskgate.lifecycle.transitions import MAX_WAITING, NOT_KEPT, Transitions
from taskgate.protocol.faults import call_ended
from taskgate.upstream.calls import ResumePoint
from unit.lifecycle.alone import Alone
from unit.lifecycle.several_runners import RULES

SECOND = timedelta(seconds=1)
DONE = CallSucceeded(result='{"content":[]}', tool_error=False)


async def test_who_took_a_task_over_writes_first_so_that_its_earlier_holder_cannot() -> None:
    one = Alone()
    held = new_record(lease=new_lease(holder="process-0", until=EPOCH))
    await keep(one.store, held)
    (lapsed,) = await one.store.lapsed(holder="process-1", until=EPOCH + RULES.length, now=EPOCH, limit=1)
    transitions = Transitions(store=one.store, event_sink=one.emitted, clock=one.clock, hold=one.leasing)
    takeovers_ = Takeovers(
        store=one.store, transitions=transitions, event_sink=one.emitted, clock=one.clock, hold=one.leasing
    )
    taken = await takeovers_.taken(lapsed, is_served=True)
    assert taken is not None
    assert (taken.revision, taken.call.params) == (held.revision + 1, held.call.params)
    assert not await one.store.swap(after(held, Dispatched()), expected=held.revision)


async def test_who_was_slower_than_the_earlier_holder_takes_over_what_that_has_done() -> None:
    one = Alone()
    held = new_record(lease=new_lease(holder="process-0", until=EPOCH))
    await keep(one.store, held)
    (lapsed,) = await one.store.lapsed(holder="process-1", until=EPOCH + RULES.length, now=EPOCH, limit=1)
    assert await one.store.swap(after(lapsed, Dispatched()), expected=held.revision)
    transitions = Transitions(store=one.store, event_sink=one.emitted, clock=one.clock, hold=one.leasing)
    takeovers_ = Takeovers(
        store=one.store, transitions=transitions, event_sink=one.emitted, clock=one.clock, hold=one.leasing
    )
    assert await takeovers_.taken(lapsed, is_served=True) is None
    assert one.store.stored[held.id].head.status is TaskStatus.FAILED


async def test_what_became_anothers_meanwhile_is_left_to_it() -> None:
    one = Alone()
    held = new_record(lease=new_lease(holder="process-0", until=EPOCH))
    await keep(one.store, held)
    (lapsed,) = await one.store.lapsed(holder="process-1", until=EPOCH + SECOND, now=EPOCH, limit=1)
    assert await one.store.swap(after(lapsed, Dispatched()), expected=held.revision)
    await one.store.lapsed(holder="process-2", until=EPOCH + RULES.length, now=EPOCH + SECOND, limit=1)
    transitions = Transitions(store=one.store, event_sink=one.emitted, clock=one.clock, hold=one.leasing)
    takeovers_ = Takeovers(
        store=one.store, transitions=transitions, event_sink=one.emitted, clock=one.clock, hold=one.leasing
    )
    assert await takeovers_.taken(lapsed, is_served=True) is None
    assert not one.store.stored[held.id].head.status.is_terminal


async def test_what_another_process_holds_is_not_changed_as_if_it_ran_here() -> None:
    one = Alone()
    held = new_record(dispatched=True, lease=new_lease(holder="process-0"))
    await keep(one.store, held)
    changes = Transitions(store=one.store, event_sink=one.emitted, clock=one.clock)
    running_ = Transitions(store=one.store, event_sink=one.emitted, clock=one.clock, hold=one.leasing)
    assert await running_.make(held.owner, held.id, lambda _: Progressed(message="1/2")) is None
    assert await changes.make(held.owner, held.id, lambda _: Progressed(message="1/2")) is not None


async def test_results_that_wait_for_a_store_take_no_more_room_than_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """One too many is given up, and its task says so."""
    one, is_down, large = Alone(), True, replace(DONE, result=MAX_WAITING * "x")
    load = one.store.load

    async def loads(*args: Any, **named: Any) -> Any:
        if is_down:
            raise StoreUnavailable("away")
        return await load(*args, **named)

    monkeypatch.setattr(one.store, "load", loads)
    monkeypatch.setattr(one.store, "recall", lambda *_, **__: None)
    records = [new_record(dispatched=True) for _ in range(2)]
    await keep(one.store, *records)
    writer = Transitions(store=one.store, event_sink=one.emitted, clock=one.clock)
    async with bounded(), asyncio.TaskGroup() as group:
        for record, event in zip(records, (large, DONE), strict=True):
            group.create_task(writer.settle(record.owner, record.id, event))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        is_down = False
    first, second = (one.store.stored[record.id] for record in records)
    assert first.head.status is TaskStatus.COMPLETED
    assert second.head.status_message == NOT_KEPT
    assert second.outcome == Faulted(
        error=call_ended(FaultReason.INTERNAL, NOT_KEPT, dispatched=True).error, reason=FaultReason.INTERNAL
    )


# --- where nobody else can have it


class WithoutLeases:
    """A store whose records come without the leases that they have, as one may that has them for itself."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def load(self, *asked: Any, **more: Any) -> TaskRecord | None:
        found: TaskRecord | None = await self._inner.load(*asked, **more)
        return found and replace(found, lease=None)


async def test_a_question_that_a_stream_took_while_its_task_was_taken_over_stays_with_that_stream() -> None:
    one, ours = Alone(), after(in_session("s"), InputRequested(request=new_input()))
    await keep(one.store, ours)
    (lapsed,) = await one.store.lapsed(holder="here", until=EPOCH + RULES.length, now=EPOCH, limit=1)
    claimed = after(lapsed, InputClaimed(key="input-1", stream="here/1"))
    assert await one.store.swap(claimed, expected=lapsed.revision)
    store: Any = WithoutLeases(one.store)
    transitions = Transitions(store=store, event_sink=one.emitted, clock=one.clock)
    taken = await Takeovers(store=store, transitions=transitions, event_sink=one.emitted, clock=one.clock).taken(
        lapsed, is_served=True
    )
    assert taken is not None
    assert [each.claimed_by for each in taken.inputs] == ["here/1"]


# --- the sessions at servers that several tasks were in


def in_session(session: str | None, **changes: Any) -> TaskRecord:
    """A task whose call is kept in that session."""
    record = after(new_record(**changes), Dispatched())
    sealed = UNSEALED.seal(record.owner, record.id, CallCheckpoint(ResumePoint(session=session, event="1"), ()))
    assert sealed is not None
    return after(record, CheckpointSaved(checkpoint=SealedCheckpoint(sealed=sealed)))


def resting(**changes: Any) -> TaskRecord:
    """A task that is kept, but not in a session."""
    record = after(new_record(**changes), Dispatched())
    sealed = UNSEALED.seal(record.owner, record.id, RoundCheckpoint("s", ()))
    assert sealed is not None
    return after(record, CheckpointSaved(checkpoint=SealedCheckpoint(sealed=sealed)))


@pytest.mark.parametrize(
    ("others", "is_last"),
    [
        ([], True),
        ([in_session("other", id="b")], True),
        ([in_session(None, id="b"), resting(id="c"), new_record(id="d")], True),
        ([after(in_session("s", id="b"), DONE)], True),
        ([in_session("s", id="b", owner=OwnerKey("bob", "reports"))], True),
        ([in_session("other", id="b"), in_session("s", id="c")], False),
    ],
    ids=["nobody", "another session", "no session", "ended", "another owner", "the same"],
)
async def test_a_session_is_ended_by_the_last_task_of_its_owner_that_is_in_it(
    others: list[TaskRecord], is_last: bool
) -> None:
    one, ours = Alone(), in_session("s", id="a")
    await keep(one.store, ours, *others)
    assert await takeovers_of(one).is_last_in(ours, "s") is is_last


async def test_who_has_more_tasks_than_are_looked_at_keeps_the_session() -> None:
    one, ours = Alone(), in_session("s", id="a")
    await keep(one.store, ours, *(new_record() for _ in range(MAX_LOOKED_AT)))
    assert not await takeovers_of(one).is_last_in(ours, "s")


async def test_where_the_store_cannot_tell_the_session_is_kept() -> None:
    one, ours = Alone(), in_session("s", id="a")
    failing = FailingStore(one.store)
    failing.failing = {"page"}
    assert not await takeovers_of(one, failing).is_last_in(ours, "s")


def takeovers_of(one: Alone, store: Any = None) -> Takeovers:
    transitions = Transitions(store=one.store, event_sink=one.emitted, clock=one.clock, hold=one.leasing)
    return Takeovers(
        store=store or one.store, transitions=transitions, event_sink=one.emitted, clock=one.clock, hold=one.leasing
    )
