"""A question of a task that runs here, on a stream of a process that is not heard of any more."""

import asyncio
from collections.abc import AsyncIterator, Callable
from random import Random

import pytest

from helpers.records import after
from taskgate.domain.events import InputClaimed
from taskgate.domain.record import TaskRecord, TaskStatus
from taskgate.protocol.messages import Notification, Params
from taskgate.protocol.server_messages import Question
from taskgate.upstream.calls import Principal
from unit.lifecycle.gated import Replica
from unit.lifecycle.several_runners import RULES, World


class Asked:
    """A question of a server that is never answered; see ServerQuestion."""

    key = None
    question = Question("elicitation/create", Params('{"message":"Which?"}'))
    is_open = True

    def answer(self, answer: str, principal: Principal | None = None) -> None:
        raise AssertionError("nobody answers here")

    def refuse(self) -> None:
        raise AssertionError("nobody answers here")

    def tell(self, notification: Notification) -> None:
        """Nothing is told here."""

    def when_withdrawn(self, forget: Callable[[], None]) -> None:
        """It is not."""


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """Three processes that have been there for a while."""
    world = World(Random(0))
    monkeypatch.setattr(asyncio, "sleep", world.gates.sleep)
    for _ in range(3):
        await world.tick()
    yield world
    await world.close()


async def asked_on(world: World, carrier: Replica) -> TaskRecord:
    """A task of the first replica whose question is on a stream of another."""
    first = world.replicas[0]
    first.open()
    record = world.create(first)
    await world.rest()
    world.server.listeners[-1].asked(Asked())
    await world.rest()
    head = world.head(record)
    claimed = after(head, InputClaimed(key="input-1", stream=f"{carrier.name}/1"))
    assert await world.store.swap(claimed, expected=head.revision)
    await world.rest()
    return record


def claim(world: World, record: TaskRecord) -> str | None:
    return world.head(record).inputs[0].claimed_by


async def test_a_question_whose_stream_went_with_its_process_is_free_within_a_lease_and_a_few_heartbeats(
    world: World,
) -> None:
    second = world.replicas[1]
    record = await asked_on(world, second)
    await world.tick()
    second.kill()
    began = world.clock.now()
    while claim(world, record) is not None:
        await world.tick()
        assert world.clock.now() - began <= RULES.length + 3 * RULES.heartbeat
    assert world.clock.now() - began > RULES.length
    assert (world.head(record).status, len(world.server.open)) == (TaskStatus.INPUT_REQUIRED, 1)


async def test_a_process_that_was_not_heard_of_for_a_moment_keeps_the_questions_of_its_streams(world: World) -> None:
    """Nor is one taken for gone that a process knows nothing of yet (H-LEG-8)."""
    second = world.replicas[1]
    record = await asked_on(world, second)
    await world.tick()
    second.stopped = True
    while world.replicas[0].leasing.processes == 3:
        await world.tick()
    second.stopped = False
    for _ in range(8):
        await world.tick()
    assert claim(world, record) == f"{second.name}/1"


async def test_no_question_is_asked_again_until_the_store_was_there_for_long_enough(world: World) -> None:
    first, second, _ = world.replicas
    record = await asked_on(world, second)
    await world.tick()
    world.is_down = True
    for _ in range(6):
        await world.tick()
    world.is_down = False
    world.beat(first)
    await world.rest()
    world.clock.advance(2 * RULES.heartbeat)
    world.beat(first)
    await world.rest()
    for _ in range(8):
        await world.tick()
    assert claim(world, record) == f"{second.name}/1"
