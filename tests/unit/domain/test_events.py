"""Events are frozen values, and all of them are in the union that the runner and the machine speak in."""

from dataclasses import fields, is_dataclass
from typing import get_args

import pytest

from taskgate.domain import events
from taskgate.domain.events import CallSucceeded, Dispatched, InputClaimed, Progressed, TaskEvent
from unit.domain.records import EVENTS


def test_every_event_of_the_module_is_a_task_event() -> None:
    defined = {kind for kind in vars(events).values() if is_dataclass(kind) and kind.__module__ == events.__name__}
    assert defined == set(get_args(TaskEvent)) == set(EVENTS)


@pytest.mark.parametrize("kind", EVENTS)
def test_an_event_is_frozen_small_and_told_by_name(kind: type) -> None:
    assert kind.__dataclass_params__.frozen
    assert "__slots__" in vars(kind)
    assert all(field.kw_only for field in fields(kind))


def test_events_with_the_same_parts_are_the_same() -> None:
    assert Dispatched() == Dispatched()
    assert Progressed(message="a") != Progressed(message="b")
    assert InputClaimed(key="k", stream=None) != InputClaimed(key="k", stream="s")
    assert CallSucceeded(result="{}", tool_error=False).message is None
