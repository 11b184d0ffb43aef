"""How many programs of a server run that callers share: what one set of capabilities takes, and what it leaves."""

from collections.abc import AsyncIterator, Callable
from datetime import timedelta

import pytest

from helpers.loop_pace import paced
from unit.upstream.stdio.conftest import Yard

NewYard = Callable[..., Yard]


@pytest.fixture(autouse=True)
async def fast_timers(new_yard: NewYard) -> AsyncIterator[None]:
    with paced(5):
        yield


@pytest.mark.parametrize(("processes", "for_one"), [(2, 1), (7, 6), (8, 7), (16, 14)])
async def test_who_declares_something_else_finds_a_place_however_many_hosts_of_one_kind_are_at_work(
    new_yard: NewYard, processes: int, for_one: int
) -> None:
    yard = new_yard(shared=True, processes=processes)
    for number in range(processes + 1):
        (await yard.take(f"host {number}", b"{1}")).ears.in_flight += 1
    assert yard.counts[-1] == for_one
    other = await yard.take("another", b"{2}", first_byte=timedelta(seconds=5))
    assert other.line.is_usable


async def test_nor_do_several_kinds_of_hosts_spread_over_all_places(new_yard: NewYard) -> None:
    yard = new_yard(shared=True, processes=4)
    for declared in (b"{1}", b"{2}") * 3:
        (await yard.take(declared=declared)).ears.in_flight += 1
    assert yard.counts[-1] == 3
    assert (await yard.take(declared=b"{3}", first_byte=timedelta(seconds=5))).line.is_usable


async def test_where_there_is_one_place_who_declares_something_else_waits_for_it(new_yard: NewYard) -> None:
    yard = new_yard(shared=True, processes=1)
    first = await yard.take("alice", b"{1}")
    first.ears.in_flight = 1
    first.ears.on_heard = lambda _: setattr(first.ears, "in_flight", 0)
    assert (await yard.take("bob", b"{1}")).line is first.line
    waiting = yard.taking("alice", b"{2}")
    await yard.kept_waiting(waiting)
    await first.tell(id=1)
    assert (await waiting).line is not first.line


async def test_of_those_who_share_too_who_has_most_makes_room_first(new_yard: NewYard) -> None:
    yard = new_yard(shared=True, processes=3)
    many = [await yard.take(f"host {number}", b"{1}") for number in range(2)]
    only = await yard.take("another", b"{2}")
    for each in many:
        await each.tell(id=1)
        await each.told()
    await yard.take("a third", b"{3}")
    assert (only.line.is_usable, [each.line.is_usable for each in many]) == (True, [False, True])
