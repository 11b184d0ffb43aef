"""Where the call of a task is at its server, on its way into the record: never ahead of what the record must have."""

import asyncio
import json

import pytest

from helpers.waiting import eventually
from taskgate.domain.events import CallFaulted
from taskgate.domain.machine import MAX_CHECKPOINT_ANSWERS, advance
from taskgate.domain.record import FaultReason, TaskRecord
from taskgate.lifecycle.checkpoints import KEEP_EVERY, MAX_SEALED, UNSEALED, AskedQuestion, CallCheckpoint
from taskgate.lifecycle.inputs import MAX_NAME
from unit.lifecycle.checkpointed_calls import FIRST, SECOND, THIRD, call_checkpoint, kept, named, note_written
from unit.lifecycle.test_inputs import ANSWER, World, idle, world

__all__ = ["world"]


async def test_the_newest_place_counts_and_only_what_is_written_is_kept(world: World) -> None:
    inputs = world.inputs()
    assert not inputs.is_kept
    inputs.on_checkpoint(FIRST, UNSEALED)
    inputs.on_checkpoint(SECOND, UNSEALED)
    assert not inputs.is_kept
    await idle(inputs)
    assert (await call_checkpoint(world), inputs.is_kept) == (CallCheckpoint(SECOND, ()), True)
    assert (await world.now()).revision == world.record.revision + 1
    await kept(world, inputs, THIRD)


async def test_what_is_new_while_it_is_written_is_written_after_it_and_not_before_its_time(world: World) -> None:
    inputs, loop, pause = world.inputs(), asyncio.get_running_loop(), KEEP_EVERY.total_seconds()
    began = loop.time()
    inputs.on_checkpoint(FIRST, UNSEALED)
    await eventually(lambda: inputs.is_kept)
    inputs.on_checkpoint(SECOND, UNSEALED)
    await asyncio.sleep(pause / 2)
    assert await call_checkpoint(world) == CallCheckpoint(FIRST, ())
    await idle(inputs)
    assert await call_checkpoint(world) == CallCheckpoint(SECOND, ())
    # Nor is what would come next.
    assert loop.time() - began >= 2 * pause


async def test_no_place_is_kept_before_what_was_asked_up_to_it_is_in_the_record(world: World) -> None:
    inputs = world.inputs()
    await kept(world, inputs, FIRST)
    world.store.failing = {"swap"}
    inputs.ask(named())
    inputs.on_checkpoint(SECOND, UNSEALED)
    await eventually(lambda: "swap" in world.store.refused)
    assert await call_checkpoint(world) == CallCheckpoint(FIRST, ())
    # Now the question gets there, and with it what knows of it at the place that is sure.
    seen: list[TaskRecord] = []
    world.store.failing = set()
    note_written(world.store, seen)
    await idle(inputs)
    asked = (AskedQuestion('"q"', "elicitation/create", "input-1"),)
    assert [UNSEALED.open(each) for each in seen] == [CallCheckpoint(FIRST, asked), CallCheckpoint(SECOND, asked)]
    assert await call_checkpoint(world) == CallCheckpoint(SECOND, asked)


async def test_an_answer_stays_until_its_server_has_it_and_then_neither_it_nor_the_name_does(world: World) -> None:
    inputs, asked = world.inputs(), named()
    await kept(world, inputs, FIRST)
    inputs.ask(asked)
    await idle(inputs)
    inputs.forward_answers(await world.answer("input-1"), None)
    await idle(inputs)
    assert asked.replies == [ANSWER]
    assert (await world.now()).answers == {"input-1": ANSWER}
    # Where the call is kept for another reason, the answer goes along.
    inputs.ask(named('"other"'))
    await idle(inputs)
    both = [each.key for each in (await call_checkpoint(world) or CallCheckpoint(FIRST, ())).asked]
    assert both == ['"q"', '"other"']
    assert [each.key for each in (await kept(world, inputs, SECOND)).asked] == ['"other"']
    assert (await world.now()).answers == {}


