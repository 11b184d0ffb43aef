"""Who gets which program of a server: by context and what was declared, one for all, or one to find something out."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

from helpers.loop_pace import pass_time
from helpers.waiting import bounded, eventually
from taskgate.errors import UpstreamFailed
from unit.upstream.stdio.conftest import Yard
from unit.upstream.stdio.programs import ECHO, program, runs

NewYard = Callable[..., Yard]


async def test_two_contexts_never_share_a_program(yard: Yard) -> None:
    alice, bob = await yard.take("alice"), await yard.take("bob")
    assert alice.line.pid != bob.line.pid


async def test_nor_do_two_that_begin_at_once(yard: Yard) -> None:
    alice, bob = await asyncio.gather(yard.take("alice"), yard.take("bob"))
    assert alice.line.pid != bob.line.pid


async def test_one_context_has_one_program_however_often_it_asks(yard: Yard) -> None:
    taken = await asyncio.gather(*(yard.take("alice") for _ in range(5)))
    assert len({each.line.pid for each in taken}) == 1
    assert (await yard.take("alice")).line is taken[0].line
    assert max(yard.counts) == 1


async def test_but_not_with_other_capabilities(yard: Yard) -> None:
    takings = [yard.take("alice", declared) for declared in (b"{}", b'{"capabilities":{"roots":{}}}', None)]
    assert len({each.line.pid for each in await asyncio.gather(*takings)}) == 3


async def test_a_server_that_keeps_nothing_has_its_programs_for_all_who_declare_the_same(new_yard: NewYard) -> None:
    """As many as there may be but for one, each for as many."""
    yard = new_yard(shared=True, processes=3)
    taken = [await yard.take(f"host {number}") for number in range(4)]
    pids = [each.line.pid for each in taken]
    assert len(set(pids)) == 2
    assert sorted(pids.count(pid) for pid in set(pids)) == [2, 2]


async def test_of_shared_programs_the_one_with_least_to_do_is_given(new_yard: NewYard) -> None:
    yard = new_yard(shared=True, processes=3)
    first, second = await yard.take("alice"), await yard.take("bob")
    first.ears.in_flight = 1
    assert [(await yard.take(name)).line for name in "cdefg"] == [second.line] * 5


async def test_shared_programs_are_not_shared_by_who_declares_something_else(new_yard: NewYard) -> None:
    yard = new_yard(shared=True, processes=4)
    first, second = await yard.take("alice", b"{}"), await yard.take("alice", b'{"capabilities":{"roots":{}}}')
    assert first.line is not second.line


async def test_a_program_that_is_given_back_is_given_to_the_same_again(yard: Yard) -> None:
    first = await yard.take("alice")
    yard.give_back(first)
    assert (await yard.take("alice")).line is first.line


async def test_a_program_that_nobody_has_is_ended_after_a_while(new_yard: NewYard) -> None:
    yard = new_yard(idle=timedelta(milliseconds=100))
    once, twice = await yard.take("alice"), await yard.take("bob")
    await yard.take("bob")
    yard.give_back(once)
    yard.give_back(twice)
    assert str(await once.end()) == "The session with the server was closed"
    await eventually(lambda: not runs(once.line.pid))
    assert (runs(twice.line.pid), twice.ears.failures) == (True, [])
    yard.give_back(twice)
    await twice.end()
    # What a session gives back late is no harm.
    yard.give_back(twice)


async def test_a_program_that_is_at_work_is_not_ended_for_being_held_by_nobody(new_yard: NewYard) -> None:
    yard = new_yard(idle=timedelta(milliseconds=20))
    taken = await yard.take()
    taken.ears.in_flight = 1
    yard.give_back(taken)
    await pass_time(1)
    assert not taken.ears.failures
    taken.ears.in_flight = 0
    await taken.end()


async def test_whoever_takes_it_in_time_keeps_it_from_that(new_yard: NewYard) -> None:
    yard = new_yard(idle=timedelta(milliseconds=300))
    taken, other = await yard.take("alice"), await yard.take("bob")
    yard.give_back(taken)
    await yard.take("alice")
    yard.give_back(other)
    await other.end()
    assert taken.line.is_usable


async def test_what_only_listens_starts_nothing(yard: Yard) -> None:
    with pytest.raises(UpstreamFailed) as refused:
        await yard.take("alice", only_listens=True)
    assert (refused.value.reason, yard.counts) == ("unreachable", [])
    taken = await yard.take("alice")
    assert (await yard.take("alice", only_listens=True)).line is taken.line


async def test_what_probes_has_a_program_of_its_own_which_may_be_one_above_the_bound(new_yard: NewYard) -> None:
    yard = new_yard(processes=1)
    taken = await yard.take("alice")
    probe = await yard.take("alice", probes=True)
    assert probe.line is not taken.line
    assert (await yard.take("alice")).line is taken.line
    yard.give_back(probe)
    await probe.end()
    assert taken.line.is_usable


async def test_what_was_probed_and_lives_is_for_whoever_wished_for_it(new_yard: NewYard) -> None:
    yard = new_yard(processes=2)
    probe = await yard.take("alice", None, probes=True)
    with pytest.raises(UpstreamFailed):
        await yard.take("alice", None, only_listens=True)
    yard.give_back(probe)
    assert (await yard.take("alice", None)).line is probe.line


async def test_that_a_program_ends_of_a_probe_is_no_sign(new_yard: NewYard) -> None:
    yard = new_yard(backoff=timedelta(hours=1), max_backoff=timedelta(hours=1))
    probe = await yard.take("alice", None, probes=True)
    await probe.do("sys.exit(1)")
    assert "status 1" in str(await probe.end())
    again = await yard.take("alice", None)
    await again.tell(id=1)
    await again.told()
    assert yard.restarts == []


async def test_a_slow_program_delays_nobody_else(new_yard: NewYard) -> None:
    """Neither one that takes its time before it reads, nor one that takes all of a processor."""
    slow = new_yard(command=program("while True: pass"))
    yard = new_yard(command=program(ECHO))
    stuck = await slow.take("alice")
    await stuck.tell(id=1)
    async with bounded(5):
        fine = await yard.take("bob")
        await fine.tell(id=2)
        assert await fine.told() == [{"id": 2}]
        other = await slow.take("bob")
    assert other.line is not stuck.line


async def test_whoever_stops_waiting_for_a_program_stops_nobody_else(yard: Yard) -> None:
    taking = [yard.taking("alice") for _ in range(2)]
    await asyncio.sleep(0)
    taking[0].cancel()
    taken = await taking[1]
    await taken.tell(id=1)
    await taken.told()


async def test_a_program_that_nobody_waited_for_is_ended_like_any_other(new_yard: NewYard) -> None:
    yard = new_yard(idle=timedelta(milliseconds=50))
    taking = yard.taking("alice")
    await asyncio.sleep(0)
    taking.cancel()
    await eventually(lambda: yard.counts == [1, 0])


async def test_to_close_tells_everybody_and_leaves_no_program(new_yard: NewYard) -> None:
    yard = new_yard()
    taken, starting = await yard.take("alice"), yard.taking("bob")
    await asyncio.sleep(0)
    async with bounded():
        await yard.lines.close()
    assert str(await taken.end()) == "The session with the server was closed"
    with pytest.raises(UpstreamFailed) as refused:
        await starting
    assert not refused.value.dispatched
    with pytest.raises(UpstreamFailed):
        await yard.take("carol")
    assert not runs(taken.line.pid)
