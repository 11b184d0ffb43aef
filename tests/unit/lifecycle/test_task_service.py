"""How a task is made: once for a key, with a turn at its server that is given back where no new task takes it."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.failing_store import HoldingStore
from helpers.manual_clock import ManualClock, SeededEntropy
from helpers.records import keep, new_peer, new_record
from helpers.waiting import bounded, eventually
from taskgate.admission.coalescing import RequestCoalescer
from taskgate.admission.concurrency import Bulkhead, BulkheadSettings, Permit
from taskgate.admission.connected_hosts import ConnectedHosts
from taskgate.admission.rates import QuotaSubjects
from taskgate.auth.context import AuthContext
from taskgate.domain.events import CallFaulted
from taskgate.domain.limits import Caps
from taskgate.domain.machine import advance
from taskgate.domain.policy import PromotionMode, PromotionRule
from taskgate.domain.record import FaultReason, OwnerKey, TaskRecord
from taskgate.errors import InvalidParams, QueueFull, StoreUnavailable, TooManyTasks
from taskgate.lifecycle.retrievals import Retrievals
from taskgate.lifecycle.task_service import EarlierHostConnected, TaskService
from taskgate.lifecycle.transitions import Transitions
from taskgate.protocol.discovery import ListedTool
from taskgate.protocol.host_requests import CallTool, key_digest
from taskgate.stores.open import open_store
from taskgate.telemetry.events import CallCoalesced, CapRefused, TaskCreated, TaskDispatched
from unit.admission.coalescing_desk import call
from unit.admission.live_rules import live, rules
from unit.lifecycle.recorded_events import RecordedEvents

CALLER = AuthContext(key="me", previous_key="me before")
MINE, BEFORE = OwnerKey("me", "reports"), OwnerKey("me before", "reports")


class House:
    """A service over a store in memory, a server with one slot and room for one more, and what its runner was told."""

    def __init__(self, store: HoldingStore, lease: timedelta | None = None, emitted: Any = None) -> None:
        self.store, self.clock, self.emitted = store, ManualClock(), emitted or RecordedEvents()
        self.live = live(policy=self.policy(), caps=Caps(tasks_per_context=2))
        settings = BulkheadSettings(concurrency=1, queue=1, max_wait=timedelta(seconds=60))
        self.bulkhead = Bulkhead("reports", settings, event_sink=RecordedEvents())
        self.started: list[tuple[TaskRecord, Permit]] = []
        self.adopted: list[TaskRecord] = []
        self.disowned: list[tuple[str, bool]] = []
        self.joining = RequestCoalescer(store=store, event_sink=self.emitted, clock=self.clock)  # type: ignore[arg-type]
        runner = SimpleNamespace(
            holder="p",
            expected=0,
            ended=None,
            start=lambda record, place, caller, ticket: self.started.append((record, ticket)),
            adopt=lambda record, underway, place: self.adopted.append(record),
            disown=lambda owner, task, dispatched, cancelled: self.disowned.append((task, dispatched)),
        )
        transitions = Transitions(store=store, event_sink=self.emitted, clock=self.clock)  # type: ignore[arg-type]
        self.tasks = TaskService(
            store=store,  # type: ignore[arg-type]
            transitions=transitions,
            lookups=None,  # type: ignore[arg-type]
            runner=runner,  # type: ignore[arg-type]
            live=self.live,
            quota_subjects=QuotaSubjects(self.live),
            retrievals=Retrievals(transitions=transitions, event_sink=self.emitted, clock=self.clock),
            joining=self.joining,
            hosts=ConnectedHosts(),
            event_sink=self.emitted,
            clock=self.clock,
            entropy=SeededEntropy(),
            lease=lease,
        )
        self.place: Any = SimpleNamespace(
            mount=SimpleNamespace(name="reports", bulkhead=self.bulkhead, scopes_of=lambda _: frozenset()),
            peer=new_peer(),
            host_session=None,
            upstream=SimpleNamespace(tools=self.list_tools, listed=lambda _: None),
            acquire=lambda: None,
            release=lambda: None,
        )

    def policy(self, **changes: Any) -> Any:
        terms = PromotionRule(upstream=None, tool="*", mode=PromotionMode.ALWAYS, **changes)
        usual = rules().policy
        return type(usual)(
            rules=(terms,),
            ttl_default=usual.ttl_default,
            ttl_min=usual.ttl_min,
            ttl_max=usual.ttl_max,
            inline_grace=usual.inline_grace,
        )

    async def list_tools(self, _: str | None = None) -> dict[str, ListedTool]:
        return {"build_report": ListedTool(), "other": ListedTool()}

    async def create(self, intent: CallTool | None = None, **more: Any) -> TaskRecord:
        async with bounded():
            record, _ = await self.tasks.create(CALLER, self.place, intent or call(), **more)
            return record

    def of(self, *kinds: type[Any]) -> list[Any]:
        return [event for event in self.emitted.all if isinstance(event, kinds)]


@pytest.fixture
async def house() -> AsyncIterator[House]:
    house = House(HoldingStore(await open_store("memory", None)))
    yield house
    await house.joining.close()


# --- turns -----------------------------------------------------------------------------------------------------------


async def test_a_task_takes_a_turn_and_says_how_many_are_before_it(house: House) -> None:
    first, second = await house.create(), await house.create()
    assert [(record.id, ticket.is_granted) for record, ticket in house.started] == [
        (first.id, True),
        (second.id, False),
    ]
    assert (first.status_message, second.status_message) == (None, "Queued (0 ahead)")
    kept = await house.store.load(MINE, second.id, now=house.clock.now())
    assert kept.status_message == "Queued (0 ahead)"


async def test_a_task_whose_turn_it_is_is_stored_with_the_mark_of_its_dispatch(house: House) -> None:
    first, queued = await house.create(), await house.create()
    assert (first.dispatched, queued.dispatched) == (True, False)


async def test_so_it_is_where_replicas_share_the_store() -> None:
    house = House(HoldingStore(await open_store("memory", None)), lease=timedelta(seconds=30))
    first, queued = await house.create(), await house.create()
    assert (first.dispatched, queued.dispatched) == (True, False)
    await house.joining.close()


async def test_where_nobody_may_wait_any_more_nothing_is_kept(house: House) -> None:
    tickets = [house.bulkhead.acquire("other") for _ in range(2)]
    with pytest.raises(QueueFull):
        await house.create()
    assert house.emitted.all == []
    for ticket in tickets:
        ticket.release()


async def test_a_task_that_a_cap_refuses_leaves_its_turn_to_others(house: House) -> None:
    house.bulkhead.adjust(BulkheadSettings(concurrency=9, queue=1, max_wait=timedelta(seconds=60)))
    for _ in range(2):
        await house.create()
    with pytest.raises(TooManyTasks):
        await house.create()
    assert house.bulkhead.in_use == 2
    assert house.of(CapRefused) == [CapRefused("tasks", "context")]


async def test_a_ticket_of_the_caller_goes_with_the_task_and_is_left_where_there_is_none(house: House) -> None:
    mine = house.bulkhead.acquire("me")
    record = await house.create(ticket=mine)
    assert house.started == [(record, mine)]
    await keep(house.store, new_record(owner=MINE))  # type: ignore[arg-type]
    with pytest.raises(TooManyTasks):
        await house.create(ticket=mine)
    assert house.bulkhead.in_use == 1


async def test_a_ticket_of_the_caller_is_given_back_where_an_earlier_task_stands(house: House) -> None:
    keyed = call(key="k")
    first = await house.create(keyed)
    house.started[0][1].release()
    mine = house.bulkhead.acquire("me")
    assert (await house.create(keyed, ticket=mine)).id == first.id
    assert house.bulkhead.in_use == 0


# --- keys ------------------------------------------------------------------------------------------------------------


async def test_the_same_key_is_the_same_task_even_where_nobody_may_wait(house: House) -> None:
    first = await house.create(call(key="k"))
    waits = house.bulkhead.acquire("other")
    for intent in (call(key="k"), call('{ "year" : 2026 }', key="k")):
        assert (await house.create(intent)).id == first.id
        earlier = await house.tasks.earlier(CALLER, house.place, intent)
        assert earlier is not None
        assert earlier.id == first.id
    assert len(house.started) == 1
    assert house.of(TaskCreated, CallCoalesced)[1:] == [CallCoalesced("reports", "key")] * 4
    waits.release()


async def test_calls_with_one_key_that_come_together_become_one_task_and_take_one_turn(house: House) -> None:
    house.bulkhead.adjust(BulkheadSettings(concurrency=9, queue=1, max_wait=timedelta(seconds=60)))
    with house.store.holding("insert") as inserting:
        creating = [asyncio.create_task(house.create(call(key="k"))) for _ in range(3)]
        async with bounded():
            await inserting.wait()
        await eventually(lambda: house.bulkhead.in_use == 3)
    async with bounded():
        made = await asyncio.gather(*creating)
    assert len({record.id for record in made}) == 1
    assert (len(house.started), house.bulkhead.in_use) == (1, 1)


@pytest.mark.parametrize("other", [call(key="k", tool="other"), call('{"year":1999}', key="k")])
async def test_a_key_of_another_call_is_refused(house: House, other: CallTool) -> None:
    await house.create(call(key="k"))
    with pytest.raises(InvalidParams, match="another call"):
        await house.create(other)
    with pytest.raises(InvalidParams, match="another call"):
        await house.tasks.earlier(CALLER, house.place, other)
    assert len(house.started) == 1


async def test_a_key_is_known_from_before_the_deployment_key_changed(house: House) -> None:
    params = call().params.head
    before = new_record(owner=BEFORE, params=params, idempotency_digest=key_digest("k"))
    await keep(house.store, before)  # type: ignore[arg-type]
    assert (await house.create(call(key="k"))).id == before.id


async def test_a_call_without_a_key_stands_for_itself(house: House) -> None:
    assert await house.tasks.earlier(CALLER, house.place, call()) is None
    assert await house.tasks.earlier(CALLER, house.place, call(key="k")) is None
    assert (await house.create()).id != (await house.create()).id


async def test_a_key_whose_task_was_purged_meanwhile_is_used_again(house: House) -> None:
    house.bulkhead.adjust(BulkheadSettings(concurrency=9, queue=1, max_wait=timedelta(seconds=60)))
    first = await house.create(call(key="k"))
    with house.store.holding("repeated") as asked:
        creating = asyncio.create_task(house.create(call(key="k")))
        async with bounded():
            await asked.wait()
        await house.store.purge(now=first.expires_at, limit=9)
    async with bounded():
        assert (await creating).id != first.id
    assert len(house.started) == 2


async def test_a_key_whose_task_ended_unsent_meanwhile_is_used_again(house: House) -> None:
    house.bulkhead.adjust(BulkheadSettings(concurrency=9, queue=1, max_wait=timedelta(seconds=60)))
    first = await house.create(call(key="k"))
    with house.store.holding("load") as asked:
        creating = asyncio.create_task(house.create(call(key="k")))
        async with bounded():
            await asked.wait()
        unsent = CallFaulted(error="{}", reason=FaultReason.QUEUE, message="no", unsent=True)
        assert await house.store.swap(advance(first, unsent, first.created_at), expected=0)
    async with bounded():
        assert (await creating).id != first.id
    assert len(house.started) == 2


# --- calls that left before ------------------------------------------------------------------------------------------


class Underway:
    """A call that left."""

    closed = False

    def close(self) -> None:
        self.closed = True


async def test_a_call_that_left_becomes_a_task_that_has_left(house: House) -> None:
    underway: Any = Underway()
    record = await house.tasks.promote(CALLER, house.place, call(), underway)
    assert record.dispatched
    assert (house.adopted, underway.closed) == ([record], False)
    assert house.of(TaskDispatched) == [TaskDispatched(record, timedelta())]
    assert house.bulkhead.in_use == 0


async def test_a_call_that_left_is_given_up_where_an_earlier_task_stands_for_it(house: House) -> None:
    underway: Any = Underway()
    first = await house.create(call(key="k"))
    assert (await house.tasks.promote(CALLER, house.place, call(key="k"), underway)).id == first.id
    assert (house.adopted, underway.closed) == ([], True)


async def test_a_call_that_goes_on_with_answers_is_another_one_than_the_task_under_its_key(house: House) -> None:
    underway: Any = Underway()
    own = call(key="k")
    own.is_own_key = own.goes_on = True
    await house.create(call(key="k"))
    with pytest.raises(EarlierHostConnected):
        await house.tasks.promote(CALLER, house.place, own, underway)
    with pytest.raises(EarlierHostConnected):
        await house.create(own)
    assert not underway.closed


async def test_of_two_equal_calls_that_left_within_the_window_the_second_is_given_up(house: House) -> None:
    house.live.current = rules(policy=house.policy(join_retries=timedelta(seconds=30)))
    calls: list[Any] = [Underway(), Underway()]
    made = [await house.tasks.promote(CALLER, house.place, call(), underway) for underway in calls]
    assert made[0].id == made[1].id
    assert [underway.closed for underway in calls] == [False, True]


async def test_an_equal_call_within_the_window_is_the_same_task_and_gives_its_ticket_back(house: House) -> None:
    house.live.current = rules(policy=house.policy(join_retries=timedelta(seconds=30)))
    first = await house.create()
    mine = house.bulkhead.acquire("me")
    assert (await house.create(ticket=mine)).id == first.id
    assert house.bulkhead.queued == 0
    assert house.of(CallCoalesced) == [CallCoalesced("reports", "retry")]


# --- where it is not known -------------------------------------------------------------------------------------------


async def test_who_stops_waiting_while_a_task_is_stored_leaves_none_that_nobody_runs(house: House) -> None:
    with house.store.holding("insert") as inserting:
        creating = asyncio.create_task(house.create())
        async with bounded():
            await inserting.wait()
        creating.cancel()
        await asyncio.gather(creating, return_exceptions=True)
    assert [was_sent for _, was_sent in house.disowned] == [False]
    assert (house.started, house.bulkhead.in_use) == ([], 0)


async def test_a_task_that_may_be_stored_all_the_same_is_disowned(house: House) -> None:
    await house.store.close()
    with pytest.raises(StoreUnavailable):
        await house.create()
    assert [was_sent for _, was_sent in house.disowned] == [False]
    assert house.bulkhead.in_use == 0
