"""Whatever happens to replicas, and in whatever order: a call is sent once, a task ends once, and each does end.

Each schedule is drawn from a seed: where the replicas stop, wake and die, what the store does, who is quicker.
"""

import asyncio
from datetime import timedelta
from random import Random

import pytest

from helpers.examples import examples
from helpers.waiting import bounded
from taskgate.domain.record import TaskStatus
from taskgate.telemetry.events import LeaseLost, TaskRecovered
from unit.lifecycle.gated import Gates
from unit.lifecycle.several_runners import World

SECOND = timedelta(seconds=1)
BLOCKS = examples(80) // 5
"""Of five seeds each."""


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[Gates]:
    """Have pauses of the engine end when a schedule says so."""
    gates: list[Gates] = []

    async def sleep(seconds: float) -> None:
        await gates[-1].sleep(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return gates


async def _play(world: World, *, dies: bool, stops: bool, goes_down: bool, reruns: int) -> None:
    random = world.random
    _open(world)
    for _ in range(random.randrange(150, 400)):
        await _something(world, random, dies=dies, stops=stops, goes_down=goes_down, reruns=reruns)
        for _ in range(random.randrange(6)):
            await world.step()
    await world.settle()


def _open(world: World) -> None:
    for replica in world.replicas:
        replica.open()


async def _something(world: World, random: Random, *, dies: bool, stops: bool, goes_down: bool, reruns: int) -> None:
    awake = [replica for replica in world.alive if not replica.stopped]
    what = random.random()
    if not awake or what < 0.25:
        world.clock.advance(SECOND * random.choice([1, 1, 2, 5]))
    elif what < 0.40:
        world.beat(random.choice(awake))
    elif what < 0.55:
        world.sweep(random.choice(awake))
    elif what < 0.70 and len(world.acknowledged) < 8:
        world.create(random.choice(awake), reruns=reruns)
    elif what < 0.78:
        world.answer()
    elif what < 0.81 and world.acknowledged:
        world.cancel(random.choice(awake), random.choice(list(world.acknowledged)))
    elif what < 0.88 and stops:
        random.choice(awake).stopped = True
    elif what < 0.94:
        for replica in world.alive:
            if random.random() < 0.5:
                replica.stopped = False
    elif what < 0.96 and goes_down:
        world.is_down = not world.is_down
    elif what > 0.99 and dies and len(world.alive) > 1:
        random.choice(awake).kill()


def _judge(world: World, most: int = 1) -> None:
    for task, record in world.acknowledged.items():
        assert record.call.params is not None
        assert world.server.sent[record.call.params] <= most
        head = world.store.stored[task].head
        assert head.status.is_terminal
        if task in world.cancelled:
            assert head.status is TaskStatus.CANCELLED
        if head.status is TaskStatus.COMPLETED:
            assert world.server.sent[record.call.params] >= 1
    for record in world.refused.values():
        # Who may send a call again may do so even then.
        assert not record.dispatched or record.reruns or record.call.params not in world.server.sent
    for params, times in world.server.sent.items():
        assert times <= most, params


@pytest.mark.parametrize("block", range(BLOCKS))
@pytest.mark.parametrize(
    ("dies", "stops", "goes_down", "reruns"),
    [
        (False, False, False, 0),
        (True, True, False, 0),
        (False, False, True, 0),
        (True, True, True, 0),
        (True, True, True, 1),
    ],
    ids=["all live", "some stop and die", "the store is away", "all of it", "calls may be made again"],
)
async def test_a_call_is_sent_once_and_its_task_ends_once(
    pauses: list[Gates], block: int, dies: bool, stops: bool, goes_down: bool, reruns: int
) -> None:
    for seed in range(block * 5, block * 5 + 5):
        world = World(Random(seed))
        pauses.append(world.gates)
        try:
            async with bounded(60):
                await _play(world, dies=dies, stops=stops, goes_down=goes_down, reruns=reruns)
            _judge(world, 1 + reruns)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error
        finally:
            await world.close()


def _judge_living(world: World) -> None:
    """Nobody died, so nothing was taken over, and nothing was lost."""
    _judge(world)
    for replica in world.replicas:
        assert not [event for event in replica.emitted.all if isinstance(event, LeaseLost | TaskRecovered)]
    for task, record in world.acknowledged.items():
        head, sent = world.store.stored[task].head, world.server.sent[record.call.params or ""]
        # A call whose mark could not be written was not sent, and says so.
        assert head.status is not TaskStatus.FAILED or sent == 0


async def _live_on(world: World, *, forgets: bool) -> None:
    random = world.random
    _open(world)
    for _ in range(3):
        await world.tick()
    for _ in range(random.randrange(10, 40)):
        for _ in range(random.randrange(30)):
            await _something_quick(world, random)
            for _ in range(random.randrange(6)):
                await world.step()
        if not world.is_down and random.random() < 0.15:
            world.save()
            for _ in range(random.randrange(4) if forgets else 0):
                await _something_quick(world, random)
                await world.step()
            world.is_down = True
        elif world.is_down and random.random() < 0.3:
            world.is_down = False
            if forgets:
                world.go_back()
        await world.tick()
    world.is_down = False
    await world.settle()


async def _something_quick(world: World, random: Random) -> None:
    replica, what = random.choice(world.replicas), random.random()
    if what < 0.4 and len(world.acknowledged) < 12:
        world.create(replica)
    elif what < 0.8:
        world.answer()
    elif what < 0.85 and world.acknowledged:
        world.cancel(replica, random.choice(list(world.acknowledged)))


@pytest.mark.thorough
@pytest.mark.parametrize("block", range(BLOCKS))
@pytest.mark.parametrize("forgets", [False, True], ids=["comes back as it was", "forgot the last it was told"])
async def test_a_store_that_was_away_costs_nobody_who_lives_a_call(
    pauses: list[Gates], block: int, forgets: bool
) -> None:
    """However long it was: by the time that anything is taken over, all that live have renewed what they hold."""
    for seed in range(block * 5, block * 5 + 5):
        world = World(Random(seed))
        pauses.append(world.gates)
        try:
            async with bounded(60):
                await _live_on(world, forgets=forgets)
            _judge_living(world)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error
        finally:
            await world.close()
