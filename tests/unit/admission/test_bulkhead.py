"""What one server may be asked at once, who waits for it, and what those who wait are told."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from helpers.waiting import bounded
from taskgate.admission.concurrency import (
    LEAST_ADVICE,
    POSITIONS_EVERY,
    REPORT_EVERY,
    Bulkhead,
    BulkheadSettings,
    Permit,
)
from taskgate.auth.context import AuthContext
from taskgate.domain.fair_queue import FairQueue
from taskgate.errors import QueueFull
from taskgate.telemetry.events import ConcurrencyChanged, QueueRefused
from taskgate.telemetry.request_context import RequestContext, current, in_request
from unit.lifecycle.recorded_events import RecordedEvents

LONG = timedelta(seconds=60)
NOW = timedelta()


def settings(
    concurrency: int = 1, queue: int = 8, max_wait: timedelta = LONG, *, share: int = 8, is_shared: bool = False
) -> BulkheadSettings:
    return BulkheadSettings(concurrency=concurrency, queue=queue, max_wait=max_wait, share=share, is_shared=is_shared)


@pytest.fixture
async def emitted() -> RecordedEvents:
    return RecordedEvents()


@pytest.fixture
async def bulkhead(emitted: RecordedEvents) -> AsyncIterator[Bulkhead]:
    bulkhead = Bulkhead("reports", settings(), event_sink=emitted)
    yield bulkhead
    assert (bulkhead.in_use, bulkhead.queued) == (0, 0)


def close(*tickets: Permit) -> None:
    for ticket in tickets:
        ticket.release()


async def test_a_free_slot_is_granted_at_once_and_without_a_wait(bulkhead: Bulkhead) -> None:
    ticket = bulkhead.acquire("a")
    assert ticket.is_granted
    assert ticket.ahead == 0
    await ticket.wait(NOW)
    assert (bulkhead.in_use, bulkhead.utilization) == (1, 1.0)
    close(ticket, ticket)


async def test_whoever_waits_is_granted_what_another_gives_back(bulkhead: Bulkhead) -> None:
    first, second = bulkhead.acquire("a"), bulkhead.acquire("a")
    assert (second.is_granted, second.ahead, bulkhead.queued, bulkhead.utilization) == (False, 0, 1, 2.0)
    waiting = asyncio.create_task(second.wait(LONG))
    await asyncio.sleep(0)
    first.release()
    assert (second.is_granted, bulkhead.in_use, bulkhead.queued) == (True, 1, 0)
    async with bounded():
        await waiting
    second.release()


async def test_turns_go_round_between_contexts_whoever_came_first(bulkhead: Bulkhead) -> None:
    held = bulkhead.acquire("a")
    tickets = {name: bulkhead.acquire(name[0]) for name in ("a1", "a2", "a3", "b1", "c1", "b2")}
    assert {name: ticket.ahead for name, ticket in tickets.items()} == {
        "b1": 0, "c1": 1, "a1": 2, "b2": 3, "a2": 4, "a3": 5
    }  # fmt: skip
    order = []
    while tickets:
        held.release()
        name = next(name for name, ticket in tickets.items() if ticket.is_granted)
        order.append(name)
        held = tickets.pop(name)
    # The first slot is a's, so the others have theirs before its next.
    assert order == ["b1", "c1", "a1", "b2", "a2", "a3"]
    held.release()


async def test_one_of_eight_slots_is_for_callers_who_have_none(bulkhead: Bulkhead) -> None:
    bulkhead.adjust(settings(16, is_shared=True))
    bulkhead.acquire("another").release()
    greedy = [bulkhead.acquire("greedy") for _ in range(16)]
    assert [ticket.is_granted for ticket in greedy] == [True] * 14 + [False] * 2
    one, more, other = bulkhead.acquire("one"), bulkhead.acquire("one"), bulkhead.acquire("other")
    assert (one.is_granted, more.is_granted, other.is_granted, bulkhead.in_use) == (True, False, True, 16)
    close(other, more, one, *reversed(greedy))


@pytest.mark.parametrize("queue", [0, 64])
@pytest.mark.parametrize("concurrency", [1, 2, 4, 8, 16, 32])
async def test_a_caller_that_calls_alone_gets_every_slot_but_one_of_eight_and_more(
    bulkhead: Bulkhead, concurrency: int, queue: int
) -> None:
    bulkhead.adjust(settings(concurrency, queue=queue, is_shared=True))
    most = concurrency if concurrency < 8 else concurrency - 1
    alone = [bulkhead.acquire("alone") for _ in range(most)]
    assert all(ticket.is_granted for ticket in alone)
    assert bulkhead.reserved == (concurrency // 8, max(concurrency // 8 - 1, 0))
    close(*alone)


async def test_a_slot_is_free_for_another_caller_that_comes(bulkhead: Bulkhead) -> None:
    bulkhead.adjust(settings(16, is_shared=True))
    alone = [bulkhead.acquire("alone") for _ in range(18)]
    assert [ticket.is_granted for ticket in alone] == [True] * 15 + [False] * 3
    other = bulkhead.acquire("other")
    assert (other.is_granted, bulkhead.reserved) == (True, (2, 0))
    alone[0].release()
    alone[1].release()
    assert (alone[15].is_granted, bulkhead.in_use) == (False, 14), "two are reserved again"
    close(other, *reversed(alone))


async def test_a_caller_gets_slots_of_others_when_no_other_has_called_for_a_while(emitted: RecordedEvents) -> None:
    bulkhead = Bulkhead("reports", settings(16, is_shared=True), event_sink=emitted, lend_after=0.01)
    bulkhead.acquire("another").release()
    alone = [bulkhead.acquire("alone") for _ in range(15)]
    assert not alone[14].is_granted
    async with bounded():
        await alone[14].wait(LONG)
    assert bulkhead.reserved == (2, 1)
    close(*alone)


async def test_whoever_has_its_share_waits_for_those_who_have_less(bulkhead: Bulkhead) -> None:
    bulkhead.adjust(settings(4, share=2))
    greedy = [bulkhead.acquire("greedy") for _ in range(6)]
    modest = [bulkhead.acquire("modest") for _ in range(3)]
    for ticket in greedy[:3]:
        ticket.release()
    # Of the greedy one a single call ran on: that is below its share again, so the third turn is its own.
    assert [ticket.is_granted for ticket in greedy[3:]] == [True, True, False]
    assert [ticket.is_granted for ticket in modest] == [True, True, False]
    close(*modest[::-1], *greedy[:2:-1])


async def test_a_caller_may_have_a_share_of_its_own_which_is_asked_for_where_it_waits(emitted: RecordedEvents) -> None:
    asked: list[AuthContext] = []

    def share(caller: AuthContext) -> int | None:
        asked.append(caller)
        return 3 if caller.key == "gold" else None

    bulkhead = Bulkhead("reports", settings(4, share=1), event_sink=emitted, share=share)
    gold, usual = AuthContext(key="gold"), AuthContext(key="usual")
    tickets = [bulkhead.acquire(each.key, each) for each in (gold, gold, usual, usual)]
    assert asked == []
    late, early = bulkhead.acquire("usual", usual), bulkhead.acquire("gold", gold)
    assert asked == [usual, gold]
    tickets.pop().release()
    assert (late.is_granted, early.is_granted) == (False, True)
    close(*reversed([*tickets, early, late]))


async def test_no_more_wait_than_may_but_for_what_must(bulkhead: Bulkhead, emitted: RecordedEvents) -> None:
    bulkhead.adjust(settings(queue=1))
    tickets = [bulkhead.acquire("a"), bulkhead.acquire("a")]
    with pytest.raises(
        QueueFull, match=r"^The queue of the server reports is full \(limit 1\): the call was not sent$"
    ):
        bulkhead.acquire("b")
    assert QueueRefused("reports", "full") in emitted.all
    tickets.append(bulkhead.acquire("b", force=True))
    assert bulkhead.queued == 2
    close(*reversed(tickets))


async def test_where_none_may_wait_nobody_is_told_that_others_do(bulkhead: Bulkhead) -> None:
    bulkhead.adjust(settings(queue=0))
    ticket = bulkhead.acquire("a")
    with pytest.raises(QueueFull, match=r"^The server reports has reached its concurrency limit \(1 calls at once\)"):
        bulkhead.acquire("b")
    close(ticket)


async def test_whoever_waits_too_long_has_left_and_hears_when_it_may_be_better(
    bulkhead: Bulkhead, emitted: RecordedEvents
) -> None:
    held, ticket = bulkhead.acquire("a"), bulkhead.acquire("a")
    async with bounded():
        with pytest.raises(
            QueueFull, match=r"^The call waited [0-9.]+ s in the queue of the server reports, and was not sent$"
        ) as refused:
            await ticket.wait(NOW)
    assert timedelta(seconds=1) <= refused.value.retry_after <= LONG
    assert QueueRefused("reports", "timeout") in emitted.all
    assert bulkhead.queued == 0
    held.release()
    assert not ticket.is_granted


async def test_whoever_only_asks_whether_its_turn_comes_in_time_keeps_its_place(bulkhead: Bulkhead) -> None:
    held, ticket, behind = bulkhead.acquire("a"), bulkhead.acquire("a"), bulkhead.acquire("a")
    async with bounded():
        assert not await ticket.wait_granted(NOW)
        assert ticket.ahead == 0
        held.release()
        assert await ticket.wait_granted(NOW)
    close(ticket, behind)


async def test_a_brief_wait_that_is_over_gives_the_place_back(bulkhead: Bulkhead) -> None:
    held, late, cancelled = bulkhead.acquire("a"), bulkhead.acquire("a"), bulkhead.acquire("a")
    async with bounded():
        with pytest.raises(QueueFull):
            await late.wait_briefly(waited=10.0)
        waiting = asyncio.create_task(cancelled.wait_briefly())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
    assert bulkhead.queued == 0
    held.release()


async def test_an_advice_follows_the_pace_of_the_turns_and_is_within_bounds(bulkhead: Bulkhead) -> None:
    bulkhead.adjust(settings(queue=3, max_wait=timedelta(seconds=100)))

    def advice() -> int:
        with pytest.raises(QueueFull) as refused:
            bulkhead.acquire("b")
        return round(refused.value.retry_after.total_seconds())

    tickets = [bulkhead.acquire("a") for _ in range(4)]
    assert advice() == 2
    await asyncio.sleep(30)
    # No turn for so long: the next one need not come sooner.
    assert advice() == 30
    tickets.pop(0).release()
    tickets.append(bulkhead.acquire("a"))
    assert advice() == 30
    await asyncio.sleep(1000)
    assert advice() == 100
    close(*reversed(tickets))


async def test_turns_that_come_quickly_have_the_least_advice(bulkhead: Bulkhead) -> None:
    bulkhead.adjust(settings(queue=2))
    tickets = [bulkhead.acquire("a") for _ in range(3)]
    for _ in range(30):
        tickets.pop(0).release()
        tickets.append(bulkhead.acquire("a"))
    with pytest.raises(QueueFull) as refused:
        bulkhead.acquire("b")
    assert refused.value.retry_after == LEAST_ADVICE
    close(*reversed(tickets))


async def test_more_slots_are_granted_at_once_and_fewer_take_none_away(bulkhead: Bulkhead) -> None:
    tickets = [bulkhead.acquire("a") for _ in range(5)]
    bulkhead.adjust(settings(3))
    assert [ticket.is_granted for ticket in tickets] == [True, True, True, False, False]
    bulkhead.adjust(settings(1, queue=0, max_wait=NOW))
    assert (bulkhead.in_use, bulkhead.queued, bulkhead.max_wait, tickets[0].max_wait) == (3, 2, NOW, NOW)
    close(tickets[0], tickets[1])
    assert not tickets[3].is_granted
    tickets[2].release()
    assert [ticket.is_granted for ticket in tickets[3:]] == [True, False]
    with pytest.raises(QueueFull):
        bulkhead.acquire("b")
    close(*reversed(tickets[3:]))


async def test_where_it_is_is_told_when_it_moved_and_not_when_it_has_its_turn(bulkhead: Bulkhead) -> None:
    held, *others, last = (bulkhead.acquire("a") for _ in range(5))
    places: list[int] = []

    async def moved(place: int) -> None:
        places.append(place)

    waiting = asyncio.create_task(last.wait(LONG, moved))
    await asyncio.sleep(POSITIONS_EVERY / 2)
    for place, other in zip((2, 1, 0), others, strict=True):
        before = list(places)
        held.release()
        held = other
        await asyncio.sleep(POSITIONS_EVERY / 4)
        assert places == before
        await asyncio.sleep(POSITIONS_EVERY * 3 / 4)
        assert places == [*before, place]
    held.release()
    async with bounded():
        await waiting
    assert places == [2, 1, 0]
    last.release()


async def test_a_place_far_behind_is_told_when_a_tenth_of_the_way_is_gone(bulkhead: Bulkhead) -> None:
    bulkhead.adjust(settings(queue=100))
    tickets = [bulkhead.acquire("a") for _ in range(52)]
    places: list[int] = []

    async def moved(place: int) -> None:
        places.append(place)

    waiting = asyncio.create_task(tickets[-1].wait(LONG, moved))
    await asyncio.sleep(POSITIONS_EVERY / 2)
    for gone in range(1, 11):
        tickets.pop(0).release()
        await asyncio.sleep(POSITIONS_EVERY)
        assert places == [place for place in (45, 41) if place >= 50 - gone]
    waiting.cancel()
    await asyncio.wait([waiting])
    close(*reversed(tickets))


async def test_nobody_is_looked_at_while_nobody_wants_to_know(
    bulkhead: Bulkhead, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, order = list[int](), FairQueue.order
    monkeypatch.setattr(FairQueue, "order", lambda permits: looks.append(1) or order(permits))
    held, ticket = bulkhead.acquire("a"), bulkhead.acquire("a")
    bulkhead.watch_queue()
    await asyncio.sleep(3 * POSITIONS_EVERY)
    assert len(looks) == 1
    close(ticket, held)


async def test_what_is_used_is_noted_once_for_all_that_changes_within_a_moment(
    bulkhead: Bulkhead, emitted: RecordedEvents
) -> None:
    first = bulkhead.acquire("a")
    await asyncio.sleep(REPORT_EVERY / 2)
    others = [bulkhead.acquire("a") for _ in range(2)]
    assert emitted.all == []
    await asyncio.sleep(REPORT_EVERY)
    assert emitted.all == [ConcurrencyChanged("reports", 1, 1, 2)]
    close(*others, first)
    await asyncio.sleep(2 * REPORT_EVERY)
    assert emitted.all[1:] == [ConcurrencyChanged("reports", 0, 1, 0)]


async def test_what_is_noted_of_slots_belongs_to_nobodys_request(
    bulkhead: Bulkhead, emitted: RecordedEvents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One timer notes what all of them did."""
    told_in: list[RequestContext | None] = []
    monkeypatch.setattr(emitted, "emit", lambda _: told_in.append(current()))
    moved_in, order = list[RequestContext | None](), FairQueue.order
    monkeypatch.setattr(FairQueue, "order", lambda permits: moved_in.append(current()) or order(permits))
    with in_request(RequestContext("one-1", "192.0.2.7", "POST", "/reports/mcp")):
        ticket = bulkhead.acquire("a")
        bulkhead.watch_queue()
    await asyncio.sleep(2 * POSITIONS_EVERY)
    close(ticket)
    await asyncio.sleep(2 * REPORT_EVERY)
    assert (len(told_in), len(moved_in)) == (2, 1)
    assert set(told_in + moved_in) == {None}
