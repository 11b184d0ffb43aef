"""The questions of a server during a task, on their way to a record that cannot always be written."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from helpers.failing_store import FailingStore
from helpers.manual_clock import ManualClock
from helpers.records import OWNER, after, keep, new_record
from helpers.waiting import bounded, eventually
from taskgate.admission.rules import MAX_QUESTION, QuestionBounds
from taskgate.domain.events import Dispatched, InputAnswered, InputClaimed
from taskgate.domain.machine import advance
from taskgate.domain.record import TaskRecord
from taskgate.errors import StoreUnavailable
from taskgate.lifecycle.inputs import TaskInputs
from taskgate.lifecycle.transitions import Transitions
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.protocol.messages import Notification, Params
from taskgate.protocol.server_messages import Question
from taskgate.stores.open import open_store
from taskgate.upstream.calls import Principal
from unit.lifecycle.recorded_events import RecordedEvents

ANSWER = '{"result":{"action":"accept"}}'


class Asked:
    """A question of a server; see ServerQuestion. `replies` is what the server was told."""

    def __init__(self, size: int = 0) -> None:
        self.key = None
        self.question = Question("elicitation/create", Params('{"message":"' + "x" * size + '"}'))
        self.replies: list[str] = []
        self.forgets: list[Callable[[], None]] = []

    @property
    def is_open(self) -> bool:
        return not self.replies

    def answer(self, answer: str, principal: Principal | None = None) -> None:
        if not self.replies:
            self.replies.append(answer)

    def refuse(self) -> None:
        self.answer("refused")

    def tell(self, notification: Notification) -> None:
        """Nothing is told here."""

    def when_withdrawn(self, forget: Callable[[], None]) -> None:
        self.forgets.append(forget)


class SecretiveStore(FailingStore):
    """A store that, while `hides`, writes and says that it could not."""

    hides = False

    def __getattr__(self, name: str) -> Any:
        operation = super().__getattr__(name)
        if name != "swap":
            return operation

        async def swap(*args: Any, **kwargs: Any) -> Any:
            written = await operation(*args, **kwargs)
            if self.hides:
                self.failing = {"load"}
                raise StoreUnavailable("as the test wants")
            return written

        return swap


class World:
    """A task that runs, and what its server asks."""

    def __init__(self, store: SecretiveStore, record: TaskRecord) -> None:
        self.store, self.record, self.clock = store, record, ManualClock()
        self.changes = Transitions(store=store, event_sink=RecordedEvents(), clock=self.clock)

    def inputs(self, wait: float = 20, outstanding: int = 8) -> TaskInputs:
        bounds = QuestionBounds(timedelta(seconds=wait), outstanding)
        dialect = LegacyDownstream("1")
        return TaskInputs(OWNER, self.record.id, transitions=self.changes, dialect=dialect, bounds=bounds)

    async def now(self) -> TaskRecord:
        found = await self.store.load(OWNER, self.record.id, now=self.clock.now())
        assert isinstance(found, TaskRecord)
        return found

    async def answer(self, key: str, answer: str = ANSWER) -> TaskRecord:
        """What the record is once its host has answered."""
        record = await self.now()
        answered = advance(record, InputAnswered(key=key, response=answer), self.clock.now())
        assert await self.store.swap(answered, expected=record.revision)
        return answered


async def idle(inputs: TaskInputs) -> None:
    """Wait until nothing is written any more."""
    async with bounded():
        while running := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(running)


async def expect_room(inputs: TaskInputs, outstanding: int = 8) -> None:
    """Expect that no question takes a place: so many are taken."""
    more = [Asked() for _ in range(outstanding)]
    for asked in more:
        inputs.ask(asked)
    assert all(asked.is_open for asked in more)
    await idle(inputs)
    inputs.close()


@pytest.fixture
async def world() -> World:
    store = SecretiveStore(await open_store("memory", None))
    record = after(new_record(), Dispatched())
    await keep(store, record)
    return World(store, record)


async def test_a_question_whose_time_was_up_before_it_could_be_written_is_never_written(world: World) -> None:
    inputs, asked = world.inputs(wait=20), Asked()
    world.store.failing = {"swap"}
    inputs.ask(asked)
    await asyncio.sleep(20)
    # At once, and after 0.1, 0.3, 0.7, 1.5, 3.1, 6.3, 11.3 and 16.3 seconds.
    assert world.store.refused == ["swap"] * 9
    world.store.failing = set()
    await idle(inputs)
    assert asked.replies == ["refused"]
    assert (await world.now()).revision == world.record.revision
    await expect_room(inputs)


async def test_a_question_that_was_written_though_the_store_could_not_tell_is_there_once_and_can_be_answered(
    world: World,
) -> None:
    inputs, asked = world.inputs(), Asked()
    world.store.hides = True
    inputs.ask(asked)
    await eventually(lambda: "load" in world.store.refused)
    world.store.hides, world.store.failing = False, set()
    await idle(inputs)
    [request] = (await world.now()).inputs
    assert asked.forgets
    inputs.forward_answers(await world.answer(request.key), None)
    assert asked.replies == [ANSWER]
    await idle(inputs)
    assert (await world.now()).answers == {}
    await expect_room(inputs)


async def test_a_question_whose_time_was_up_before_it_could_be_seen_to_be_written_is_withdrawn(world: World) -> None:
    inputs, asked = world.inputs(wait=20), Asked()
    world.store.hides = True
    inputs.ask(asked)
    await asyncio.sleep(20)
    world.store.hides, world.store.failing = False, set()
    await idle(inputs)
    assert asked.replies == ["refused"]
    record = await world.now()
    assert (record.inputs, record.status.value) == ((), "working")
    await expect_room(inputs)


async def test_a_question_of_a_task_that_has_ended_is_refused_at_once(world: World) -> None:
    inputs, asked = world.inputs(), Asked()
    world.record = new_record()
    inputs = world.inputs()
    inputs.ask(asked)
    await eventually(lambda: asked.replies == ["refused"])
    await idle(inputs)


async def test_questions_that_are_too_many_or_too_large_together_are_refused_and_take_no_place(world: World) -> None:
    inputs, more_than_half = world.inputs(outstanding=2), MAX_QUESTION // 2 + 1
    large, other, small, third = Asked(more_than_half), Asked(more_than_half), Asked(), Asked()
    for asked in (large, other, small, third):
        inputs.ask(asked)
    assert [asked.replies for asked in (large, other, small, third)] == [[], ["refused"], [], ["refused"]]
    await idle(inputs)
    assert [request.key for request in (await world.now()).inputs] == ["input-1", "input-2"]
    for forget in large.forgets:
        forget()
    inputs.ask(other := Asked(more_than_half))
    await idle(inputs)
    assert other.is_open
    inputs.close()


async def test_a_question_is_free_whose_stream_went_with_its_process(world: World) -> None:
    """And not one that another stream has meanwhile."""
    inputs = world.inputs()
    inputs.ask(Asked())
    await idle(inputs)
    asked = await world.now()
    claimed = advance(asked, InputClaimed(key="input-1", stream="there/1"), world.clock.now())
    assert await world.store.swap(claimed, expected=asked.revision)
    inputs.release_claim("input-1", "there/2")
    await idle(inputs)
    assert await world.now() == claimed
    inputs.release_claim("input-1", "there/1")
    await idle(inputs)
    assert (await world.now()).inputs[0].claimed_by is None
    inputs.close()
