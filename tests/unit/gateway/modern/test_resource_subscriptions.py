"""Subscriptions at servers: one for all who want it, and none for nobody, whatever happens meanwhile."""

import asyncio
import gc
from collections.abc import AsyncIterator
from weakref import ref

import pytest

from helpers.manual_clock import EPOCH, ManualClock
from helpers.virtual_time import turns
from helpers.waiting import eventually
from taskgate.auth.context import ANONYMOUS, AuthContext
from taskgate.errors import QueueFull, UpstreamFailed, UpstreamReason
from taskgate.gateway.modern.resource_subscriptions import ResourceSubscriptions
from unit.auth.identities import identity
from unit.gateway.modern.listening import Counterpart, new_line

ALICE = AuthContext(key="alice", identity=identity(), token="alices")
SUBSCRIBE, UNSUBSCRIBE = ("resources/subscribe", "a://1"), ("resources/unsubscribe", "a://1")


class World:
    """A line to a server, and what is subscribed to over it."""

    def __init__(self) -> None:
        self.server = Counterpart()
        self.clock = ManualClock(EPOCH)
        self.line = new_line(self.server, self.clock)
        self.resources = ResourceSubscriptions()

    def joining(self) -> "asyncio.Task[bool]":
        return asyncio.create_task(self.resources.join(self.line, "a://1", ANONYMOUS))

    def part(self) -> None:
        self.resources.part(self.line, "a://1")

    async def settle(self) -> list[tuple[str, str]]:
        """What the server was asked, once nothing more is on its way to it."""
        await turns(20)
        return self.server.asked


def expect_nothing_kept(world: World) -> None:
    """Expect that nothing is known of the line any more."""
    line = ref(world.line)
    del world.line
    gc.collect()
    assert line() is None


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    await world.resources.close()


async def test_who_comes_while_the_server_is_asked_waits_for_the_same_answer(world: World) -> None:
    world.server.gate.clear()
    first, second = world.joining(), world.joining()
    await eventually(lambda: world.server.asked)
    world.server.gate.set()
    assert await first
    assert await second
    assert world.server.asked == [SUBSCRIBE]


async def test_who_comes_while_the_last_one_is_taken_back_subscribes_anew(world: World) -> None:
    await world.joining()
    world.server.gate.clear()
    world.part()
    await eventually(lambda: world.server.asked == [SUBSCRIBE, UNSUBSCRIBE])
    joining = world.joining()
    await asyncio.sleep(0)
    world.server.gate.set()
    assert await joining
    assert await world.settle() == [SUBSCRIBE, UNSUBSCRIBE, SUBSCRIBE]
    world.part()
    assert await world.settle() == [SUBSCRIBE, UNSUBSCRIBE, SUBSCRIBE, UNSUBSCRIBE]


async def test_who_comes_before_that_has_begun_finds_what_there_is(world: World) -> None:
    await world.joining()
    world.part()
    assert await world.resources.join(world.line, "a://1", ANONYMOUS)
    assert await world.settle() == [SUBSCRIBE]
    world.part()
    assert await world.settle() == [SUBSCRIBE, UNSUBSCRIBE]


async def test_what_may_have_arrived_of_who_left_meanwhile_is_taken_back(world: World) -> None:
    world.server.gate.clear()
    joining = world.joining()
    await eventually(lambda: world.server.asked)
    joining.cancel()
    await asyncio.wait([joining])
    world.server.gate.set()
    assert await world.settle() == [SUBSCRIBE, UNSUBSCRIBE]
    # What it raised knows the line.
    del joining
    expect_nothing_kept(world)


async def test_what_a_server_refused_is_not_taken_back(world: World) -> None:
    world.server.refused = {"a://1"}
    assert not await world.joining()
    assert await world.settle() == [SUBSCRIBE]
    expect_nothing_kept(world)