async def test_until_the_newest_place_is_written_the_one_before_knows_what_was_answered_since(world: World) -> None:
    """Whoever went on from there would be told the question again, and ask it anew."""
    inputs, asked = world.inputs(), named()
    await kept(world, inputs, FIRST)
    inputs.ask(asked)
    await idle(inputs)
    inputs.forward_answers(await world.answer("input-1"), None)
    await idle(inputs)
    # The server has the answer, but that cannot be written, and it asks something else meanwhile.
    world.store.failing = {"swap"}
    inputs.ask(named('"other"'))
    inputs.on_checkpoint(SECOND, UNSEALED)
    await eventually(lambda: "swap" in world.store.refused)
    seen: list[TaskRecord] = []
    note_written(world.store, seen)
    world.store.failing = set()
    await idle(inputs)
    names = [
        [each.key for each in found.asked] for found in map(UNSEALED.open, seen) if isinstance(found, CallCheckpoint)
    ]
    assert names == [['"q"', '"other"'], ['"other"']]
    assert [set(each.answers) for each in seen] == [{"input-1"}, set()]


async def test_more_answers_than_may_be_kept_are_taken_for_arrived(world: World) -> None:
    inputs, asked = world.inputs(), named()
    large = json.dumps({"result": {"action": "accept", "content": {"text": MAX_CHECKPOINT_ANSWERS * "x"}}})
    await kept(world, inputs, FIRST)
    inputs.ask(asked)
    await idle(inputs)
    inputs.forward_answers(await world.answer("input-1", large), None)
    await idle(inputs)
    record = await world.now()
    assert (record.answers, record.checkpoint is not None) == ({}, True)


@pytest.mark.parametrize("key", [None, "n" * (MAX_NAME + 1)])
async def test_while_a_question_without_a_name_is_open_nothing_is_kept(world: World, key: str | None) -> None:
    """Who went on with the call could not answer it."""
    inputs, asked = world.inputs(), named(key)
    await kept(world, inputs, FIRST)
    inputs.ask(asked)
    await idle(inputs)
    assert ((await world.now()).checkpoint, inputs.is_kept) == (None, False)
    inputs.on_checkpoint(SECOND, UNSEALED)
    await idle(inputs)
    assert (await world.now()).checkpoint is None
    inputs.forward_answers(await world.answer("input-1"), None)
    await idle(inputs)
    assert (await world.now()).answers == {}
    await kept(world, inputs, THIRD)


async def test_what_is_not_to_be_kept_any_more_before_it_could_be_written_never_is(world: World) -> None:
    inputs, seen = world.inputs(), list[TaskRecord]()
    world.store.failing = {"swap"}
    inputs.ask(named())
    inputs.on_checkpoint(FIRST, UNSEALED)
    await eventually(lambda: "swap" in world.store.refused)
    inputs.ask(named(None))
    note_written(world.store, seen)
    world.store.failing = set()
    await idle(inputs)
    assert len((await world.now()).inputs) == 2
    assert [each.checkpoint for each in seen] == [None] * len(seen)


async def test_what_is_too_large_to_keep_is_not_kept_nor_what_was_before_it(world: World) -> None:
    inputs = world.inputs()
    await kept(world, inputs, FIRST)
    inputs.on_checkpoint(SECOND._replace(event=MAX_SEALED * "e"), UNSEALED)
    await idle(inputs)
    assert ((await world.now()).checkpoint, inputs.is_kept) == (None, False)
    await kept(world, inputs, THIRD)


async def test_of_a_task_that_has_ended_nothing_is_kept(world: World) -> None:
    inputs, record = world.inputs(), await world.now()
    failed = CallFaulted(error="{}", reason=FaultReason.CLOSED, message="m")
    assert await world.store.swap(advance(record, failed, world.clock.now()), expected=record.revision)
    inputs.on_checkpoint(FIRST, UNSEALED)
    await idle(inputs)
    assert ((await world.now()).checkpoint, inputs.is_kept) == (None, False)


async def test_a_call_that_is_given_up_for_a_new_one_is_kept_no_more(world: World) -> None:
    inputs = world.inputs()
    inputs.drop_checkpoint()
    await kept(world, inputs, FIRST)
    inputs.drop_checkpoint()
    assert not inputs.is_kept
    await idle(inputs)
    assert (await world.now()).checkpoint is None
