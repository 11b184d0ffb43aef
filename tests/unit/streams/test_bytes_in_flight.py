"""Bytes of large messages: bounded for each caller and for all, and given back whatever happens."""

import asyncio

import pytest

from helpers.counted_calls import counted_calls
from helpers.waiting import bounded
from requirements import covers
from taskgate.auth.context import AuthContext
from taskgate.streams.bytes_in_flight import SPARES, ByteBounds, BytesInFlight

ALICE, BOB, CAROL = (AuthContext(key=name) for name in ("alice", "bob", "carol"))


def budget(context: int = 100, everyone: int = 1000, subject: int = 1000) -> BytesInFlight:
    return BytesInFlight(lambda: ByteBounds(context, subject, everyone))


def client(number: int, subject: str = "mallory") -> AuthContext:
    return AuthContext(key=f"{subject}-{number}", subject=subject)


def test_a_caller_is_refused_at_its_bound_and_its_neighbour_is_not() -> None:
    bytes_ = budget()
    bytes_.add(ALICE, 60)
    refused = bytes_.refusal(ALICE, 41)
    assert refused is not None
    assert (refused.limit, refused.scope, refused.reason) == (100, "context", "bytes")
    assert bytes_.refusal(ALICE, 40) is None
    assert bytes_.refusal(BOB, 100) is None


def test_all_together_have_a_bound() -> None:
    bytes_ = budget(everyone=150)
    bytes_.add(ALICE, 100)
    refused = bytes_.refusal(BOB, 51)
    assert refused is not None
    assert (refused.limit, refused.scope) == (150, "global")
    assert bytes_.refusal(BOB, 50) is None


@covers("T46")
def test_all_clients_of_a_person_have_a_bound_and_another_person_does_not_feel_it() -> None:
    bytes_ = budget(subject=150)
    bytes_.add(client(1), 100)
    refused = bytes_.refusal(client(2), 51)
    assert refused is not None
    assert (refused.limit, refused.scope, refused.reason) == (150, "subject", "bytes")
    assert bytes_.refusal(client(2), 50) is None
    assert bytes_.refusal(ALICE, 100) is None
    bytes_.release(client(1), 100)
    assert bytes_.refusal(client(2), 100) is None


@pytest.mark.parametrize("clients", [3, 30, 300])
def test_a_person_has_no_more_bytes_in_flight_the_more_clients_it_has(clients: int) -> None:
    bytes_ = budget(everyone=10**6, subject=200)
    for number in range(3 * clients):
        if bytes_.refusal(client(number % clients), 40) is None:
            bytes_.add(client(number % clients), 40)
    assert bytes_.total == 200


def test_the_clients_of_a_person_have_one_turn_among_them_for_the_room_of_all() -> None:
    async def come() -> list[str]:
        bytes_, order = budget(everyone=100), list[str]()
        bytes_.add(CAROL, 100)

        async def answer(caller: AuthContext) -> None:
            await bytes_.wait_for_room(caller, 100)
            bytes_.add(caller, 100)
            order.append(caller.subject)
            await asyncio.sleep(0)
            bytes_.release(caller, 100)

        async with bounded(), asyncio.TaskGroup() as group:
            for number in range(30):
                group.create_task(answer(client(number % 10)))
            await asyncio.sleep(0)
            for _ in range(2):
                group.create_task(answer(ALICE))
            await asyncio.sleep(0)
            bytes_.release(CAROL, 100)
        return order

    order = asyncio.run(come())
    assert len(order) == 32
    assert order[:4].count("alice") == 2


async def test_a_client_that_waits_for_its_own_room_holds_up_no_other_client_of_its_person() -> None:
    bytes_ = budget(subject=1000)
    bytes_.add(client(1), 100)
    async with bounded(), asyncio.TaskGroup() as group:
        blocked = group.create_task(bytes_.wait_for_room(client(1), 50))
        await asyncio.sleep(0)
        await bytes_.wait_for_room(client(2), 100)
        assert not blocked.done()
        bytes_.release(client(1), 100)


