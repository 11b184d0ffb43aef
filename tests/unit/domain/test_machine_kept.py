"""Questions that a host answers with a task of its own, for now."""

import pytest

from taskgate.domain.events import InputAnswered, InputClaimed, InputKept, InputWithdrawn
from taskgate.domain.machine import advance
from taskgate.errors import IllegalTransition
from unit.domain.test_machine import INPUT_REQUIRED, LATER, RECORDS, WORKING


def test_a_question_that_the_host_keeps_a_task_for_is_open_until_it_is_withdrawn() -> None:
    claimed = advance(RECORDS[INPUT_REQUIRED], InputClaimed(key="input-2", stream="s"), LATER)
    kept = advance(claimed, InputKept(key="input-2", response="{}", kept_as="theirs"), LATER)
    assert kept.inputs[0].claimed_by is None
    for event in (
        InputKept(key="input-2", response="{}", kept_as="other"),
        InputAnswered(key="input-2", response="{}"),
        InputClaimed(key="input-2", stream="s"),
    ):
        with pytest.raises(IllegalTransition):
            advance(kept, event, LATER)
    kept = advance(kept, InputAnswered(key="input-3", response="3"), LATER)
    assert kept.status is INPUT_REQUIRED
    assert advance(kept, InputWithdrawn(key="input-2"), LATER).status is WORKING
