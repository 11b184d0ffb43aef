"""What a process finds kept of a call that another one had, and what becomes of the questions of that."""

import asyncio

from helpers.waiting import eventually
from taskgate.domain.events import CheckpointSaved
from taskgate.domain.machine import advance
from taskgate.domain.record import SealedCheckpoint
from taskgate.lifecycle.checkpoints import UNSEALED, AskedQuestion, CallCheckpoint
from unit.lifecycle.checkpointed_calls import FIRST, SECOND, kept, named
from unit.lifecycle.test_inputs import ANSWER, World, idle, world

__all__ = ["world"]


async def taken(world: World, *asked: AskedQuestion, answered: bool = False) -> CallCheckpoint:
    """The record as an earlier process left it, which was asked two things."""
    before, found = world.inputs(), CallCheckpoint(FIRST, asked)
    for number in (1, 2):
        before.ask(named(f'"{number}"'))
    await idle(before)
    before.close()
    record = await world.answer("input-1") if answered else await world.now()
    sealed = UNSEALED.seal(record.owner, record.id, found)
    assert sealed is not None
    left = advance(record, CheckpointSaved(checkpoint=SealedCheckpoint(sealed=sealed)), world.clock.now())
    assert await world.store.swap(left, expected=record.revision)
    return found


ONE, TWO = (AskedQuestion(f'"{number}"', "elicitation/create", f"input-{number}") for number in (1, 2))


async def test_a_question_that_is_asked_anew_is_the_one_of_the_record(world: World) -> None:
    found = await taken(world, ONE, TWO)
    inputs, asked = world.inputs(), named('"2"')
    expected = inputs.resume_at(await world.now(), found, UNSEALED)
    assert ({key: question.method for key, question in expected.items()}, inputs.is_kept) == (
        {'"1"': "elicitation/create", '"2"': "elicitation/create"},
        True,
    )
    inputs.ask(asked)
    await idle(inputs)
    assert len((await world.now()).inputs) == 2
    assert inputs.find_question("input-2") is asked
    inputs.forward_answers(await world.answer("input-2"), None)
    assert asked.replies == [ANSWER]
    # The other is known as well, though its server has not asked it anew yet.
    assert [each.key for each in (await kept(world, inputs, SECOND)).asked] == ['"1"']
    for forget in asked.forgets:
        forget()


async def test_an_answer_that_was_there_is_given_as_soon_as_its_question_is_asked_anew(world: World) -> None:
    found = await taken(world, ONE, TWO, answered=True)
    inputs, asked = world.inputs(), named('"1"')
    assert set(inputs.resume_at(await world.now(), found, UNSEALED)) == {'"1"', '"2"'}
    inputs.ask(asked)
    await idle(inputs)
    assert asked.replies == [ANSWER]
    assert (await world.now()).answers == {"input-1": ANSWER}


async def test_what_nobody_waits_for_any_more_is_not_asked_anew_and_is_refused_if_it_is(world: World) -> None:
    found = await taken(world, ONE, TWO)
    inputs = world.inputs()
    inputs.resume_at(await world.now(), found, UNSEALED)
    record = await world.answer("input-1")
    gone = advance(
        record, CheckpointSaved(checkpoint=record.checkpoint, delivered=frozenset({"input-1"})), world.clock.now()
    )
    assert await world.store.swap(gone, expected=record.revision)
    asked = named('"1"')
    inputs.ask(asked)
    await eventually(lambda: asked.replies)
    await idle(inputs)
    assert asked.replies == ["refused"]
    again = world.inputs()
    assert set(again.resume_at(await world.now(), found, UNSEALED)) == {'"2"'}
    again.close()
    inputs.close()


async def test_a_question_that_nobody_can_ask_anew_is_withdrawn(world: World) -> None:
    found = await taken(world, ONE)
    inputs = world.inputs()
    inputs.resume_at(await world.now(), found, UNSEALED)
    await idle(inputs)
    assert [request.key for request in (await world.now()).inputs] == ["input-1"]
    inputs.close()


async def test_a_question_that_its_server_does_not_ask_anew_has_its_time_and_no_more(world: World) -> None:
    found = await taken(world, ONE, TWO)
    inputs = world.inputs(wait=20)
    inputs.resume_at(await world.now(), found, UNSEALED)
    await asyncio.sleep(19)
    assert len((await world.now()).inputs) == 2
    await asyncio.sleep(2)
    await idle(inputs)
    record = await world.now()
    assert (record.inputs, record.status.value) == ((), "working")


async def test_a_question_that_is_withdrawn_after_it_was_asked_anew_is_withdrawn_in_the_record(world: World) -> None:
    found = await taken(world, ONE, TWO)
    inputs, asked = world.inputs(), named('"1"')
    inputs.resume_at(await world.now(), found, UNSEALED)
    inputs.ask(asked)
    await idle(inputs)
    for forget in asked.forgets:
        forget()
    await idle(inputs)
    assert [request.key for request in (await world.now()).inputs] == ["input-2"]
    inputs.close()