async def test_a_failure_is_told_and_may_have_arrived(world: World) -> None:
    world.server.failure = UpstreamFailed(UpstreamReason.TIMEOUT, "no", dispatched=True)
    with pytest.raises(UpstreamFailed):
        await world.joining()
    assert await world.settle() == [SUBSCRIBE, UNSUBSCRIBE]
    assert not world.line.busy


async def test_the_line_stays_open_until_the_server_was_told(world: World) -> None:
    await world.joining()
    world.server.gate.clear()
    world.part()
    await eventually(lambda: len(world.server.asked) == 2)
    assert world.line.busy
    world.server.gate.set()
    await world.settle()
    assert not world.line.busy


async def test_lines_do_not_share_what_they_subscribe_to(world: World) -> None:
    other = new_line(world.server, world.clock, ALICE)
    await world.joining()
    assert await world.resources.join(other, "a://1", ALICE)
    assert world.server.asked == [SUBSCRIBE, SUBSCRIBE]
    assert [None if principal is None else principal.token for principal in world.server.spoke_for] == [None, "alices"]


async def test_an_old_end_takes_nothing_from_who_came_after_it(world: World) -> None:
    await world.joining()
    joined: list[asyncio.Task[bool]] = []

    def somebody_comes() -> None:
        world.server.meanwhile = lambda: None
        joined.append(world.joining())

    world.server.meanwhile = somebody_comes
    world.part()
    assert await world.resources.join(world.line, "a://1", ANONYMOUS)
    world.server.gate.clear()
    world.part()
    await eventually(lambda: len(world.server.asked) == 2)
    # Two ends are on their way now; somebody comes between the first, which the server is told, and the second.
    world.server.gate.set()
    await world.settle()
    assert await joined[0]
    world.part()
    assert await world.settle() == [SUBSCRIBE, UNSUBSCRIBE, SUBSCRIBE, UNSUBSCRIBE]


# --- permits ---


def permits(world: World) -> tuple[int, int]:
    """How many permits of the server are out, and how many requests wait for one."""
    return world.server.bulkhead.in_use, world.server.bulkhead.queued


async def test_a_subscription_has_a_permit_until_the_server_has_answered(world: World) -> None:
    world.server.gate.clear()
    joining = world.joining()
    await eventually(lambda: world.server.asked)
    assert permits(world) == (1, 0)
    world.server.gate.set()
    assert await joining
    assert permits(world) == (0, 0)


async def test_a_subscription_waits_for_a_permit_and_its_end_does_not(world: World) -> None:
    await world.joining()
    taken = [world.server.bulkhead.acquire("another") for _ in range(2)]
    world.part()
    assert await world.settle() == [SUBSCRIBE, UNSUBSCRIBE]
    joining = world.joining()
    await eventually(lambda: permits(world) == (2, 1))
    assert world.server.asked == [SUBSCRIBE, UNSUBSCRIBE]
    taken[0].release()
    assert await joining
    assert world.server.asked == [SUBSCRIBE, UNSUBSCRIBE, SUBSCRIBE]
    assert permits(world) == (1, 0)


async def test_who_gets_no_permit_is_refused_and_the_server_is_asked_nothing(world: World) -> None:
    for _ in range(3):
        world.server.bulkhead.acquire("another")
    with pytest.raises(QueueFull):
        await world.joining()
    assert await world.settle() == []
    assert not world.line.busy
    assert permits(world) == (2, 1)


async def test_who_leaves_while_it_waits_for_a_permit_has_left_the_queue(world: World) -> None:
    for _ in range(2):
        world.server.bulkhead.acquire("another")
    joining = world.joining()
    await eventually(lambda: permits(world) == (2, 1))
    joining.cancel()
    await asyncio.wait([joining])
    assert permits(world) == (2, 0)
    assert await world.settle() == []


async def test_a_subscription_that_fails_gives_its_permit_back(world: World) -> None:
    world.server.failure = UpstreamFailed(UpstreamReason.TIMEOUT, "no", dispatched=True)
    with pytest.raises(UpstreamFailed):
        await world.joining()
    await world.settle()
    assert permits(world) == (0, 0)
