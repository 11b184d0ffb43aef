"""How many programs of a server run: a bound, who has to make room, and who waits for it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest

from helpers.loop_pace import paced
from helpers.waiting import bounded
from taskgate.errors import UpstreamFailed
from taskgate.upstream.calls import Principal
from taskgate.upstream.stdio.slots import QUIET, SETTLING, STARVING
from unit.upstream.stdio.conftest import Taken, Yard
from unit.upstream.stdio.programs import runs

NewYard = Callable[..., Yard]


@pytest.fixture(autouse=True)
async def fast_timers(new_yard: NewYard) -> AsyncIterator[None]:
    with paced(5):
        yield


async def busy(yard: Yard, name: str, **wish: Any) -> Taken:
    """The program of a caller, of which an answer is awaited."""
    taken = await yard.take(name, **wish)
    taken.ears.in_flight = 1
    return taken


async def done(taken: Taken) -> None:
    """The answer came."""
    taken.ears.on_heard = lambda _: setattr(taken.ears, "in_flight", 0)
    count = len(taken.ears.messages)
    await taken.tell(id=1)
    await taken.told(count + 1)


async def test_no_more_run_than_may(new_yard: NewYard) -> None:
    yard = new_yard(processes=2)
    taken = await asyncio.gather(*(yard.take(f"host {number}") for number in range(6)))
    assert max(yard.counts) == 2
    assert len({each.line.pid for each in taken}) == 6
    assert sum(runs(each.line.pid) for each in taken) <= 2


async def test_clients_of_one_person_have_together_as_many_as_one_caller(new_yard: NewYard) -> None:
    yard = new_yard(processes=8)

    def client(number: int) -> Principal:
        return Principal(context=f"client {number}", subject_key="mallory")

    for number in range(7):
        await busy(yard, f"client {number}", principal=client(number))
    with pytest.raises(UpstreamFailed, match="in use"):
        await yard.take("client 7", principal=client(7), first_byte=timedelta(milliseconds=300))
    assert (await yard.take("alice", principal=Principal(context="alice"))).line.is_usable
    assert max(yard.counts) == 8


async def test_the_program_that_was_not_used_for_longest_makes_room(new_yard: NewYard) -> None:
    yard = new_yard(processes=3)
    taken = [await yard.take(name) for name in "abc"]
    await taken[0].tell(id=1)
    await taken[0].told()
    await yard.take("d")
    assert [each.line.is_usable for each in taken] == [True, False, True]
    assert str(await taken[1].end()) == "The session with the server was closed"


async def test_but_first_one_that_nobody_has(new_yard: NewYard) -> None:
    yard = new_yard(processes=3)
    taken = [await yard.take(name) for name in "abc"]
    yard.give_back(taken[2])
    await yard.take("d")
    assert [each.line.is_usable for each in taken] == [True, True, False]


async def test_a_program_with_a_request_in_flight_never_makes_room(new_yard: NewYard) -> None:
    yard = new_yard(processes=2)
    first, second = await busy(yard, "alice"), await yard.take("bob")
    await yard.take("carol")
    assert (first.line.is_usable, second.line.is_usable) == (True, False)


async def test_where_all_are_busy_one_waits_until_one_is_not(new_yard: NewYard) -> None:
    yard = new_yard(processes=1)
    alice = await busy(yard, "alice")
    waiting = yard.taking("bob")
    await yard.kept_waiting(waiting)
    assert yard.counts == [1]
    await done(alice)
    assert (await waiting).line.is_usable
    assert "closed" in str(await alice.end())


async def test_or_until_it_is_given_back(new_yard: NewYard) -> None:
    yard = new_yard(processes=1)
    alice = await busy(yard, "alice")
    waiting = yard.taking("bob")
    await yard.kept_waiting(waiting)
    alice.ears.in_flight = 0
    yard.give_back(alice)
    assert (await waiting).line.is_usable


async def test_or_until_it_ends_by_itself(new_yard: NewYard) -> None:
    yard = new_yard(processes=1)
    alice = await busy(yard, "alice")
    waiting = yard.taking("bob")
    await yard.kept_waiting(waiting)
    await alice.do("sys.exit(1)")
    assert (await waiting).line.is_usable


async def test_between_two_requests_a_program_that_is_held_is_left_alone(new_yard: NewYard) -> None:
    yard = new_yard(processes=1)
    alice = await busy(yard, "alice")
    waiting = yard.taking("bob")
    await yard.kept_waiting(waiting)
    await done(alice)
    await waiting
    assert alice.ears.closed_at - alice.line.used >= QUIET


async def test_but_not_for_ever(new_yard: NewYard) -> None:
    """Somebody who never pauses for long does not keep others out."""
    yard = new_yard(processes=1)
    alice = await busy(yard, "alice")
    waiting = yard.taking("bob")
    async with bounded():
        while alice.line.is_usable:
            alice.ears.in_flight = 1
            alice.ears.on_heard = lambda _: setattr(alice.ears, "in_flight", 0)
            count = len(alice.ears.messages)
            await alice.tell(id=1)
            await alice.told(count + 1)
    assert (await waiting).line.is_usable


async def test_who_waited_longest_is_first(new_yard: NewYard) -> None:
    yard = new_yard(processes=1)
    alice = await busy(yard, "alice")
    order: list[str] = []

    async def wait(name: str) -> None:
        taken = await yard.take(name)
        order.append(name)
        yard.give_back(taken)

    # They ask in this order.
    waiting = [asyncio.create_task(wait(name)) for name in "bcde"]
    await yard.kept_waiting()
    assert order == []
    await done(alice)
    async with bounded():
        await asyncio.gather(*waiting)
    assert order == list("bcde")


async def test_all_that_wait_for_the_same_have_it_at_once(new_yard: NewYard) -> None:
    yard = new_yard(processes=1)
    alice = await busy(yard, "alice")
    waiting = [yard.taking(name) for name in ("bob", "carol", "bob")]
    await yard.kept_waiting(*waiting)
    await done(alice)
    first, last = await waiting[0], await waiting[2]
    assert first.line is last.line
    first.ears.in_flight = 1
    assert not waiting[1].done()
    await done(first)
    assert (await waiting[1]).line is not first.line


async def test_who_stops_waiting_is_not_waited_for(new_yard: NewYard) -> None:
    yard = new_yard(processes=1)
    alice = await busy(yard, "alice")
    first, second = yard.taking("bob"), yard.taking("carol")
    await yard.kept_waiting(first, second)
    first.cancel()
    await done(alice)
    assert (await second).line.is_usable


async def test_who_waits_for_too_long_is_told_why(new_yard: NewYard, caplog: pytest.LogCaptureFixture) -> None:
    yard = new_yard(processes=1)
    await busy(yard, "alice")
    with pytest.raises(UpstreamFailed) as refused:
        await yard.take("bob", first_byte=timedelta(milliseconds=100))
    assert (refused.value.reason, refused.value.dispatched) == ("timeout", False)
    assert str(refused.value) == "All programs that the server may have are in use, and none became free in time"
    assert "all programs of a server are in use; a request is refused" in caplog.text


async def test_a_program_that_does_not_want_to_end_makes_room_all_the_same(new_yard: NewYard) -> None:
    yard = new_yard(processes=1)
    alice = await yard.take("alice")
    await alice.do("signal.signal(15, signal.SIG_IGN); say({})\nwhile 1: signal.pause()")
    await alice.told()
    assert (await yard.take("bob")).line.is_usable
    assert not runs(alice.line.pid)


# --- among callers who want several


async def test_who_wants_one_more_gives_one_of_their_own_rather_than_take_the_only_one_of_another(
    new_yard: NewYard,
) -> None:
    yard = new_yard(processes=2)
    bob = await yard.take("bob")
    alice = await yard.take("alice", b"{1}")
    await yard.take("alice", b"{2}")
    assert (bob.line.is_usable, alice.line.is_usable) == (True, False)


async def test_who_has_most_makes_room_first(new_yard: NewYard) -> None:
    yard = new_yard(processes=3)
    bob = await yard.take("bob")
    alice = [await yard.take("alice", b"{%d}" % number) for number in range(2)]
    await yard.take("carol")
    assert [each.line.is_usable for each in (bob, *alice)] == [True, False, True]


async def test_the_only_one_of_another_goes_to_who_has_as_many_once_that_one_starves(new_yard: NewYard) -> None:
    yard = new_yard(processes=2)
    bob = await yard.take("bob")
    alice = await busy(yard, "alice")
    began = asyncio.get_running_loop().time()
    await yard.take("alice", b"{2}")
    assert asyncio.get_running_loop().time() - began >= STARVING
    assert (bob.line.is_usable, alice.line.is_usable) == (False, True)


async def test_one_caller_has_not_all_of_many_however_busy_they_are(new_yard: NewYard) -> None:
    yard = new_yard(processes=8)
    for number in range(7):
        (await yard.take("alice", b"{%d}" % number)).ears.in_flight = 1
    with pytest.raises(UpstreamFailed, match="in use"):
        await yard.take("alice", b"{7}", first_byte=timedelta(milliseconds=300))
    waiting = yard.taking("alice", b"{8}")
    await yard.kept_waiting(waiting)
    assert (await yard.take("bob")).line.is_usable
    assert not waiting.done()
    waiting.cancel()


async def test_a_program_that_was_started_for_somebody_stays_until_that_can_be_asked_of_it(new_yard: NewYard) -> None:
    yard = new_yard(processes=1)
    alice = await busy(yard, "alice")
    waiting = yard.taking("bob")
    await asyncio.sleep(STARVING)
    await done(alice)
    await waiting
    assert alice.line.spoke is not None
    assert alice.ears.closed_at - alice.line.spoke >= SETTLING


async def test_and_until_it_is_asked_for_the_first_time(new_yard: NewYard) -> None:
    yard = new_yard(processes=1)
    alice = await busy(yard, "alice")
    waiting = yard.taking("bob")
    await asyncio.sleep(STARVING)
    await yard.take("alice")
    alice.ears.in_flight = 0
    await waiting
    assert alice.line.spoke is None
    assert alice.ears.closed_at - alice.line.used >= SETTLING


async def test_that_a_program_makes_room_is_logged(new_yard: NewYard, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    yard = new_yard(processes=1)
    alice = await yard.take("alice")
    await yard.take("bob")
    [record] = [
        each
        for each in caplog.records
        if each.message == "an idle program of a server is stopped to make room for another"
    ]
    assert (vars(record)["upstream"], vars(record)["pid"]) == ("reports", alice.line.pid)
