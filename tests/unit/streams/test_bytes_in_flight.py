"""Bytes of large messages: bounded for each caller and for all, and given back whatever happens."""

import asyncio

import pytest

from helpers.counted_calls import counted_calls
from helpers.waiting import bounded
from taskgate.streams.bytes_in_flight import SPARES, ByteBounds, BytesInFlight


def budget(context: int = 100, everyone: int = 1000) -> BytesInFlight:
    return BytesInFlight(lambda: ByteBounds(context, everyone))


def test_a_caller_is_refused_at_its_bound_and_its_neighbour_is_not() -> None:
    bytes_ = budget()
    bytes_.add("alice", 60)
    refused = bytes_.refusal("alice", 41)
    assert refused is not None
    assert (refused.limit, refused.scope, refused.reason) == (100, "context", "bytes")
    assert bytes_.refusal("alice", 40) is None
    assert bytes_.refusal("bob", 100) is None


def test_all_together_have_a_bound() -> None:
    bytes_ = budget(everyone=150)
    bytes_.add("alice", 100)
    refused = bytes_.refusal("bob", 51)
    assert refused is not None
    assert (refused.limit, refused.scope) == (150, "global")
    assert bytes_.refusal("bob", 50) is None


def test_a_caller_with_nothing_in_flight_may_have_one_message_of_any_size() -> None:
    bytes_ = budget()
    assert bytes_.refusal("alice", 5000) is None
    bytes_.add("alice", 5000)
    assert bytes_.refusal("alice", 1) is not None


def test_what_is_given_back_is_forgotten() -> None:
    bytes_ = budget()
    for size in (1, 2, 3):
        bytes_.add("alice", size)
    for size in (1, 2, 3):
        bytes_.release("alice", size)
    assert (bytes_.usage("alice"), bytes_.total) == (0, 0)


async def test_an_answer_waits_for_room_and_comes_in_turn() -> None:
    bytes_, order = budget(), list[str]()
    bytes_.add("alice", 100)

    async def answer(name: str, size: int) -> None:
        await bytes_.wait_for_room("alice", size)
        bytes_.add("alice", size)
        order.append(name)

    async with bounded(), asyncio.TaskGroup() as group:
        group.create_task(answer("first", 80))
        await asyncio.sleep(0)
        group.create_task(answer("second", 80))
        group.create_task(answer("third", 20))
        await asyncio.sleep(0)
        assert order == []
        await bytes_.wait_for_room("bob", 100)
        bytes_.release("alice", 100)
        while len(order) < 1:
            await asyncio.sleep(0)
        assert order == ["first"]
        bytes_.release("alice", 80)
    assert order == ["first", "second", "third"]


async def test_one_that_waits_for_the_room_of_all_is_not_behind_one_that_is_at_its_own_bound() -> None:
    bytes_ = budget(context=100, everyone=150)
    bytes_.add("alice", 100)
    bytes_.add("carol", 50)
    async with bounded(), asyncio.TaskGroup() as group:
        blocked = group.create_task(bytes_.wait_for_room("alice", 10))
        await asyncio.sleep(0)
        waits = group.create_task(bytes_.wait_for_room("bob", 40))
        await asyncio.sleep(0)
        bytes_.release("carol", 50)
        await waits
        assert not blocked.done()
        bytes_.release("alice", 100)


async def test_one_that_gives_up_waiting_leaves_its_turn_to_the_next() -> None:
    bytes_ = budget()
    bytes_.add("alice", 100)
    async with bounded():
        first = asyncio.create_task(bytes_.wait_for_room("alice", 50))
        await asyncio.sleep(0)
        second = asyncio.create_task(bytes_.wait_for_room("alice", 50))
        await asyncio.sleep(0)
        bytes_.release("alice", 100)
        first.cancel()
        await second
        with pytest.raises(asyncio.CancelledError):
            await first
    assert bytes_.total == 0


def test_a_body_counts_as_it_arrives_and_few_may_exceed_the_room_to_be_refused_by_name() -> None:
    bytes_ = budget()
    bytes_.add("alice", 100)
    receipts = [bytes_.incoming_body("alice") for _ in range(SPARES + 1)]
    assert [each.grow(30) for each in receipts] == [True] * SPARES + [False]
    assert receipts[0].grow(60)
    for each in receipts:
        each.close()
    bytes_.incoming_body("alice").close()
    assert bytes_.usage("alice") == 100
    assert [bytes_.incoming_body("alice").grow(30) for _ in range(SPARES + 1)] == [True] * SPARES + [False]


def test_the_three_thousandth_message_costs_what_the_hundredth_did() -> None:
    bytes_, costs = budget(10**9, 10**9), list[int]()
    for number in range(3001):
        with counted_calls() as made:
            bytes_.refusal(f"caller {number}", 20_000)
            bytes_.add(f"caller {number}", 20_000)
        costs.append(made.count)
    assert costs[3000] == costs[100]
