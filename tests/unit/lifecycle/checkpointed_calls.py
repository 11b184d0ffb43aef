"""What tests share of calls that are kept: questions with names, and what the record keeps."""

from typing import Any

from helpers.failing_store import FailingStore
from taskgate.domain.record import TaskRecord
from taskgate.lifecycle.checkpoints import UNSEALED, CallCheckpoint
from taskgate.lifecycle.inputs import TaskInputs
from taskgate.upstream.calls import ResumePoint
from unit.lifecycle import test_inputs
from unit.lifecycle.test_inputs import World, idle

FIRST, SECOND, THIRD = (ResumePoint("s", "2025-11-25", None, 1, event) for event in ("e1", "e2", "e3"))


def named(key: str | None = '"q"') -> Any:
    """A question that its server has a name for."""
    asked = test_inputs.Asked()
    asked.key = key  # type: ignore[assignment]
    return asked


async def call_checkpoint(world: World) -> CallCheckpoint | None:
    opened = UNSEALED.open(await world.now())
    assert opened is None or isinstance(opened, CallCheckpoint)
    return opened


async def kept(world: World, inputs: TaskInputs, resume_point: ResumePoint) -> CallCheckpoint:
    """What the record keeps once all was written."""
    inputs.on_checkpoint(resume_point, UNSEALED)
    await idle(inputs)
    found = await call_checkpoint(world)
    assert found is not None
    assert found.resume_point == resume_point
    return found


def note_written(store: FailingStore, seen: list[TaskRecord]) -> None:
    """Add to `seen` each record that is written from now on."""
    swap = store.swap

    async def noted(record: TaskRecord, *, expected: int) -> bool:
        done: bool = await swap(record, expected=expected)
        if done:
            seen.append(record)
        return done

    store.swap = noted
