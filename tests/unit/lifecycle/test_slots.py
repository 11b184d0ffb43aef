"""The places of the questions that wait at once."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from taskgate.lifecycle.checkpoints import AskedQuestion
from taskgate.lifecycle.slots import QuestionSlot, Slots
from unit.lifecycle import test_inputs


@pytest.fixture
async def timer() -> AsyncIterator[asyncio.TimerHandle]:
    timer = asyncio.get_running_loop().call_later(60, lambda: None)
    yield timer
    timer.cancel()


def question(key: str | None, size: int = 0) -> test_inputs.Asked:
    asked = test_inputs.Asked(size)
    asked.key = key  # type: ignore[assignment]
    return asked


async def test_a_place_is_found_by_its_question_and_by_its_key_and_is_free_again(timer: asyncio.TimerHandle) -> None:
    slots, asked, other = Slots(), question('"q"', 5), question(None)
    slot = slots.take(asked, timer)
    slot.key = "input-1"
    assert (slots.at(asked), slots.under("input-1"), len(slots), [*slots]) == (slot, slot, 1, [slot])
    assert (slots.at(other), slots.under("input-2")) == (None, None)
    assert slots.size == slot.size > 5
    slots.free(slot)
    slots.free(slot)
    assert (len(slots), slots.size, timer.cancelled()) == (0, 0, True)


async def test_a_place_tells_its_key_once_it_is_in_the_record(timer: asyncio.TimerHandle) -> None:
    slot = QuestionSlot(question(None), timer)
    slot.key = "input-1"
    assert slot.input() is None
    slot.is_there = True
    assert slot.input() == "input-1"


@pytest.mark.parametrize(
    ("key", "is_answered", "are_named"), [('"q"', False, True), (None, False, False), (None, True, True)]
)
async def test_only_a_question_that_waits_needs_a_name(
    timer: asyncio.TimerHandle, key: str | None, is_answered: bool, are_named: bool
) -> None:
    slots, asked = Slots(), question(key)
    slots.take(asked, timer)
    if is_answered:
        asked.refuse()
    assert slots.are_named is are_named


async def test_what_has_a_key_is_called_by_both_names(timer: asyncio.TimerHandle) -> None:
    slots = Slots()
    slots.take(question('"early"'), timer)
    slots.take(question('"q"'), timer).key = "input-1"
    slots.take(question(None), timer).key = "input-2"
    method = "elicitation/create"
    assert slots.asked == {
        "input-1": AskedQuestion('"q"', method, "input-1"),
        "input-2": AskedQuestion("", method, "input-2"),
    }