def test_a_caller_with_nothing_in_flight_may_have_one_message_of_any_size() -> None:
    bytes_ = budget()
    assert bytes_.refusal(ALICE, 5000) is None
    bytes_.add(ALICE, 5000)
    assert bytes_.refusal(ALICE, 1) is not None


def test_what_is_given_back_is_forgotten() -> None:
    bytes_ = budget()
    for size in (1, 2, 3):
        bytes_.add(ALICE, size)
    for size in (1, 2, 3):
        bytes_.release(ALICE, size)
    assert (bytes_.usage(ALICE), bytes_.total) == (0, 0)


async def test_an_answer_waits_for_room_and_comes_in_turn() -> None:
    bytes_, order = budget(), list[str]()
    bytes_.add(ALICE, 100)

    async def answer(name: str, size: int) -> None:
        await bytes_.wait_for_room(ALICE, size)
        bytes_.add(ALICE, size)
        order.append(name)

    async with bounded(), asyncio.TaskGroup() as group:
        group.create_task(answer("first", 80))
        await asyncio.sleep(0)
        group.create_task(answer("second", 80))
        group.create_task(answer("third", 20))
        await asyncio.sleep(0)
        assert order == []
        await bytes_.wait_for_room(BOB, 100)
        bytes_.release(ALICE, 100)
        while len(order) < 1:
            await asyncio.sleep(0)
        assert order == ["first"]
        bytes_.release(ALICE, 80)
    assert order == ["first", "second", "third"]


async def test_one_that_waits_for_the_room_of_all_is_not_behind_one_that_is_at_its_own_bound() -> None:
    bytes_ = budget(context=100, everyone=150)
    bytes_.add(ALICE, 100)
    bytes_.add(CAROL, 50)
    async with bounded(), asyncio.TaskGroup() as group:
        blocked = group.create_task(bytes_.wait_for_room(ALICE, 10))
        await asyncio.sleep(0)
        waits = group.create_task(bytes_.wait_for_room(BOB, 40))
        await asyncio.sleep(0)
        bytes_.release(CAROL, 50)
        await waits
        assert not blocked.done()
        bytes_.release(ALICE, 100)


async def test_one_that_gives_up_waiting_leaves_its_turn_to_the_next() -> None:
    bytes_ = budget()
    bytes_.add(ALICE, 100)
    async with bounded():
        first = asyncio.create_task(bytes_.wait_for_room(ALICE, 50))
        await asyncio.sleep(0)
        second = asyncio.create_task(bytes_.wait_for_room(ALICE, 50))
        await asyncio.sleep(0)
        bytes_.release(ALICE, 100)
        first.cancel()
        await second
        with pytest.raises(asyncio.CancelledError):
            await first
    assert bytes_.total == 0


def test_a_body_counts_as_it_arrives_and_few_may_exceed_the_room_to_be_refused_by_name() -> None:
    bytes_ = budget()
    bytes_.add(ALICE, 100)
    receipts = [bytes_.incoming_body(ALICE) for _ in range(SPARES + 1)]
    assert [each.grow(30) for each in receipts] == [True] * SPARES + [False]
    assert receipts[0].grow(60)
    for each in receipts:
        each.close()
    bytes_.incoming_body(ALICE).close()
    assert bytes_.usage(ALICE) == 100
    assert [bytes_.incoming_body(ALICE).grow(30) for _ in range(SPARES + 1)] == [True] * SPARES + [False]


def test_the_three_thousandth_message_costs_what_the_hundredth_did() -> None:
    bytes_, costs = budget(10**9, 10**9, 10**9), list[int]()
    callers = [client(number, f"person {number // 2}") for number in range(3001)]
    for number in range(3001):
        with counted_calls() as made:
            bytes_.refusal(callers[number], 20_000)
            bytes_.add(callers[number], 20_000)
        costs.append(made.count)
    assert costs[3000] == costs[100]
